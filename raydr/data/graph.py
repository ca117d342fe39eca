"""Reader for graphs as tables: each node is a row, placed in hyperbolic space by its place in the hierarchy."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from raydr.array_files import ArrayArchive
from raydr.arrays import Int64Array
from raydr.data.hierarchy import graph_points, tree_points
from raydr.data.provenance import Source, sha256_of_file
from raydr.data.table import Table
from raydr.errors import DataError
from raydr.geometry.hyperbolic import logarithm_map
from raydr.memory import lacking_memory

JITTER = 0.1
"""Random step of every node of a tree. A symmetric tree has equal distances, so rounding would pick the nearest."""


def load_graph(path: str | Path, dimensions: int, *, seed: int) -> Table:
    """Read an edge list and place its nodes in hyperbolic space of curvature -1.

    A tree is placed by Sarkar's construction, any other graph by a Poincare embedding
    (:mod:`raydr.data.hierarchy`). Rows are tangent vectors at the origin, and the exponential map takes them
    to the nodes: ``method: {geometry: hyperbolic, points: features}``.

    Parameters
    ----------
    path : str or Path
        A .csv file with a header line and two columns, the names of the two nodes of each edge. Or an .npz
        file with ``edges`` (edges, 2), nodes numbered from 0, and optionally ``y`` (nodes,), their classes.
    dimensions : int
        Dimensions of the hyperbolic space.
    seed : int
        Seed of the placement.

    Returns
    -------
    Table
        The ids are the names of the nodes.

    Raises
    ------
    DataError
        If the file cannot be read as an edge list.
    """
    path = Path(path).expanduser()
    labels = None
    if path.suffix == ".npz":
        names, edges, labels = _from_npz(path)
    else:
        names, edges = _from_csv(path)
    if not len(edges):
        raise DataError(f"{path} holds no edge. Give a line or row for each edge.")
    nodes = int(edges.max()) + 1
    lacking = lacking_memory(8 * nodes * dimensions)
    if lacking is not None:
        raise DataError(
            f"{path} names the node {nodes - 1}, so there are {nodes} nodes: {lacking}. Number the nodes from 0 without"
            " gaps."
        )
    tree = len(edges) == nodes - 1 and _connected(edges, nodes)
    if tree:
        points = tree_points(edges, dimensions, jitter=JITTER, seed=seed)
    else:
        points = graph_points(edges, dimensions, seed=seed)
    return Table(
        name=path.name,
        rows=np.ascontiguousarray(logarithm_map(points)),
        features=tuple(f"x{axis}" for axis in range(1, dimensions + 1)),
        ids=names if names is not None else np.arange(nodes),
        labels=labels,
        label_names=tuple(str(code) for code in range(int(labels.max()) + 1)) if labels is not None else (),
        source=Source(name=path.name, rows=nodes, dropped=0, named=False, sha256=sha256_of_file(path)),
    )


def _from_csv(path: Path) -> tuple[NDArray[np.str_], Int64Array]:
    try:
        with path.open(newline="") as file:
            lines = list(csv.reader(file))[1:]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"The edge list {path} could not be read ({error}). Correct data.graph.") from error
    odd = next((number for number, line in enumerate(lines, 2) if line and len(line) != 2), None)
    if odd is not None:
        raise DataError(
            f"Line {odd} of {path} has {len(lines[odd - 2])} columns, but an edge list has two: the names of the two"
            " nodes of an edge, below a header line."
        )
    pairs = np.array([[name.strip() for name in line] for line in lines if line], dtype=np.str_).reshape(
        -1, 2
    )
    names, codes = np.unique(pairs, return_inverse=True)
    return names, codes.reshape(-1, 2).astype(np.int64)


def _from_npz(path: Path) -> tuple[None, Int64Array, Int64Array | None]:
    try:
        with ArrayArchive(path) as archive:
            arrays = {name: archive[name] for name in ("edges", "y") if name in archive}
    except (OSError, ValueError) as error:
        raise DataError(f"The graph {path} could not be read ({error}). Correct data.graph.") from error
    edges = arrays.get("edges")
    if edges is None or edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise DataError(
            f"{path} needs an array `edges` of whole numbersof shape (edges, 2), with nodes numbered from 0."
        )
    labels = arrays.get("y")
    if labels is not None and len(edges) and labels.shape != (int(edges.max()) + 1,):
        raise DataError(
            f"{path} has {labels.shape[0]} classes in `y` for {int(edges.max()) + 1} nodes. Leave `y` out, or give one"
            " class for each node."
        )
    return None, edges.astype(np.int64), None if labels is None else labels.astype(np.int64)


def _connected(edges: Int64Array, nodes: int) -> bool:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    adjacency = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(nodes, nodes))
    return int(connected_components(adjacency, directed=False)[0]) == 1
