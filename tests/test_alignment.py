"""Every row of a map is the row of the table that it says it is, however rows were dealt to clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from sklearn.datasets import load_iris

import raydr


@pytest.mark.parametrize(
    "partition", [{"kind": "iid"}, {"kind": "dirichlet", "alpha": 0.3}, {"kind": "one-class"}]
)
def test_rows_labels_and_recovered_distances_belong_together(
    tmp_path: Path, partition: dict[str, Any]
) -> None:
    scenario = {
        "name": "aligned",
        "data": {"source": "iris"},
        "clients": {"count": 3, "partition": partition},
        "method": {"kind": "fed-tsne", "landmarks": 20, "rounds": 2, "early_iterations": 100, "iterations": 100},
        "runtime": {"federation": "inline"},
        "metrics": ["distance_error", "ca_1", "npa_10"],
    }  # fmt: skip
    result = raydr.run(scenario, out=tmp_path / "run")
    # 20 landmarks span iris's 4 features, so distances are exact, if they are of the rows that they are said to be of.
    assert result.metrics["federated"]["distance_error"] < 1e-5
    # Chance keeps 10 of 149 neighbours, 0.07, and finds a third of the classes.
    assert result.metrics["federated"]["npa_10"] > 0.5
    assert result.metrics["federated"]["ca_1"] > 0.8
    iris = load_iris()
    written = pq.read_table(tmp_path / "run" / "embedding.parquet").to_pydict()
    assert written["row"] == list(range(150))
    assert written["label"] == [str(iris.target_names[code]) for code in iris.target]
