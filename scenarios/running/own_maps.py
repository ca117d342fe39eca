"""Metrics of held-out rows where each client draws a map of its own, and none is common (P2's LocalNE)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from raydr.arrays import FloatArray, Int64Array
from raydr.methods import MethodSettings
from raydr.metrics import Evidence, Scores, SharedGraph, evaluate, graph_size


def own_maps(
    method: MethodSettings,
    models: Sequence[Mapping[str, FloatArray]],
    rows: FloatArray,
    new: FloatArray,
    *,
    labels: tuple[Int64Array | None, Int64Array | None],
    names: Sequence[str],
    seed: int,
) -> Iterator[Evidence]:
    """Yield evidence on each client's map, where its model places all mapped rows and all new rows.

    So each map has rows of all classes, like a common map. With the client's own rows alone, no new row of a class that
    the client does not hold could have neighbours of its class: at two classes of ten ``knn_accuracy`` would be 0.2 at
    most, and P2 prints 0.41 (table 9).

    Parameters
    ----------
    method
        The method, which offers ``transform_alone``.
    models
        Model of each client.
    rows : (rows, features) float
        Mapped rows of all clients, scaled as in the run.
    new : (new, features) float
        New rows, scaled as in the run.
    labels : pair of (rows,) and (new,) int or None
        Classes of both.
    names
        Metrics that the evidence is for.
    seed
        The run's seed.
    """
    graph = SharedGraph(new, neighbors=graph_size(names))
    for model in models:
        placed = Evidence(
            rows=new,
            embedding=method.transform_alone(model, new),
            labels=labels[1],
            seed=seed,
            row_neighbors=graph,
        )
        yield Evidence(
            rows=rows, embedding=method.transform_alone(model, rows), labels=labels[0], seed=seed, new=placed
        )


def mean_scores(names: Sequence[str], maps: Iterator[Evidence], *, threads: int) -> Scores:
    """Return the mean of each metric over maps. A metric that one map cannot have has no value.

    A standard error, where rows were sampled, is the mean of those of the maps: an upper bound, since all maps have the
    same sample.
    """
    found = [evaluate(names, each, threads=threads) for each in maps]
    missing = {name: why for each in reversed(found) for name, why in each.not_computed.items()}

    def means(values: Sequence[Mapping[str, float]]) -> dict[str, float]:
        return {
            name: float(np.mean([each[name] for each in values])) for name in values[0] if name not in missing
        }

    return Scores(
        means([each.values for each in found]),
        missing,
        standard_errors=means([each.standard_errors for each in found]),
        sampled_rows=found[0].sampled_rows,
    )
