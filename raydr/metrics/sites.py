"""Metrics of how far sites stand apart on the map. The pooled rows' map shows how much of that is in the data."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array, IntArray
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Points
from raydr.metrics.clusters import sampled_silhouettes, silhouettes, silhouettes_among_all
from raydr.metrics.evidence import Examination, UnmeasurableError
from raydr.metrics.metric import metric, metric_by_k
from raydr.metrics.sampling import SampledValue

_NEIGHBORS = 30


@metric(
    "site_silhouette",
    "Silhouette of the sites",
    "how far each site's rows stand apart from the others' on the map, site by site",
    needs={"sites"},
    higher_is_better=False,
)
def site_silhouette(examination: Examination) -> float | SampledValue:
    """Return the mean over sites of the mean silhouette of their rows, as if sites were clusters: -1 to 1.

    It is 1 if sites are clusters. Every site has the same weight, for any number of rows. Above
    `SILHOUETTE_ROWS` rows, it uses a sample like ``sc``. If metrics use a sample of rows, it uses the same
    number of rows of each site.
    """
    if examination.sample is not None:
        drawn = examination.sample_of_sites
        return drawn.mean(silhouettes_among_all(examination, examination.sites, drawn.rows))
    return _by_site(*sampled_silhouettes(examination, examination.sites))


def _by_site(values: Float64Array, sites: Int64Array) -> float:
    """Return the mean over sites of the mean of their rows' values."""
    return float(np.mean(np.bincount(sites, values)[np.unique(sites)] / np.bincount(sites)[np.unique(sites)]))


@metric_by_k(
    "site_mixing",
    "Mixing of the sites",
    "share of other sites' rows among the {k} nearest on the map, over their share of all rows",
    k=_NEIGHBORS,
    needs={"sites"},
)
def site_mixing(examination: Examination, k: int) -> float | SampledValue:
    """Return the share of other sites among the ``k`` nearest on the map, over their share of all other rows.

    It is the mean over rows. 0 means that sites do not touch, and 1 that neighbours are as if dealt at
    random.
    """
    sites = examination.sites
    if examination.sample is not None:
        examination.require_neighbors(k)
        own, near = examination.sampled, examination.sample_map_neighbors.indices[:, :k]
        apart = np.mean(sites[near] != sites[own, None], axis=1)
        return examination.sample.mean(apart, scale=1.0 / _by_chance(sites))
    return _mixing(examination.map_neighbors(k).nearest(k).indices, sites)


def _mixing(near: IntArray, sites: Int64Array) -> float:
    """Return the mixing of sites (rows,), with ``near`` (rows, k) as each row's neighbours."""
    return float(np.mean(sites[near] != sites[:, None]) / _by_chance(sites))


def _by_chance(sites: Int64Array) -> float:
    sizes = np.bincount(sites)
    return float(np.mean((len(sites) - sizes[sites]) / (len(sites) - 1)))


def separation(rows: FloatArray, sites: Int64Array, *, threads: int | None = None) -> dict[str, float | None]:
    """Return how far sites stand apart in the data, by the names of the map metrics.

    None if a value cannot be computed.

    Parameters
    ----------
    rows : (rows, features) array
        The rows with all features, not on a map.
    sites : (rows,) int
        The site of each row, from 0.
    threads : int, optional
        Threads of the neighbour search. Default: all cores.
    """
    found: dict[str, float | None] = {"site_mixing": None, "site_silhouette": None}
    if len(rows) > _NEIGHBORS:
        graph = nearest_neighbors(Points(rows), _NEIGHBORS, threads=threads)
        found["site_mixing"] = _mixing(graph.indices, sites)
    with suppress(UnmeasurableError):
        found["site_silhouette"] = _by_site(silhouettes(rows, sites), sites)
    return found
