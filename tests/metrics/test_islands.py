"""Islands of a map: their number, groups, and error rate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from raydr.arrays import Float64Array
from raydr.embedding.initialization import principal_components
from raydr.embedding.umap import UMAP
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Points
from raydr.metrics import Evidence
from raydr.metrics.islands import (
    LEAST_ROWS,
    MOST_ROWS,
    islands,
    islands_of_map,
    one_cluster,
    separate_groups,
    valleys,
)


def clumps(*sizes: int, apart: float = 12.0) -> Float64Array:
    """Return places around centres on a line, one after another."""
    random = np.random.default_rng(1)
    number = np.repeat(np.arange(len(sizes)), sizes)
    return np.asarray(random.normal(size=(number.size, 2)) + np.outer(number, [apart, 0]))


def test_islands_of_a_map_are_counted_and_sorted() -> None:
    island = islands_of_map(clumps(60, 100, 40))
    assert island.tolist() == [1] * 60 + [0] * 100 + [2] * 40


def test_even_map_is_one_island() -> None:
    places = np.stack(np.meshgrid(np.arange(12.0), np.arange(12.0)), axis=-1).reshape(-1, 2)
    assert not islands_of_map(places).any()


def test_islands_of_one_cluster_are_one_group_and_those_of_two_clusters_are_two() -> None:
    # The map draws three islands. In the data, the second and third are halves of one cluster.
    random = np.random.default_rng(0)
    rows = random.normal(size=(300, 6))
    rows[:100, 0] += 9
    third = np.flatnonzero(rows[100:, 1] > 0) + 100
    places = random.normal(size=(300, 2))
    places[:100, 0] += 30
    places[third, 0] -= 30
    found = islands(Evidence(rows=rows, embedding=places))
    assert found is not None
    assert found.rows == 300
    assert sum(island.rows for island in found.found) == 300
    alone = [island for island in found.found if island.separate]
    assert [(island.rows, round(island.center[0] / 30)) for island in alone] == [(100, 1)]
    assert len({island.group for island in found.found}) == 2
    assert {island.p for island in found.found} == {1 / 40}


def test_halves_of_noise_have_a_large_p_value() -> None:
    random = np.random.default_rng(3)
    rows = random.normal(size=(200, 5))
    group, p = separate_groups(rows, (rows[:, 0] > 0).astype(np.int64), random)
    assert group.tolist() == [0, 0]
    assert p.min() > 0.5


def test_a_valley_is_as_deep_as_its_bands_say() -> None:
    # The means are at 0 and 1 in all halves, all rows are in the outer bands, and the depth is 40 / sqrt(40 + 1).
    rows = np.repeat([0.0, 1.0], [40, 60])[:, None] + np.tile([-0.1, -0.1, 0.1, 0.1], 25)[:, None]
    part = np.repeat([0, 1], [40, 60])
    depth = valleys(rows, part, np.random.default_rng(0))
    assert depth == pytest.approx(np.array([[0, 40 / np.sqrt(41)], [40 / np.sqrt(41), 0]]))


def test_one_cluster_keeps_forms_and_correlations() -> None:
    random = np.random.default_rng(0)
    two = np.repeat([-3.0, 3.0], 500) + random.normal(size=1000)
    rows = np.column_stack([two, two + random.normal(size=1000)])
    drawn = one_cluster(rows)(random)
    assert drawn.std(axis=0) == pytest.approx(rows.std(axis=0), rel=0.2)
    assert np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1] > 0.8
    middle = np.abs(rows[:, 0]) < 1
    assert (np.abs(drawn[:, 0]) < 1).sum() > 3 * middle.sum()  # the valley of the column is filled


def test_few_rows_and_other_distances_are_not_tested() -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(LEAST_ROWS, 3))
    evidence = Evidence(rows=rows, embedding=rows[:, :2])
    assert islands(evidence) is not None
    assert islands(replace(evidence, truth=Points(rows))) is None
    assert islands(replace(evidence, mapped=Points(rows))) is None
    assert islands(Evidence(rows=rows[1:], embedding=rows[1:, :2])) is None


def test_many_rows_are_sampled() -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(MOST_ROWS + 1_000, 2))
    rows[::2, 0] += 12
    found = islands(Evidence(rows=rows, embedding=rows))
    assert found is not None
    assert found.rows == sum(island.rows for island in found.found) == MOST_ROWS
    assert [island.separate for island in found.found] == [True, True]


def test_columns_of_few_values_separate_no_islands() -> None:
    random = np.random.default_rng(0)
    rows = np.column_stack([random.normal(size=(200, 3)), np.repeat([0.0, 9.0], [120, 80])])
    found = islands(Evidence(rows=rows, embedding=clumps(120, 80)))
    assert found is not None
    assert [(island.rows, island.group, island.separate) for island in found.found] == [
        (120, 0, False),
        (80, 0, False),
    ]
    assert found.left_out == 1
    rows[120:, 0] += 9  # in a column of many values
    found = islands(Evidence(rows=rows, embedding=clumps(120, 80)))
    assert found is not None
    assert [island.separate for island in found.found] == [True, True]
    assert islands(Evidence(rows=rows[:, 3:], embedding=clumps(120, 80))) is None


def test_a_gap_along_a_chain_of_islands_counts_less_than_between_two() -> None:
    # Twelve islands of 50 rows in one line, and 2 rows halfway between the first two instead of 15.
    position = np.arange(600) / 50
    halfway = np.flatnonzero(np.abs(position - 1) < 0.15)
    position = np.delete(position, np.setdiff1d(halfway, halfway[[4, 10]]))
    rows = np.column_stack([position, 0.1 * np.random.default_rng(0).normal(size=position.size)])
    island = position.astype(np.int64)
    assert valleys(rows, island, np.random.default_rng(1))[0, 1] == pytest.approx(2.7, abs=0.3)
    chain, _ = separate_groups(rows, island, np.random.default_rng(1))
    two, p = separate_groups(rows[island < 2], island[island < 2], np.random.default_rng(1))
    assert chain.tolist() == [0] * 12
    assert two.tolist() == [0, 1]
    assert p.max() < 0.05


@pytest.mark.slow
def test_umap_of_noise_has_separate_islands_in_at_most_five_of_100_maps() -> None:
    wrong = 0
    for seed in range(100):
        rows = np.random.default_rng(seed).normal(size=(300, 10))
        graph = nearest_neighbors(Points(rows), UMAP().neighbors_needed(300))
        places = UMAP().embed(graph, principal_components(rows), seed=seed)
        found = islands(Evidence(rows=rows, embedding=places, seed=seed))
        assert found is not None
        wrong += any(island.separate for island in found.found)
    assert wrong <= 5
