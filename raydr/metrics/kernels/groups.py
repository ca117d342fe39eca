"""Random walks over shared neighbours, HDBSCAN of a group of rows, and the distortion between its clusters.

Similarities are sparse matrices (rows, rows) as three arrays: ``starts`` (rows + 1,), ``columns`` and ``values``
(entries,). The distance of two rows is 1 / (similarity + `ALPHA`). All sums are in zadu's order, so that
the scores have its bits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from raydr.arrays import Float64Array, Int64Array, IntArray
from raydr.compiled import compiled

ALPHA = 0.1
"""Number added to similarities, so that distances are finite."""
SMALLEST = 5
"""Rows in HDBSCAN's smallest cluster. A row's core distance is that to its row of this rank."""


def _walk(
    random: np.random.Generator,
    first: int,
    neighbors: Int64Array,
    similarities: Float64Array,
    visited: Int64Array,
) -> int:
    """Walk from a row to its neighbours and on, breadth first; return how many rows are in ``visited``.

    A step to a neighbour happens with the probability of its similarity, both (rows, k). The walk ends after
    ``visited.size - k`` steps, and completes the neighbours of its row. Rows can repeat.
    """
    k = neighbors.shape[1]
    visited[0] = first
    count, at = 1, 0
    while at < count and count <= visited.size - k - 1:
        row = visited[at]
        at += 1
        for place in range(k):
            if random.random() > 1.0 - similarities[row, place]:
                visited[count] = neighbors[row, place]
                count += 1
    return count


def _largest_difference(
    starts: IntArray,
    columns: IntArray,
    values: Float64Array,
    other_starts: IntArray,
    other_columns: IntArray,
    other_values: Float64Array,
) -> float:
    """Return by how much the distance of two rows in the first matrix exceeds that in the other at most, or 0."""
    similar = np.zeros(starts.size - 1)
    largest = 0.0
    for row in range(starts.size - 1):
        for at in range(starts[row], starts[row + 1]):
            similar[columns[at]] = values[at]
        # Pairs that only the first matrix has are nearer in it.
        for at in range(other_starts[row], other_starts[row + 1]):
            apart = 1.0 / (similar[other_columns[at]] + ALPHA) - 1.0 / (other_values[at] + ALPHA)
            largest = max(largest, apart)
        for at in range(starts[row], starts[row + 1]):
            similar[columns[at]] = 0.0
    return largest


def _spanning_tree(
    members: Int64Array,
    starts: IntArray,
    columns: IntArray,
    values: Float64Array,
    ends: Int64Array,
    lengths: Float64Array,
) -> None:
    """Fill the minimum spanning tree of a group by mutual reachability: ``ends`` (members - 1, 2) and ``lengths``.

    The mutual reachability of two rows is the largest of their distance and their core distances (Campello et al.
    2013). The tree grows from the first of ``members`` (members,), by Prim's algorithm.
    """
    size = members.size
    place = np.full(starts.size - 1, -1)
    for at in range(size):
        place[members[at]] = at
    distances = np.full((size, size), 1.0 / (0.0 + ALPHA))
    core = np.empty(size)
    nearest = np.empty(size)
    rank = min(SMALLEST, size - 1)
    for at in range(size):
        row = members[at]
        for entry in range(starts[row], starts[row + 1]):
            other = place[columns[entry]]
            if other >= 0:
                distances[at, other] = 1.0 / (values[entry] + ALPHA)
        distances[at, at] = 0.0
        nearest[: rank + 1] = np.inf
        for other in range(size):
            held = rank
            if distances[at, other] < nearest[rank]:
                while held > 0 and nearest[held - 1] > distances[at, other]:
                    nearest[held] = nearest[held - 1]
                    held -= 1
                nearest[held] = distances[at, other]
        core[at] = nearest[rank]
    inside = np.zeros(size, np.bool_)
    nearest[:] = np.inf
    source = np.zeros(size, np.int64)
    current = 0
    for edge in range(size - 1):
        inside[current] = True
        shortest, end = np.inf, 0
        for other in range(size):
            if inside[other]:
                continue
            reach = max(distances[current, other], core[current], core[other])
            if reach < nearest[other]:
                nearest[other] = reach
                source[other] = current
            if nearest[other] < shortest:
                shortest, end = nearest[other], other
        ends[edge, 0], ends[edge, 1] = source[end], end
        lengths[edge] = shortest
        current = end


def _link(ends: Int64Array, children: Int64Array, sizes: Int64Array) -> None:
    """Fill the single-linkage tree of edges (rows - 1, 2) in ascending order: ``children`` and ``sizes`` of each node.

    The first nodes are the rows, and the last is the root.
    """
    rows = ends.shape[0] + 1
    top = np.arange(sizes.size)
    sizes[:rows] = 1
    for edge in range(rows - 1):
        node = rows + edge
        for side in range(2):
            at = ends[edge, side]
            while top[at] != at:
                top[at] = top[top[at]]
                at = top[at]
            children[node, side] = at
        for side in range(2):
            top[children[node, side]] = node
            sizes[node] += sizes[children[node, side]]


def _condense(
    children: Int64Array,
    sizes: Int64Array,
    lengths: Float64Array,
    owner: Int64Array,
    left: Float64Array,
    parents: Int64Array,
    parts: Int64Array,
    born: Float64Array,
    stability: Float64Array,
) -> int:
    """Condense a single-linkage tree to clusters; return their number. The first is the root.

    A cluster ends where it splits into two of at least `SMALLEST` rows. Densities are inverse distances.
    ``owner`` and ``left`` (rows,) are filled with the last cluster of each row, and the density at which the row
    leaves it. The others (clusters,) are filled with the cluster from which each was split, the first of the
    two that it splits into or 0, the density of its start, and its stability. The stability is the sum of (density at
    which a row leaves - density of the start) over its rows.
    """
    rows = lengths.size + 1
    cluster = np.zeros(sizes.size, np.int64)
    dropped = np.zeros(sizes.size, np.bool_)
    queue, below = np.empty(sizes.size, np.int64), np.empty(sizes.size, np.int64)
    queue[0] = sizes.size - 1
    found, at, queued = 1, 0, 1
    while at < queued:
        node = queue[at]
        at += 1
        if node < rows or dropped[node]:
            continue
        here, density = cluster[node], 1.0 / lengths[node - rows]
        splits = min(sizes[children[node, 0]], sizes[children[node, 1]]) >= SMALLEST
        if splits:
            parts[here] = found
        for side in range(2):
            child = children[node, side]
            queue[queued] = child
            queued += 1
            if splits:
                stability[here] += (density - born[here]) * sizes[child]
                cluster[child], parents[found], born[found] = found, here, density
                found += 1
            elif sizes[child] >= SMALLEST:
                cluster[child] = here
            else:
                below[0] = child
                seen, count = 0, 1
                while seen < count:
                    part = below[seen]
                    seen += 1
                    dropped[part] = True
                    if part < rows:
                        owner[part], left[part] = here, density
                        stability[here] += density - born[here]
                    else:
                        below[count], below[count + 1] = children[part, 0], children[part, 1]
                        count += 2
    return found


def _cluster_group(ends: Int64Array, lengths: Float64Array, labels: Int64Array) -> int:
    """Fill ``labels`` (rows,) from a spanning tree of ascending edges; return the number of clusters, rows alone too.

    It selects the clusters that are more stable than their parts (excess of mass), or the root, of which only the
    densest rows stay. Rows outside are clusters of their own, after the others.
    """
    rows = labels.size
    children, sizes = np.zeros((2 * rows - 1, 2), np.int64), np.zeros(2 * rows - 1, np.int64)
    link(ends, children, sizes)
    owner, left = np.zeros(rows, np.int64), np.zeros(rows)
    parents, parts = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    born, stability = np.zeros(rows), np.zeros(rows)
    count = condense(children, sizes, lengths, owner, left, parents, parts, born, stability)
    chosen = np.ones(count, np.bool_)
    for cluster in range(count - 1, -1, -1):  # parts come after their cluster
        if parts[cluster]:
            # In single precision, as in the hdbscan package.
            first = np.float32(stability[parts[cluster]])
            both = np.float64(np.float32(np.float64(first) + stability[parts[cluster] + 1]))
            if both > stability[cluster]:
                chosen[cluster] = False
                stability[cluster] = both
    selected = np.full(count, -1)
    found = 0
    for cluster in range(count):
        if cluster and selected[parents[cluster]] >= 0:
            selected[cluster] = selected[parents[cluster]]
        elif chosen[cluster]:
            selected[cluster] = found
            found += 1
    densest = born[parts[0]] if parts[0] else 0.0
    for row in range(rows):
        if owner[row] == 0:
            densest = max(densest, left[row])
    for row in range(rows):
        labels[row] = selected[owner[row]]
        if chosen[0] and left[row] < densest:
            labels[row] = -1
    for row in range(rows):
        if labels[row] < 0:
            labels[row] = found
            found += 1
    return found


def _add_similarities(
    members: Int64Array,
    bounds: Int64Array,
    number: Int64Array,
    starts: IntArray,
    columns: IntArray,
    values: Float64Array,
    totals: Float64Array,
) -> None:
    """Add the similarities of rows up to ``totals`` (clusters, clusters).

    ``members`` holds the rows cluster by cluster, from ``bounds`` (clusters + 1,) on; ``number`` (rows,) is the
    cluster of each row, or -1.
    """
    similar = np.zeros(number.size)
    reached = np.empty(number.size, np.int64)
    for cluster in range(bounds.size - 1):
        count = 0
        for at in range(bounds[cluster], bounds[cluster + 1]):
            for entry in range(starts[members[at]], starts[members[at] + 1]):
                column = columns[entry]
                if similar[column] == 0.0:
                    reached[count] = column
                    count += 1
                similar[column] += values[entry]
        for at in range(count - 1, -1, -1):
            column = reached[at]
            if number[column] >= 0:
                totals[cluster, number[column]] += similar[column]
            similar[column] = 0.0


def _distort(
    members: Int64Array,
    labels: Int64Array,
    clusters: int,
    starts: IntArray,
    columns: IntArray,
    values: Float64Array,
    other_starts: IntArray,
    other_columns: IntArray,
    other_values: Float64Array,
    largest: float,
) -> tuple[float, int]:
    """Return the distortion between the clusters of a group, and its weight, both summed over pairs of clusters.

    Only pairs count that are farther apart in the first matrix than in the other. A distortion is this
    difference over ``largest``; its weight is the product of the two sizes. ``members`` ascend.
    """
    bounds = np.zeros(clusters + 1, np.int64)
    number = np.full(starts.size - 1, -1)
    for at in range(members.size):
        bounds[labels[at] + 1] += 1
        number[members[at]] = labels[at]
    bounds = np.cumsum(bounds)
    filled = bounds.copy()
    ordered = np.empty_like(members)
    for at in range(members.size):
        ordered[filled[labels[at]]] = members[at]
        filled[labels[at]] += 1
    similar, other_similar = np.zeros((clusters, clusters)), np.zeros((clusters, clusters))
    add_similarities(ordered, bounds, number, starts, columns, values, similar)
    add_similarities(ordered, bounds, number, other_starts, other_columns, other_values, other_similar)
    distortion, weight = 0.0, 0
    for one in range(clusters):
        for other in range(one):
            pairs = (bounds[one + 1] - bounds[one]) * (bounds[other + 1] - bounds[other])
            distance = 1.0 / (similar[one, other] / pairs + ALPHA)
            apart = distance - 1.0 / (other_similar[one, other] / pairs + ALPHA)
            if apart > 0.0:
                distortion += apart / largest * pairs
                weight += pairs
    return distortion, weight


# Without fastmath, so that the scores have zadu's bits.
_compiled = compiled()
walk: Callable[..., int] = _compiled(_walk)
largest_difference: Callable[..., float] = _compiled(_largest_difference)
spanning_tree: Callable[..., None] = _compiled(_spanning_tree)
link: Callable[..., None] = _compiled(_link)
condense: Callable[..., int] = _compiled(_condense)
cluster_group: Callable[..., int] = _compiled(_cluster_group)
add_similarities: Callable[..., None] = _compiled(_add_similarities)
distort: Callable[..., tuple[float, int]] = _compiled(_distort)
