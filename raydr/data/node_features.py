"""Features of a graph's nodes with their degree, as graph networks take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

MOST_NEIGHBORS = 5
"""Degrees from here on share a column."""


def with_degrees(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arrays with ``X`` (nodes, features) augmented by the one-hot degree and a constant.

    This is ``augment`` in the code of HGCN (Chami et al. 2019), with which airports have 4 + 6 + 1 features. ``edges``
    (edges, 2) are undirected, without an edge twice. An edge of a node to itself counts once, as in its adjacency
    matrix.

    Examples
    --------
    >>> with_degrees({"X": np.array([[0.5], [0.7], [0.9]]), "edges": np.array([[0, 1]])})["X"].tolist()[0]
    [0.5, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    """
    features, edges = np.asarray(arrays["X"], dtype=np.float32), np.asarray(arrays["edges"])
    ends = np.concatenate([edges[:, 0], edges[edges[:, 0] != edges[:, 1], 1]])
    degrees = np.minimum(np.bincount(ends, minlength=len(features)), MOST_NEIGHBORS)
    one_hot, constant = np.eye(MOST_NEIGHBORS + 1)[degrees], np.ones((len(features), 1))
    names = [f"feat{column}" for column in range(features.shape[1])]
    names += [f"degree_{degree}" for degree in range(MOST_NEIGHBORS)] + [f"degree_from_{MOST_NEIGHBORS}"]
    left = {name: arrays[name] for name in ("y",) if name in arrays}
    return left | {
        "X": np.concatenate([features, one_hot, constant], axis=1, dtype=np.float32),
        "feature_names": np.array([*names, "constant"]),
    }
