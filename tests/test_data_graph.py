"""Edge lists become tables whose rows, under the exponential map, lie as far from each other as the graph says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import shortest_path
from scipy.stats import spearmanr

from raydr.data import load_graph
from raydr.errors import DataError
from raydr.geometry.hyperbolic import exponential_map, squared_distances

TREE = np.array([[(node - 1) // 2, node] for node in range(1, 31)])


def rank_agreement(table, edges: np.ndarray) -> float:
    points = exponential_map(table.rows)
    nodes = len(points)
    hops = shortest_path(
        coo_array((np.ones(len(edges)), edges.T), shape=(nodes, nodes)), directed=False, unweighted=True
    )
    upper = np.triu_indices(nodes, 1)
    return float(spearmanr(np.sqrt(squared_distances(points, points))[upper], hops[upper]).statistic)


def test_a_tree_of_named_nodes(tmp_path: Path) -> None:
    lines = [f"node {a}, node {b}" for a, b in TREE.tolist()]
    (tmp_path / "tree.csv").write_text("parent,child\n" + "\n".join(lines) + "\n\n")
    table = load_graph(tmp_path / "tree.csv", 3, seed=0)
    assert table.rows.shape == (31, 3)
    assert set(table.ids.tolist()) == {f"node {node}" for node in range(31)}
    order = np.argsort([int(name.split()[1]) for name in table.ids])
    assert rank_agreement(table.take(order), TREE) > 0.9
    again = load_graph(tmp_path / "tree.csv", 3, seed=0)
    assert again.rows.tobytes() == table.rows.tobytes()


def test_a_graph_with_cycles_and_classes(tmp_path: Path) -> None:
    ring = np.array([[node, (node + 1) % 12] for node in range(12)])
    np.savez(tmp_path / "ring.npz", edges=ring, y=np.arange(12) % 3)
    table = load_graph(tmp_path / "ring.npz", 2, seed=0)
    assert table.label_names == ("0", "1", "2")
    assert rank_agreement(table, ring) > 0.7


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,b\n1,2\n1,2,3\n", "Line 3 .* has 3 columns"),
        ("a,b\n", "holds no edge"),
        (None, "could not be read"),
    ],
)
def test_what_is_no_edge_list_is_refused(tmp_path: Path, content: str | None, words: str) -> None:
    if content is not None:
        (tmp_path / "graph.csv").write_text(content)
    with pytest.raises(DataError, match=words):
        load_graph(tmp_path / "graph.csv", 2, seed=0)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"X": np.zeros(3)}, "needs an array `edges`"),
        ({"edges": np.zeros((3, 2))}, "whole numbers"),
        ({"edges": np.array([[0, 1]]), "y": np.zeros(5)}, "5 classes in `y` for 2 nodes"),
    ],
)
def test_arrays_that_are_no_graph_are_refused(tmp_path: Path, arrays: dict, words: str) -> None:
    np.savez(tmp_path / "graph.npz", **arrays)
    with pytest.raises(DataError, match=words):
        load_graph(tmp_path / "graph.npz", 2, seed=0)
