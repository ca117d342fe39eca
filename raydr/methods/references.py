"""New rows on a finished map: the references that a run keeps, and placement by them.

A run keeps references: means of small groups of records, with positions on the map. The position is the
group's median along each axis, because one distant member would move a mean to an empty place. Groups are
formed on the map alone, so that each is compact there; no reference is a record. A client places its new rows
among the references by :mod:`raydr.embedding.placing`, locally, and sends nothing. docs/new-rows.md has
measured results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.embedding import placing
from raydr.geometry.blocks import filled_up
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Points, common_shift
from raydr.methods.novelty import LEAST_ROWS, MOMENTS, NOVELTY, calibration, groups_of, kept_scores, p_values
from raydr.threads import one_blas_thread

LABEL_COLUMNS = "label_columns"
"""Name of a model's array with the number of columns of a label that steers, the last of the mapped rows."""
ITERATIONS = 100


def references(
    embedding: FloatArray,
    chart: FloatArray,
    rows: Callable[[Float64Array], Float64Array],
    clusters: Int64Array | None = None,
    *,
    squared_heights: Float64Array | None = None,
) -> dict[str, FloatArray]:
    """Return the references for new rows on a map.

    Parameters
    ----------
    embedding : (rows, dimensions)
        Positions of the records.
    chart : (rows, coordinates)
        Coordinates of the records at the server.
    rows : callable
        From mean coordinates (groups, coordinates) to rows of a table (groups, features).
    clusters : (rows,), optional
        Cluster of each record, from 0, so that :func:`clusters_of` can give those of new rows.
    squared_heights : (rows,), optional
        Squared lengths of what the chart leaves out of each record. With them, the model can tell how novel new rows
        are, if their squared distances to the references are those of the chart plus these.
    """
    found = groups_of(embedding)
    kept: dict[str, FloatArray] = {
        "references": rows(_means(chart, found)),
        "reference_positions": np.stack([np.median(embedding[group], axis=0) for group in found]).astype(
            np.float64
        ),
        "reference_counts": np.array([len(group) for group in found], np.float64),
    }
    if squared_heights is not None:
        kept |= calibration(embedding, chart, squared_heights, rows)
    if clusters is None:
        return kept
    members = np.eye(int(clusters.max()) + 1)[clusters]
    return kept | {"reference_clusters": _means(members, found)}


def compared_groups(
    embedding: FloatArray,
    chart: FloatArray,
    rows: Callable[[Float64Array], Float64Array],
    squared_heights: Float64Array,
) -> dict[str, FloatArray]:
    """Return what :func:`novelty_by_rows` needs of the rows on a map that an encoder places; see :func:`references`."""
    means = rows(_means(chart, groups_of(embedding)))
    return {"references": means} | calibration(embedding, chart, squared_heights, rows)


def public_calibration(rows: Float64Array) -> dict[str, FloatArray]:
    """Return what :func:`novelty_by_rows` needs if the references are public rows (rows, features).

    Each is scored by its distance to the nearest other one.
    """
    if len(rows) < LEAST_ROWS:
        return {}
    nearest = nearest_neighbors(Points(rows), 1).distances[:, 0].astype(np.float64)
    return kept_scores(nearest) | {MOMENTS: np.stack([rows.mean(axis=0), rows.std(axis=0)])}


def without_labels(model: Mapping[str, FloatArray], columns: int) -> dict[str, FloatArray]:
    """Return a model that knows of its last ``columns``, those of a label; its references have zeros there.

    New rows have no label. A reference whose rows have several labels would otherwise be nearer to them than others:
    held-out digits had an accuracy of 0.89 under Fed-UMAP with half of the variance for the label, and have 0.98.
    """
    if not columns:
        return dict(model)
    noted = {**model, LABEL_COLUMNS: np.array([columns])}
    for name in NOVELTY:  # the mapped rows had labels
        noted.pop(name, None)
    if "references" in model:
        noted["references"] = np.array(model["references"], np.float64)
        noted["references"][:, -columns:] = 0.0
    return noted


def pooled_references(
    model: Mapping[str, FloatArray], embedding: FloatArray, rows: FloatArray
) -> dict[str, FloatArray]:
    """Return the references of the map of pooled rows (rows, features); ``model`` is that of the federated run."""
    return without_labels(references(embedding, rows, lambda means: means), label_columns(model))


def label_columns(model: Mapping[str, FloatArray]) -> int:
    """Return the number of columns of a label in the rows that a model maps."""
    return int(model[LABEL_COLUMNS][0]) if LABEL_COLUMNS in model else 0


def placed(
    model: Mapping[str, FloatArray],
    squared_distances: Callable[[Float64Array], FloatArray],
    rows: Float64Array,
) -> Float64Array:
    """Return positions (rows, dimensions) of new rows (rows, columns), from their squared distances to the references.

    Distances are requested in blocks of one size, so that a row's position does not depend on the other new
    rows.

    Raises
    ------
    KeyError, ValueError
        If the model is not a result of :func:`references`.
    """
    positions = np.asarray(model["reference_positions"], np.float64)
    counts = np.asarray(model["reference_counts"], np.float64)
    if positions.ndim != 2 or positions.shape[1] not in (2, 3):
        raise ValueError(f"references must have positions of 2 or 3 coordinates, got shape {positions.shape}")
    if {len(model["references"]), len(positions)} != {counts.size} or not (counts > 0.0).all():
        raise ValueError(
            f"expected one positive number of records for each of {len(positions)}"
            f" references, got {counts.size} numbers"
        )
    pulls = _pulls(squared_distances, rows, len(positions))
    unit = _unit(positions)
    return unit * placing.place(pulls, positions / unit, counts, iterations=ITERATIONS)


def _pulls(
    squared_distances: Callable[[Float64Array], FloatArray], rows: Float64Array, references: int
) -> Any:
    """Return affinities (rows, references) of new rows to the references."""

    def near(block: slice) -> FloatArray:
        return squared_distances(filled_up(rows[block]))[: block.stop - block.start]

    with one_blas_thread():
        return placing.affinities(near, len(rows), references)


def placed_by_rows(model: Mapping[str, FloatArray], rows: FloatArray) -> Float64Array:
    """Return positions (rows, dimensions) of new rows (rows, features), by Euclidean distances to the references.

    Raises as :func:`placed`.
    """
    return placed(model, _from_references(model, rows), rows.astype(np.float64))


def clusters_of(model: Mapping[str, FloatArray], rows: FloatArray) -> Int64Array:
    """Return for each new row (rows, features) the most frequent cluster (rows,) of the records that pull it.

    Raises as :func:`placed`.
    """
    members = np.asarray(model["reference_clusters"], np.float64)
    if members.ndim != 2 or len(members) != len(model["references"]):
        raise ValueError(
            f"expected one row of cluster shares for each of {len(model['references'])}"
            f" references, got shape {members.shape}"
        )
    pulls = _pulls(_from_references(model, rows), rows.astype(np.float64), len(members))
    return np.asarray((pulls @ members).argmax(axis=1), np.int64)


def novelty_by_rows(
    model: Mapping[str, FloatArray], rows: FloatArray, squared_heights: Float64Array | None = None
) -> Float64Array | None:
    """Return the p-values (rows,) of new rows (rows, features), by Euclidean distances to the references.

    ``squared_heights`` (rows,) are added to the squared distances.
    """
    from_references = _from_references(model, rows)
    heights = np.zeros(len(rows)) if squared_heights is None else squared_heights
    return p_values(
        model,
        lambda block: from_references(block[:, :-1]) + block[:, -1:],
        np.column_stack([rows.astype(np.float64), heights]),
    )


def _from_references(
    model: Mapping[str, FloatArray], rows: FloatArray
) -> Callable[[Float64Array], Float64Array]:
    """Return a function from rows to squared Euclidean distances to all references."""
    known = np.asarray(model["references"], np.float64)
    if known.ndim != 2 or known.shape[1] != rows.shape[1]:
        raise ValueError(
            f"references of shape {known.shape} and rows of shape {rows.shape} differ in columns"
        )
    shift = common_shift(known)
    seen = known - shift
    norms = np.einsum("ij,ij->i", seen, seen)

    def squared_distances(block: Float64Array) -> Float64Array:
        own = block - shift
        squared = np.einsum("ij,ij->i", own, own)[:, None] + norms - 2.0 * (own @ seen.T)
        return np.asarray(np.maximum(squared, 0.0))

    return squared_distances


def _means(table: FloatArray, found: list[Int64Array]) -> Float64Array:
    return np.stack([table[group].mean(axis=0, dtype=np.float64) for group in found])


def _unit(positions: Float64Array) -> float:
    """Return the median distance of references to the nearest other on the map; t-SNE's forces assume about 1."""
    if len(positions) < 2:
        return 1.0
    nearest = nearest_neighbors(Points(positions), 1).distances
    return float(np.median(nearest)) or 1.0
