"""How well a map places rows that it was not drawn from."""

from __future__ import annotations

import numpy as np

from raydr.arrays import FloatArray, IntArray
from raydr.errors import DataError


def knn_accuracy(
    mapped: FloatArray, labels: IntArray, new: FloatArray, new_labels: IntArray, *, k: int = 7
) -> float:
    """Share of new rows whose class is the majority of their ``k`` nearest rows on the map (P2 5.1).

    Parameters
    ----------
    mapped : (rows, dimensions)
        The map.
    labels : (rows,) int
        Classes of its rows.
    new : (new rows, dimensions)
        Where new rows were placed.
    new_labels : (new rows,) int
        Their classes.
    k : int
        Neighbours that vote; P2 takes 7.

    Raises
    ------
    DataError
        If the map has fewer rows than ``k``.

    Examples
    --------
    >>> knn_accuracy(np.array([[0.0], [1.0]]), np.array([0, 1]), np.array([[0.1], [0.2]]), np.array([0, 1]), k=1)
    0.5
    """
    from sklearn.neighbors import KNeighborsClassifier

    if len(mapped) < k:
        raise DataError(f"{k} neighbours are to vote, but the map has {len(mapped)} rows: give a smaller k.")
    classifier = KNeighborsClassifier(n_neighbors=k).fit(mapped, labels)
    return float(np.mean(classifier.predict(new) == new_labels))
