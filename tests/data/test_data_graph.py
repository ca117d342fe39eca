"""Edge lists become tables whose hyperbolic distances equal the distances in the graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import coo_array

from raydr.data import load_graph
from raydr.data.hierarchy import graph_points
from raydr.errors import DataError
from raydr.geometry.hyperbolic import exponential_map, squared_distances

TREE = np.array([[(node - 1) // 2, node] for node in range(1, 31)])


def test_a_tree_of_named_nodes(tmp_path: Path) -> None:
    lines = [f"node {a}, node {b}" for a, b in TREE.tolist()]
    (tmp_path / "tree.csv").write_text("parent,child\n" + "\n".join(lines) + "\n\n")
    table = load_graph(tmp_path / "tree.csv", 3, seed=0)
    assert table.rows.shape == (31, 3)
    assert set(table.ids.tolist()) == {f"node {node}" for node in range(31)}
    order = np.argsort([int(name.split()[1]) for name in table.ids])
    points = exponential_map(table.take(order).rows)
    apart = squared_distances(points, points)[np.triu_indices(31, 1)]
    joined = coo_array((np.ones(30), TREE.T), shape=(31, 31)).toarray()[np.triu_indices(31, 1)] > 0
    assert apart[joined].max() < apart[~joined].min(), "those that an edge joins are nearer than any others"
    again = load_graph(tmp_path / "tree.csv", 3, seed=0)
    assert again.rows.tobytes() == table.rows.tobytes()


def test_a_graph_with_cycles_and_classes(tmp_path: Path) -> None:
    ring = np.array([[node, (node + 1) % 12] for node in range(12)])
    np.savez(tmp_path / "ring.npz", edges=ring, y=np.arange(12) % 3)
    table = load_graph(tmp_path / "ring.npz", 2, seed=0)
    assert table.label_names == ("0", "1", "2")
    np.testing.assert_allclose(
        exponential_map(table.rows), graph_points(ring, 2, seed=0), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,b\n1,2\n1,2,3\n", "Line 3 .* has 3 columns"),
        ("a,b\n", "holds no edge"),
        (None, "could not be read"),
    ],
)
def test_invalid_edge_lists_are_refused(tmp_path: Path, content: str | None, words: str) -> None:
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
        ({"edges": np.zeros((0, 2), int), "y": np.zeros(0, int)}, "holds no edge"),
        ({"edges": np.array([[0, 2**50]])}, "there are 1125899906842625 nodes: 1.638e.04 TiB of memory"),
        ({"edges": np.array([[0, None]])}, "could not be read .*pickled"),
    ],
)
def test_arrays_without_a_graph_are_refused(tmp_path: Path, arrays: dict, words: str) -> None:
    np.savez(tmp_path / "graph.npz", **arrays)
    with pytest.raises(DataError, match=words):
        load_graph(tmp_path / "graph.npz", 2, seed=0)
