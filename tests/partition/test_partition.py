"""Partitions: every row belongs to exactly one client, and each kind has its documented sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import labelled

from raydr.arrays import Int64Array
from raydr.data import Table
from raydr.data.sampling import stream
from raydr.errors import DataError, RaydrError, ScenarioError
from raydr.partition import (
    IID,
    PARTITIONS,
    Balanced,
    ByColumn,
    Dirichlet,
    OneClass,
    Partition,
    Pointwise,
    Shards,
    balanced,
)

seeds = st.integers(0, 2**40)
label_arrays = st.builds(
    lambda sizes, seed: np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes)),
    st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(any),
    st.integers(0, 1000),
)
"""Class codes in any order; some classes have no rows, some have one."""

many = settings(max_examples=75)


def deal(table: Table, kind: str, *, clients: int | None = None, seed: int = 0, **options: Any) -> Partition:
    """Deal a table as a scenario with these partition settings does."""
    if kind == "by-column":
        options = {"column": "ward"} | options
    return PARTITIONS[kind](**options).deal(table, clients, seed)


def check_accounts(partition: Partition, rows: int) -> None:
    """Check that every row is held once, by the client that ``client_of_row`` names."""
    held = [partition.rows_of(client) for client in range(partition.count)]
    np.testing.assert_array_equal(np.sort(np.concatenate(held)), np.arange(rows))
    assert partition.sizes.tolist() == [len(index) for index in held]
    assert partition.sizes.sum() == rows
    for client, index in enumerate(held):
        assert index.dtype == np.int64
        assert (np.diff(index) > 0).all()
        assert (partition.client_of_row[index] == client).all()


def classes_of(partition: Partition, labels: Int64Array) -> list[set[int]]:
    return [set(labels[partition.rows_of(client)].tolist()) for client in range(partition.count)]


@given(rows=st.integers(1, 300), share=st.floats(0, 1), seed=seeds)
@many
def test_iid_sizes_differ_by_at_most_one(rows: int, share: float, seed: int) -> None:
    clients = 1 + round(share * (rows - 1))
    partition = IID().deal(labelled(np.zeros(rows, np.int64)), clients, seed)
    check_accounts(partition, rows)
    assert partition.count == clients
    assert partition.sizes.max() - partition.sizes.min() <= 1


@given(
    labels=label_arrays,
    clients=st.integers(1, 150),
    alpha=st.floats(0.001, 1e6),
    least=st.integers(0, 3),
    seed=seeds,
)
@settings(max_examples=60)
def test_dirichlet_deals_all_rows_or_refuses(
    labels: Int64Array, clients: int, alpha: float, least: int, seed: int
) -> None:
    try:
        partition = Dirichlet(alpha=alpha, min_rows=least).deal(labelled(labels), clients, seed)
    except DataError:
        assert least > 0
        return
    check_accounts(partition, len(labels))
    assert partition.count == clients
    assert partition.sizes.min() >= least


@given(labels=label_arrays, share=st.floats(0, 1), alpha=st.floats(0.001, 1e6), seed=seeds)
@many
def test_balanced_clients_differ_by_at_most_one_row(
    labels: Int64Array, share: float, alpha: float, seed: int
) -> None:
    clients = 1 + round(share * (len(labels) - 1))
    partition = Balanced(alpha=alpha).deal(labelled(labels), clients, seed)
    check_accounts(partition, len(labels))
    assert partition.count == clients
    assert partition.sizes.max() - partition.sizes.min() <= 1


@given(
    counts=st.lists(st.lists(st.integers(0, 30), min_size=4, max_size=4), min_size=1, max_size=5), seed=seeds
)
@many
def test_feasible_mixtures_are_reproduced(counts: list[list[int]], seed: int) -> None:
    """Their sums are the rows of each class and the rows of each client."""
    mixtures = np.array(counts)
    taken = balanced._taken(
        mixtures.astype(float), mixtures.sum(axis=0), mixtures.sum(axis=1), np.random.default_rng(seed)
    )
    np.testing.assert_array_equal(taken, mixtures)


def test_class_shares_of_balanced_clients_vary_like_dirichlet() -> None:
    labels = np.repeat(np.arange(10), 1000)
    shares = [
        np.bincount(Balanced(alpha=0.5).deal(labelled(labels), 20, seed).client_of_row[:1000], minlength=20)
        for seed in range(200)
    ]
    # Beta(0.5, 9.5), as Dirichlet's: mean 1/20, variance 0.05 * 0.95 / 11, less for what equal sizes take off.
    np.testing.assert_allclose(np.mean(shares), 50)
    assert 0.5 < np.var(np.array(shares) / 1000) / (0.05 * 0.95 / 11) < 1.0


@pytest.mark.parametrize(("alpha", "least", "most"), [(0.05, 0.6, 1.0), (0.5, 0.3, 0.45), (1e6, 0.1, 0.11)])
def test_balanced_alpha_ranges_from_few_classes_to_equal_shares(
    alpha: float, least: float, most: float
) -> None:
    """Measure the share of a client's most common class, among ten classes of one size."""
    labels = np.repeat(np.arange(10), 300)
    partition = Balanced(alpha=alpha).deal(labelled(labels), 20, 0)
    held = [np.bincount(labels[partition.rows_of(client)]).max() / 150 for client in range(20)]
    assert least <= np.mean(held) <= most


@given(labels=label_arrays, clients=st.integers(1, 40), classes=st.integers(1, 6), seed=seeds)
@many
def test_shards_give_every_client_exactly_its_classes(
    labels: Int64Array, clients: int, classes: int, seed: int
) -> None:
    counts = np.unique(labels, return_counts=True)[1]
    possible = (
        clients <= len(labels)
        and classes <= len(counts) <= clients * classes <= np.minimum(clients, counts).sum()
    )
    if not possible:
        with pytest.raises(DataError):
            Shards(classes=classes).deal(labelled(labels), clients, seed)
        return
    partition = Shards(classes=classes).deal(labelled(labels), clients, seed)
    check_accounts(partition, len(labels))
    assert [len(held) for held in classes_of(partition, labels)] == [classes] * clients


def test_shards_of_a_class_are_never_more_than_the_clients() -> None:
    labels = np.repeat(np.arange(2), [100, 5])
    assert classes_of(Shards(classes=2).deal(labelled(labels), 2, 0), labels) == [{0, 1}, {0, 1}]


def test_shards_of_equal_classes_are_equal() -> None:
    labels = np.repeat(np.arange(10), 60)
    partition = Shards(classes=3).deal(labelled(labels), 20, 0)
    assert partition.sizes.tolist() == [30] * 20


@given(labels=label_arrays, parts=st.integers(1, 5), seed=seeds)
@many
def test_one_class_clients_hold_even_parts_of_one_class(labels: Int64Array, parts: int, seed: int) -> None:
    present, counts = np.unique(labels, return_counts=True)
    names = "abcdef"
    if counts.min() < parts:
        with pytest.raises(DataError):
            OneClass().deal(labelled(labels, names), parts * len(present), seed)
        return
    partition = OneClass().deal(labelled(labels, names), parts * len(present), seed)
    check_accounts(partition, len(labels))
    held = classes_of(partition, labels)
    assert all(len(classes) == 1 for classes in held)
    assert [name[0] for name in partition.names] == [names[classes.pop()] for classes in held]
    for code in present:
        sizes = np.bincount(partition.client_of_row[labels == code])
        sizes = sizes[sizes > 0]
        assert len(sizes) == parts
        assert sizes.max() - sizes.min() <= 1


@given(keys=label_arrays)
@many
def test_by_column_follows_the_column(keys: Int64Array) -> None:
    table = replace(labelled(keys), client_keys=keys, client_names=tuple("abcdef"))
    partition = ByColumn(column="ward", min_rows=0).deal(table, None, 0)
    check_accounts(partition, len(keys))
    np.testing.assert_array_equal(partition.client_of_row, keys)
    assert partition.names == tuple("abcdef")


@given(rows=st.integers(1, 200))
@many
def test_pointwise_clients_hold_one_row_each(rows: int) -> None:
    partition = Pointwise().deal(
        replace(labelled(np.zeros(rows, np.int64)), ids=np.arange(rows) + 7), None, 0
    )
    check_accounts(partition, rows)
    assert partition.sizes.tolist() == [1] * rows
    assert partition.names[0] == "7"


@pytest.fixture
def table() -> Table:
    rng = np.random.default_rng(0)
    return Table(
        name="wards",
        rows=rng.random((60, 2)),
        features=("a", "b"),
        ids=np.arange(60),
        labels=np.arange(60) % 3,
        label_names=("x", "y", "z"),
        client_keys=np.arange(60) % 4,
        client_names=("n", "e", "s", "w"),
    )


DRAWN: list[dict[str, Any]] = [
    {"kind": "iid", "clients": 5},
    {"kind": "dirichlet", "clients": 5, "alpha": 0.5},
    {"kind": "balanced", "clients": 5, "alpha": 0.5},
    {"kind": "shards", "clients": 6, "classes": 2},
    {"kind": "one-class", "clients": 6},
]


@pytest.mark.parametrize("options", DRAWN, ids=lambda options: str(options["kind"]))
def test_seed_determines_the_partition(table: Table, options: dict[str, Any]) -> None:
    owners = [deal(table, seed=seed, **options).client_of_row for seed in (1, 1, 2)]
    np.testing.assert_array_equal(owners[0], owners[1])
    assert not np.array_equal(owners[0], owners[2])


@pytest.mark.parametrize("options", DRAWN, ids=lambda options: str(options["kind"]))
def test_one_client_can_hold_all_rows(table: Table, options: dict[str, Any]) -> None:
    if options["kind"] == "one-class":
        options = options | {"clients": 3}
    elif options["kind"] == "shards":
        options = options | {"clients": 1, "classes": 3}
    else:
        options = options | {"clients": 1}
    check_accounts(deal(table, **options), 60)


def test_streams_differ_by_purpose_and_seed_only() -> None:
    draws = {
        (seed, purpose): stream(seed, purpose).integers(2**62)
        for seed in (0, 1, 2**40)
        for purpose in ("partition", "sub-sample")
    }
    assert len(set(draws.values())) == len(draws)
    assert stream(1, "partition").integers(2**62) == draws[1, "partition"]


def test_kinds_fixed_by_the_data_need_no_count(table: Table) -> None:
    assert deal(table, "by-column").names == ("n", "e", "s", "w")
    assert deal(table, "one-class").names == ("x", "y", "z")
    assert deal(table, "one-class", clients=6).names == ("x/0", "x/1", "y/0", "y/1", "z/0", "z/1")
    assert deal(table, "pointwise").count == 60


def test_dirichlet_alpha_ranges_from_whole_classes_to_equal_shares() -> None:
    labels = np.repeat(np.arange(4), 250)
    even = Dirichlet(alpha=1e6, min_rows=1).deal(labelled(labels), 5, 0)
    skewed = Dirichlet(alpha=1e-3, min_rows=0).deal(labelled(labels), 5, 0)
    for code in range(4):
        assert np.abs(np.bincount(even.client_of_row[labels == code], minlength=5) - 50).max() <= 1
        assert np.bincount(skewed.client_of_row[labels == code]).max() > 200


def test_dirichlet_shares_have_the_moments_of_the_distribution() -> None:
    """A class's share at a client is Beta(alpha, (clients - 1) alpha): mean 1/4, variance 3/16/(4 alpha + 1).

    It does not depend on the number of classes.
    """
    for classes in (1, 5):
        labels = np.repeat(np.arange(classes), 1000)
        shares = np.array(
            [
                np.bincount(
                    Dirichlet(alpha=0.5, min_rows=0).deal(labelled(labels), 4, seed).client_of_row[:1000],
                    minlength=4,
                )
                for seed in range(400)
            ]
        )
        np.testing.assert_allclose(shares.mean(axis=0) / 1000, 0.25, atol=0.05)
        np.testing.assert_allclose((shares / 1000).var(), 0.1875 / 3, rtol=0.1)


def test_rows_within_a_class_are_shuffled() -> None:
    """A client's rows of a class are not consecutive in the file."""
    labels = np.zeros(400, dtype=np.int64)
    for partition in (
        Dirichlet(alpha=1e3, min_rows=1).deal(labelled(labels), 2, 0),
        Balanced(alpha=1e3).deal(labelled(labels), 2, 0),
        Shards(classes=1).deal(labelled(labels), 2, 0),
        OneClass().deal(labelled(labels, ["x"]), 2, 0),
        IID().deal(labelled(labels), 2, 0),
    ):
        changes = np.count_nonzero(np.diff(partition.client_of_row))
        assert 150 < changes < 250


@pytest.mark.parametrize(
    ("kind", "options", "error", "message"),
    [
        ("iid", {"clients": 61}, DataError, "at most 60"),
        ("iid", {"clients": 0}, ScenarioError, "expected at least 1"),
        ("iid", {}, ScenarioError, "clients.count"),
        ("dirichlet", {"clients": 61}, DataError, "at most 60"),
        ("dirichlet", {"clients": 5, "min_rows": 13}, DataError, "lower clients.count to at most 4"),
        ("dirichlet", {"clients": 20, "alpha": 0.001}, DataError, "In 1000 draws"),
        ("dirichlet", {"clients": 5, "alpha": 1e-4}, ScenarioError, "between 0.001 and 1e6"),
        ("balanced", {"clients": 61}, DataError, "at most 60"),
        ("balanced", {}, ScenarioError, "clients.count"),
        ("balanced", {"clients": 5, "alpha": 1e7}, ScenarioError, "between 0.001 and 1e6"),
        ("shards", {"clients": 61}, DataError, "at most 60"),
        ("shards", {"clients": 5, "classes": 4}, DataError, "have only 3"),
        ("shards", {"clients": 1, "classes": 2}, DataError, "clients.count to at least 2"),
        ("shards", {"clients": 60, "classes": 2}, DataError, "cut into only 60"),
        ("one-class", {"clients": 4}, DataError, "Set it to 3 or 6"),
        ("one-class", {"clients": 2}, DataError, "Set it to 3,"),
        ("one-class", {"clients": 63}, DataError, "at most 60"),
        ("by-column", {"clients": 3}, DataError, "names 4 clients"),
        ("by-column", {"min_rows": 16}, DataError, "fewer than 16 rows: 'n', 'e', 's', 'w'"),
        ("pointwise", {"clients": 3}, DataError, "60 here"),
    ],
)
def test_impossible_partition_error_gives_the_numbers(
    table: Table, kind: str, options: dict[str, Any], error: type[RaydrError], message: str
) -> None:
    with pytest.raises(error) as caught:
        deal(table, kind, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_class_with_fewer_rows_than_clients_is_refused() -> None:
    with pytest.raises(DataError, match="class 'rare' has 1"):
        OneClass().deal(labelled(np.array([0, 0, 0, 0, 1]), ["common", "rare"]), 4, 0)


def test_client_without_rows_is_refused_unless_allowed(table: Table) -> None:
    fewer = table.take(np.flatnonzero(table.client_keys != 2))
    with pytest.raises(DataError, match=r"1 of 4 clients have fewer than 1 row: 's'.*min_rows"):
        deal(fewer, "by-column")
    partition = deal(fewer, "by-column", min_rows=0)
    assert partition.sizes.tolist() == [15, 15, 0, 15]
    assert partition.rows_of(2).shape == (0,)
    check_accounts(partition, 45)


def test_classes_without_rows_get_no_client(table: Table) -> None:
    assert deal(table.take(np.flatnonzero(table.labels != 1)), "one-class").names == ("x", "z")


@pytest.mark.parametrize("kind", ["dirichlet", "balanced", "shards", "one-class", "by-column"])
def test_table_without_the_required_column_is_refused(kind: str) -> None:
    bare = Table(name="bare", rows=np.eye(4), features=tuple("abcd"), ids=np.arange(4))
    count = {"clients": 2} if kind in ("dirichlet", "balanced", "shards") else {}
    with pytest.raises(DataError, match=r"data\.label|clients\.partition\.column"):
        deal(bare, kind, **count)


@pytest.mark.parametrize(
    ("owners", "names", "message"),
    [
        (np.array([0, 2]), ("a", "b"), "0 to 1"),
        (np.array([0, -1]), ("a", "b"), "-1"),
        (np.array([0.0, 1.0]), ("a", "b"), "int64"),
        (np.array([[0], [1]]), ("a", "b"), "shape"),
        (np.array([0, 1]), ("a", "a"), "distinct"),
        (np.array([], dtype=np.int64), (), "at least one client"),
    ],
)
def test_owners_that_do_not_exist_are_refused(owners: Any, names: tuple[str, ...], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Partition(owners, names)


def test_unknown_client_index_is_refused() -> None:
    partition = IID().deal(labelled(np.zeros(4, np.int64)), 2, 0)
    for client in (-1, 2):
        with pytest.raises(IndexError, match="numbered 0 to 1"):
            partition.rows_of(client)
