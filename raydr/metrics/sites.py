"""Do sites stand apart on the map? What of that is the data's own shows in the pooled rows' map beside it."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array, IntArray
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Points
from raydr.metrics.clusters import sampled_silhouettes, silhouettes, silhouettes_among_all
from raydr.metrics.evidence import Examination, UnmeasurableError
from raydr.metrics.metric import metric, metric_by_k
from raydr.metrics.sampling import Estimate

_NEIGHBORS = 30


@metric(
    "site_silhouette",
    "Silhouette of the sites",
    "how far each site's rows stand apart from the others' on the map, site by site",
    needs={"sites"},
    higher_is_better=False,
)
def site_silhouette(examination: Examination) -> float | Estimate:
    """Mean over sites of the mean silhouette of their rows, as if sites were clusters; -1 to 1, 1 where they are.

    Every site counts the same, however few rows it has. Past `SILHOUETTE_ROWS` rows of a sample, as ``sc``; where
    metrics look at a sample of rows, of as many rows of each site.
    """
    if examination.sample is not None:
        drawn = examination.sample_of_sites
        return drawn.mean(silhouettes_among_all(examination, examination.sites, drawn.rows))
    return _by_site(*sampled_silhouettes(examination, examination.sites))


def _by_site(values: Float64Array, sites: Int64Array) -> float:
    """Mean over sites of the mean of their rows' values."""
    return float(np.mean(np.bincount(sites, values)[np.unique(sites)] / np.bincount(sites)[np.unique(sites)]))


@metric_by_k(
    "site_mixing",
    "Mixing of the sites",
    "share of other sites' rows among the {k} nearest on the map, over their share of all rows",
    k=_NEIGHBORS,
    needs={"sites"},
)
def site_mixing(examination: Examination, k: int) -> float | Estimate:
    """Mean share of a row's ``k`` nearest on the map that are another site's, over that share among all other rows.

    From 0, where sites have nothing to do with each other, through 1, where neighbours are as if dealt at random.
    """
    sites = examination.sites
    if examination.sample is not None:
        examination.require_neighbors(k)
        own, near = examination.sampled, examination.around_on_map.indices[:, :k]
        apart = np.mean(sites[near] != sites[own, None], axis=1)
        return examination.sample.mean(apart, scale=1.0 / _by_chance(sites))
    return _mixing(examination.map_neighbors(k).nearest(k).indices, sites)


def _mixing(near: IntArray, sites: Int64Array) -> float:
    """Of sites (rows,), where ``near`` (rows, k) are each row's neighbours."""
    return float(np.mean(sites[near] != sites[:, None]) / _by_chance(sites))


def _by_chance(sites: Int64Array) -> float:
    sizes = np.bincount(sites)
    return float(np.mean((len(sites) - sizes[sites]) / (len(sites) - 1)))


def separation(rows: FloatArray, sites: Int64Array, *, threads: int | None = None) -> dict[str, float | None]:
    """How far sites stand apart as their rows lie, by the names of the metrics of maps; None where there is no saying.

    Parameters
    ----------
    rows : (rows, features) array
        Not on a map: in all features.
    sites : (rows,) int
        Whose each is, from 0.
    threads : int, optional
        Of the search of neighbours; all cores without it.
    """
    found: dict[str, float | None] = {"site_mixing": None, "site_silhouette": None}
    if len(rows) > _NEIGHBORS:
        graph = nearest_neighbors(Points(rows), _NEIGHBORS, threads=threads)
        found["site_mixing"] = _mixing(graph.indices, sites)
    with suppress(UnmeasurableError):
        found["site_silhouette"] = _by_site(silhouettes(rows, sites), sites)
    return found
