"""Do sites stand apart on the map? What of that is the data's own shows in the pooled rows' map beside it."""

from __future__ import annotations

import numpy as np

from raydr.metrics.clusters import sampled_silhouettes
from raydr.metrics.evidence import Examination
from raydr.metrics.metric import metric, metric_by_k


@metric(
    "site_silhouette",
    "Silhouette of the sites",
    "how far each site's rows stand apart from the others' on the map, site by site",
    needs={"sites"},
    higher_is_better=False,
)
def site_silhouette(examination: Examination) -> float:
    """Mean over sites of the mean silhouette of their rows, as if sites were clusters; -1 to 1, 1 where they are.

    Every site counts the same, however few rows it has. Past `SILHOUETTE_ROWS` rows of a sample, as ``sc``.
    """
    values, sites = sampled_silhouettes(examination, examination.sites)
    return float(np.mean(np.bincount(sites, values)[np.unique(sites)] / np.bincount(sites)[np.unique(sites)]))


@metric_by_k(
    "site_mixing",
    "Mixing of the sites",
    "share of other sites' rows among the {k} nearest on the map, over their share of all rows",
    k=30,
    needs={"sites"},
)
def site_mixing(examination: Examination, k: int) -> float:
    """Mean share of a row's ``k`` nearest on the map that are another site's, over that share among all other rows.

    From 0, where sites have nothing to do with each other, through 1, where neighbours are as if dealt at random.
    """
    sites = examination.sites
    near = examination.map_neighbors(k).nearest(k).indices
    apart = np.mean(sites[near] != sites[:, None])
    sizes = np.bincount(sites)
    by_chance = np.mean((len(sites) - sizes[sites]) / (len(sites) - 1))
    return float(apart / by_chance)
