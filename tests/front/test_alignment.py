"""Every row of a map belongs to its row of the table, for every partition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import load_iris
from sklearn.neighbors import NearestNeighbors

import raydr
from raydr.arrays import Float64Array

NEAREST = 10


def kept(rows: Float64Array, positions: Float64Array, some: np.ndarray) -> float:
    """Return the share of the ten nearest rows that are also the ten nearest on the map."""
    near = [
        NearestNeighbors(n_neighbors=NEAREST).fit(table).kneighbors(return_distance=False)[some]
        for table in (rows, positions)
    ]
    return float(np.mean([np.intersect1d(*pair).size for pair in zip(*near, strict=True)])) / NEAREST


@pytest.mark.parametrize(
    "partition", [{"kind": "iid"}, {"kind": "dirichlet", "alpha": 0.3}, {"kind": "one-class"}]
)
def test_rows_labels_and_distances_are_aligned(tmp_path: Path, partition: dict[str, Any]) -> None:
    scenario = {
        "name": "aligned",
        "data": {"source": "iris"},
        "clients": {"count": 3, "partition": partition},
        "method": {"kind": "fed-tsne", "landmarks": 20, "rounds": 2, "early_iterations": 100, "iterations": 100},
        "runtime": {"federation": "inline"},
        "metrics": ["distance_error"],
    }  # fmt: skip
    result = raydr.run(scenario, out=tmp_path / "run")
    # 20 landmarks span the 4 features of iris, so distances are exact if rows are aligned.
    assert result.metrics["federated"]["distance_error"] < 1e-5
    iris = load_iris()
    written = pq.read_table(tmp_path / "run" / "embedding.parquet").to_pydict()
    assert written["row"] == list(range(150))
    assert written["label"] == [str(iris.target_names[code]) for code in iris.target]
    holders = np.array(written["client"])
    for client in np.unique(holders):
        # If rows and positions were not aligned, shuffling would change little.
        own = np.flatnonzero(holders == client)
        mixed = result.embedding.copy()
        mixed[own] = mixed[np.random.default_rng(0).permutation(own)]
        assert kept(iris.data, result.embedding, own) > 2 * kept(iris.data, mixed, own)
