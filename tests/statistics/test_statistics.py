"""Statistics from sums equal numpy on pooled rows, and the server receives only sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_federations import cut, federate

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.errors import DataError
from raydr.federation import Client, Federation, RefusedReplyError, RefusedRequestError, Reply
from raydr.federation.exchange import Exchange
from raydr.federation.ring import fraction_bits
from raydr.federation.secure import SecureSums
from raydr.federation.sums import Total
from raydr.federation.wire import SumCall
from raydr.privacy.secrets import Secret
from raydr.statistics.moments import (
    Beyond,
    BeyondRequest,
    Histogram,
    HistogramRequest,
    Moment,
    MomentRequest,
    Spread,
    beyond_rounding,
    bisections,
    column_extremes,
    column_keys,
    column_magnitudes,
    column_sizes,
    histogram,
    median_squared_distance,
    midway,
    ordered,
    spread,
    unordered,
    vote_bits,
    wide_spread,
)

Precision: TypeAlias = type[np.float32] | type[np.float64]
LEAST_DOUBLE = 5e-324
BUNDLED = ("digits", "iris", "wine", "breast_cancer")
tables = st.lists(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=2),
    min_size=1,
    max_size=8,
)


def bundled(name: str) -> Float64Array:
    from sklearn import datasets

    return np.asarray(getattr(datasets, f"load_{name}")().data, np.float64)


def standard_deviation(rows: FloatArray) -> Float64Array:
    """Return mean and deviation in extended precision: numpy's float64 mean has errors for large offsets."""
    return np.asarray(rows.astype(np.longdouble).std(axis=0), np.float64)


@settings(max_examples=25)
@given(table=tables, clients=st.integers(1, 4), seed=st.integers(0, 99))
def test_extremes_are_exact(table: list[list[float]], clients: int, seed: int) -> None:
    rows = np.array(table)
    minimum, maximum = column_extremes(federate(cut(rows, clients, seed)))
    assert np.array_equal(minimum, rows.min(axis=0))
    assert np.array_equal(maximum, rows.max(axis=0))


@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_extremes_are_bit_identical(precision: Precision) -> None:
    limits = np.finfo(precision)
    columns = [
        [0.0, 0.0, 0.0],
        [-0.0, -0.0, -0.0],
        [-3.5, -1e-30, -7.25],
        [float(limits.smallest_subnormal), 0.0, 2 * float(limits.smallest_subnormal)],
        [-float(limits.smallest_subnormal), -float(limits.tiny), float(limits.tiny)],
        [float(limits.max), 0.0, -float(limits.max)],
        [
            1.0,
            float(np.nextafter(precision(1), precision(2))),
            float(np.nextafter(precision(1), precision(0))),
        ],
    ]
    rows = cast(FloatArray, np.array(columns, precision)).T
    minimum, maximum = column_extremes(federate([rows[:1], rows[:0], rows[1:]]))
    assert minimum.tobytes() == rows.min(axis=0).astype(np.float64).tobytes()
    assert maximum.tobytes() == rows.max(axis=0).astype(np.float64).tobytes()


@settings(max_examples=40)
@given(
    table=st.lists(st.lists(st.floats(-1e140, 1e140), min_size=2, max_size=2), min_size=1, max_size=8),
    clients=st.integers(1, 4),
)
def test_magnitudes_are_powers_of_two_above_all_values(table: list[list[float]], clients: int) -> None:
    rows = np.array(table)
    for centre in (None, np.array([1e100, -3.0])):
        largest = np.abs(rows if centre is None else rows - centre).max(axis=0)
        magnitudes = column_magnitudes(federate(cut(rows, clients, 0)), centre)
        assert np.array_equal(magnitudes == 0.0, largest == 0.0)
        assert (np.frexp(magnitudes)[0][magnitudes > 0] == 0.5).all()
        assert (magnitudes >= largest).all()
        assert (magnitudes / 2 <= largest).all()


def test_magnitudes_of_subnormal_numbers() -> None:
    rows = np.array([[LEAST_DOUBLE, 0.0, -1e-310]])
    magnitudes = column_magnitudes(federate([rows, np.zeros((4, 3))]))
    assert magnitudes.tolist() == [2 * LEAST_DOUBLE, 0.0, 2.0 ** int(np.frexp(1e-310)[1])]


@pytest.mark.parametrize("value", [1e150, -1.7e308])
def test_values_with_overflowing_squares_are_refused(value: float) -> None:
    with pytest.raises(DataError, match=r"Feature number 1 \(the first is 0\) has values of about 2"):
        spread(federate([np.array([[1.0, 2.0]]), np.array([[0.0, value]])]))


@settings(max_examples=40)
@given(
    rows=st.integers(2, 60),
    clients=st.integers(1, 6),
    exponent=st.integers(-100, 100),
    offset=st.sampled_from([0.0, 1.0, -1e3, 1e6]),
    seed=st.integers(0, 2**32),
    precision=st.sampled_from([np.float32, np.float64]),
)
def test_spread_equals_numpy_on_pooled_rows(
    rows: int,
    clients: int,
    exponent: int,
    offset: float,
    seed: int,
    precision: Precision,
) -> None:
    table = (offset + np.random.default_rng(seed).normal(size=(rows, 3))) * 2.0**exponent
    table = table.astype(precision)
    found = spread(federate(cut(table, clients, seed)))
    exact = table.astype(np.longdouble)
    unit = 2.0**exponent
    np.testing.assert_allclose(found.mean, exact.mean(axis=0), rtol=4e-16, atol=1e-15 * unit)
    np.testing.assert_allclose(found.deviation, exact.std(axis=0), rtol=1e-9)
    farthest = np.abs(table - found.mean).max(axis=0)
    assert (found.reach >= farthest).all()
    assert (found.reach <= 8 * farthest).all()


@pytest.mark.parametrize("name", BUNDLED)
@pytest.mark.parametrize("clients", [1, 7])
def test_spread_of_real_data_equals_numpy(name: str, clients: int) -> None:
    rows = bundled(name)
    found = spread(federate(cut(rows, clients, 3)))
    np.testing.assert_allclose(found.mean, rows.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.deviation, rows.std(axis=0), rtol=1e-9)


@pytest.mark.parametrize("width", [1.0, 1e-3, 1e-5])
def test_spread_is_accurate_far_from_zero(width: float) -> None:
    """The ring resolves a moment to 2^-62 of its range, so the range must be that of the column."""
    rows = 1.6e9 + width * np.random.default_rng(0).normal(size=(3000, 1))
    found = spread(federate(cut(rows, 5, 0)))
    atol = np.spacing(1.6e9) / 100  # rounding of the mean to a double
    np.testing.assert_allclose(found.deviation, standard_deviation(rows), rtol=1e-9, atol=atol)


def test_mean_of_many_rows_far_from_zero_is_exact() -> None:
    """A first sum of 8,192 rows resolves 2^-50 of the values, the second what doubles hold of them."""
    rows = 1.6e9 + np.random.default_rng(1).normal(size=(8192, 6))
    found = spread(federate(cut(rows, 5, 0))).mean
    exact = rows.astype(np.longdouble).mean(axis=0).astype(np.float64)
    np.testing.assert_allclose(found, exact, rtol=0, atol=1.01 * np.spacing(1.6e9))


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, 0.1, -1e6 / 3, 1.6e9 / 7, 1e30, 1e-300, LEAST_DOUBLE])
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_constant_column_has_zero_deviation(value: float, precision: Precision) -> None:
    rows = np.full((1001, 2), value, precision)
    rows[:, 1] = np.arange(1001)
    found = spread(federate(cut(rows, 6, 1)))
    assert found.deviation[0] == 0.0
    assert found.deviation[1] > 0.0
    np.testing.assert_allclose(found.mean[0], float(precision(value)), rtol=1e-15, atol=1e-300)


def test_column_constant_up_to_rounding_is_constant() -> None:
    """Otherwise scaling would enlarge rounding errors to deviation 1."""
    rows = np.tile([[0.3, 1.0], [0.1 + 0.2, 2.0], [0.3, 3.0]], (50, 1))
    assert rows[0, 0] != rows[1, 0]
    found = spread(federate(cut(rows, 4, 0)))
    assert found.deviation[0] == 0.0
    np.testing.assert_allclose(found.deviation[1], rows[:, 1].std(), rtol=1e-12)


def test_column_is_constant_up_to_four_roundings() -> None:
    """Two values 7 steps apart are constant; 9 steps apart they are not."""
    step, unit = np.finfo(np.float64).eps, 2.0 ** np.array([0, 10, 20])
    for steps, constant in ((7, True), (9, False)):
        column = np.array([1.0, 1.0 + steps * step] * 30)
        found = spread(federate(cut(np.outer(column, unit), 4, 0)))
        assert ((found.deviation == 0.0) == constant).all()
    zero, tiny = np.zeros(2), np.array([0.0, 1e-300])
    np.testing.assert_array_equal(beyond_rounding(tiny, zero), tiny)


def test_spread_does_not_depend_on_packing() -> None:
    parts = cut(bundled("wine"), 6, 4)
    packings: list[Sequence[int]] = [[6], [1] * 6, [2, 3, 1], [5, 1]]
    found = [spread(federate(parts, packing=packing)) for packing in packings]
    assert len({(s.mean.tobytes(), s.deviation.tobytes(), s.reach.tobytes()) for s in found}) == 1


def median_of_pairs(rows: FloatArray) -> float:
    """Return the median squared distance of all pairs of a sample of 600 rows."""
    from scipy.spatial.distance import pdist

    chosen = np.random.default_rng(0).permutation(len(rows))[:600]
    return float(np.median(pdist(rows[chosen].astype(np.float64), "sqeuclidean")))


def estimate(federation: Federation) -> float:
    return median_squared_distance(federation, spread(federation))


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("digits", 0.9, 1.2), ("iris", 0.7, 1.5), ("wine", 0.7, 1.7), ("breast_cancer", 0.7, 3.3)],
)
@pytest.mark.parametrize("standardised", [False, True])
def test_median_heuristic_is_within_its_factor(
    name: str, least: float, most: float, standardised: bool
) -> None:
    """The test uses several seeds because the synthetic rows are random."""
    rows = bundled(name)
    if standardised:
        deviation = rows.std(axis=0)
        rows = (rows - rows.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    true = median_of_pairs(rows)
    for seed in range(4):
        assert least <= estimate(federate(cut(rows, 5, seed), seed=seed)) / true <= most


def test_median_heuristic_does_not_depend_on_the_partition() -> None:
    rows = bundled("wine")
    order = np.argsort(rows[:, 0])
    estimates = {
        estimate(federate(parts)) for parts in ([rows], cut(rows, 6, 0), cut(rows, 40, 1), [rows[order]])
    }
    # up to rounding of the moments behind the synthetic rows, mostly the same bin
    assert max(estimates) <= min(estimates) * 2 ** (1 / 16) * (1 + 1e-9)


@pytest.mark.parametrize("factor", [2.0**-40, 1e-7, 3.7, 1e9])
@pytest.mark.parametrize("name", ["iris", "digits"])
def test_median_heuristic_scales_with_the_square_of_the_data(name: str, factor: float) -> None:
    rows = bundled(name)
    ratio = estimate(federate([rows * factor])) / estimate(federate([rows]))
    bin_width = 2 ** (1 / 16)
    assert factor**2 / bin_width / 1.0001 <= ratio <= factor**2 * bin_width * 1.0001


@pytest.mark.parametrize("offset", [1e3, 1.6e9])
def test_median_heuristic_does_not_depend_on_an_offset(offset: float) -> None:
    rows = np.random.default_rng(2).normal(size=(500, 4))
    here, there = estimate(federate([rows])), estimate(federate([rows + offset]))
    assert here / 1.0001 / 2 ** (1 / 16) <= there <= here * 1.0001 * 2 ** (1 / 16)


def test_median_of_equal_rows_is_zero_without_a_histogram() -> None:
    federation = federate([np.full((5, 3), 7.3), np.full((2, 3), 7.3)])
    assert estimate(federation) == 0.0
    assert "Histogram" not in {entry.kind for entry in federation.ledger.entries.values()}


def test_median_of_rows_that_reach_one_half_is_not_zero() -> None:
    """The largest expected squared distance is then 1."""
    rows = np.array([[0.2], [-0.2]])
    assert spread(federate([rows])).reach[0] == 0.5
    assert estimate(federate([rows])) > 0.01


def test_clients_without_rows_change_nothing() -> None:
    rows = bundled("iris")
    empty = rows[:0]
    alone, with_empty = federate([rows]), federate([empty, rows, empty])
    assert [edge.tolist() for edge in column_extremes(alone)] == [
        edge.tolist() for edge in column_extremes(with_empty)
    ]
    np.testing.assert_allclose(spread(with_empty).mean, spread(alone).mean, rtol=1e-15)
    np.testing.assert_allclose(spread(with_empty).deviation, spread(alone).deviation, rtol=1e-15)
    assert estimate(with_empty) == estimate(alone)


def test_server_receives_only_sums() -> None:
    """By the ledger, no reply is about one client or record, apart from client sizes."""
    federation = federate(cut(bundled("iris"), 5, 0))
    column_extremes(federation)
    estimate(federation)
    up = {
        entry.kind: (entry.granularity, entry.seen_by)
        for entry in federation.ledger.entries.values()
        if entry.direction == "up"
    }
    assert up.pop("Enrolment") == ("per-client", "server")
    assert set(up) == {"Beyond", "Moment", "Histogram"}
    assert set(up.values()) == {("aggregate", "server, which sums what each client sends")}


@pytest.mark.parametrize(
    ("found", "secure", "columns", "sums"),
    [
        (column_magnitudes, False, 4, 2),
        (column_magnitudes, True, 4, 2),
        (column_magnitudes, False, 784, 4),
        (column_extremes, False, 4, 64),
        (column_extremes, True, 4, 7),
        (column_sizes, True, 784, 22),
    ],
)
def test_the_number_of_sums_follows_from_the_number_of_columns(
    found: Callable[[Federation], object], secure: bool, columns: int, sums: int
) -> None:
    rows = np.random.default_rng(0).normal(size=(6, columns))
    federation = federate(cut(rows, 3, 0), secure=SecureSums() if secure else None)
    found(federation)
    (entry,) = [entry for entry in federation.ledger.entries.values() if entry.kind == "Beyond"]
    assert entry.count == 3 * sums
    assert entry.bytes / entry.count <= (8 if secure else 2) * max(8192, columns)


@pytest.mark.parametrize("secure", [False, True])
def test_many_bounds_in_a_message_find_what_bisection_finds(
    monkeypatch: pytest.MonkeyPatch, secure: bool
) -> None:
    parts = cut(np.random.default_rng(1).normal(size=(30, 5)) * 10.0 ** np.arange(-150, 150, 60), 4, 0)
    exact = np.concatenate(parts)
    for most in (1, 2, 5, 11):
        monkeypatch.setattr("raydr.statistics.moments.most_levels", lambda columns, most=most: most)
        federation = federate(parts, secure=SecureSums() if secure else None)
        minimum, maximum = column_extremes(federation)
        assert minimum.tobytes() == exact.min(axis=0).tobytes()
        assert maximum.tobytes() == exact.max(axis=0).tobytes()
        assert column_sizes(federation).tobytes() == np.abs(exact).max(axis=0).tobytes()
        assert (
            np.frexp(column_magnitudes(federation))[1] - 1 == np.frexp(np.abs(exact).max(axis=0))[1]
        ).all()


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(1, 6), st.data())
def test_bounds_of_a_message_are_those_of_every_path_of_a_bisection(
    one: int, other: int, levels: int, data: st.DataObject
) -> None:
    low, high = sorted((one, other))
    bounds = set(bisections(np.array([low]), np.array([high]), levels).ravel().tolist())
    wanted = data.draw(st.integers(low, high))
    for _ in range(levels):
        middle = (low + high) // 2
        assert middle in bounds
        low, high = (low, middle) if wanted <= middle else (min(middle + 1, high), high)


def test_a_site_refuses_more_votes_than_the_server_asks_for() -> None:
    keys = np.zeros(6, np.int64)
    for levels in (0, 11, 40):
        request = BeyondRequest(keys, keys + 9, levels, "exponent", np.zeros(6))
        with pytest.raises(RefusedRequestError, match="expected 1 to 10"):
            Beyond.ranges(request, 5)


def sums_of_votes(
    parts: Sequence[FloatArray], secret: int, monkeypatch: pytest.MonkeyPatch
) -> list[Int64Array]:
    """Return the sums of votes in the ring, as the server has them after it has removed the masks."""
    seen: list[Int64Array] = []

    def decoded(self: Exchange, total: Total, call: SumCall, mean: bool) -> Reply:
        if isinstance(call.request, BeyondRequest):
            seen.append(np.array(total.totals["votes"]))
        return total.decoded(call)

    federation = federate(parts, secure=SecureSums(), root=Secret(bytes([secret]) * 32))
    with monkeypatch.context() as patched:
        patched.setattr(Exchange, "decoded", decoded)
        column_magnitudes(federation)
    return seen


def test_blinded_votes_tell_only_what_follows_from_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same largest values, the server sees the same zeros, and uniform numbers elsewhere."""
    largest = np.array([[0.0, -5.0], [9.0, 70.0]])
    others = [np.array([[1.0, 0.0], [0.01, 3.0]]), np.array([[8.5, 69.0], [8.2, -64.0]])]
    alike = [
        np.concatenate(sums_of_votes([largest, other, other], secret, monkeypatch))
        for other in others
        for secret in range(8)
    ]
    drawn = np.stack(alike)
    assert ((drawn == 0) == (drawn[0] == 0)).all()
    drawn = drawn[:, drawn[0] != 0]
    assert len(np.unique(drawn)) == drawn.size
    bits = (drawn.view(np.uint64)[..., None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    for axes in ((0, 1), (0, 2), (1, 2)):
        means = bits.mean(axis=axes)
        assert np.abs(means - 0.5).max() < 7 * 0.5 / np.sqrt(bits.size / means.size)


@pytest.mark.parametrize(("clients", "bits"), [(1, 16), (2**14 - 1, 16), (2**14, 32), (2**30 - 1, 32)])
def test_sums_of_votes_are_not_rounded(clients: int, bits: int) -> None:
    assert vote_bits(clients, blinded=False) == bits
    assert fraction_bits(1.0, clients, bits) >= 0
    assert vote_bits(clients, blinded=True) == 64


def test_votes_are_not_blinded_if_the_server_reads_each_of_them() -> None:
    federation = federate([np.array([[1.0]]), np.array([[5.0]]), np.array([[6.0]])])
    votes = federation.sum(
        BeyondRequest(ordered(np.array([2.0])), ordered(np.array([2.0])), 1, "magnitude", np.zeros(1))
    ).votes
    assert votes.tolist() == [[2.0]]


def test_midway_is_the_lower_middle_of_integers() -> None:
    random, most = np.random.default_rng(0), np.iinfo(np.int64).max
    ends = np.sort(random.integers(-most - 1, most, (2, 200), endpoint=True), axis=0)
    ends = np.concatenate([ends, [[-most - 1, 3, 4, -3], [most, 5, 7, -1]]], axis=1)
    exact = [(int(low) + int(high)) // 2 for low, high in ends.T]
    assert midway(*ends).tolist() == exact


def test_order_preserving_keys_number_doubles_consecutively() -> None:
    for start in (-np.inf, -3.0, -2.0, 0.0, 1.0, 2.0, 3.0, 1e300):
        values = [np.float64(start)]
        for _ in range(3):
            values.append(np.nextafter(values[-1], np.inf))
        keys = ordered(np.array(values))
        assert np.diff(keys).tolist() == [1, 1, 1]
        assert unordered(keys).tobytes() == np.array(values).tobytes()
    assert ordered(np.array([-LEAST_DOUBLE, -0.0, 0.0, LEAST_DOUBLE])).tolist() == [-2, -1, 0, 1]


def test_summed_values_are_below_2_480() -> None:
    largest = np.nextafter(2.0**480, 0.0)
    assert column_magnitudes(federate([np.array([[largest, -1.0]])])).tolist() == [2.0**480, 2.0]
    for value, exponent in ((2.0**480, 481), (-1.7e308, 1024)):
        with pytest.raises(
            DataError, match=rf"of about 2\*\*{exponent}, and squares of values above 2\*\*480 "
        ):
            column_magnitudes(federate([np.array([[1.0, value]]), np.zeros((2, 2))]))


def test_vote_is_0_or_1() -> None:
    keys = np.zeros(3, np.int64)
    declared = Beyond.ranges(BeyondRequest(keys, keys, 2, "magnitude", np.zeros(3)), 5)["votes"]
    declared.check("votes", np.ones((3, 3), np.int64))
    with pytest.raises(RefusedReplyError, match="outside the declared range"):
        declared.check("votes", np.full((3, 3), 2))


def test_extremes_ignore_missing_values() -> None:
    rows = np.array([[np.nan, 5.0, np.nan], [-7.0, 3.0, np.nan]])
    zero = np.zeros(3)
    assert unordered(column_keys(rows, "extremes", zero)).tolist() == [-7.0, 5.0, -np.inf, 7.0, -3.0, -np.inf]
    centred = column_keys(rows, "exponent", np.array([1.0, 4.5, 0.0]))
    assert centred.tolist() == [4, 1, -1075], "8 has binary exponent 4, 1.5 has 1"


def test_moments_stay_within_powers_of_their_reach() -> None:
    reach = np.array([3.0, 0.5])
    for power in (1, 2):
        declared = Moment.ranges(MomentRequest(np.zeros(2), reach, power), 9)["mean"]
        np.testing.assert_array_equal(declared.largest, reach**power)


def test_reach_is_two_to_four_times_the_farthest_row() -> None:
    """The reach is twice a power of two above the farthest row, because the mean may move by as much."""
    for farthest in (1.0, 1.01, 1.99):
        rows = np.array([[farthest], [-farthest], [0.0], [0.0]])
        reach = spread(federate([rows])).reach[0]
        assert reach == 4.0


def test_first_spread_is_the_unit_of_the_run() -> None:
    rows = np.random.default_rng(8).normal(size=(40, 2)) * [3.0, 4.0]
    federation = federate(cut(rows, 3, 0))
    assert federation.deviation is None
    first = spread(federation).deviation
    federation.deviation = 2.0 * first
    spread(federation)
    np.testing.assert_array_equal(federation.deviation, 2.0 * first)
    assert Spread(np.zeros(2), np.array([3.0, 4.0]), np.ones(2)).width == pytest.approx(np.sqrt(12.5))
    with pytest.raises(DataError, match="All rows of all clients are equal"):
        wide_spread(federate([np.full((3, 2), 0.1)] * 2))


def test_histogram_has_16_bins_per_octave_for_64_octaves() -> None:
    steps = np.array([0, 1, 16, 1023])
    squared = 9.0 * np.exp2(-(steps + 0.5) / 16)
    rows = np.sqrt(np.concatenate([squared, [10.0, 0.0]]))[:, None]
    request = HistogramRequest(np.zeros((1, 1)), 9.0, 6)
    counts = histogram(Client(index=0, rows=rows, seed=0), request).counts
    assert np.flatnonzero(counts).tolist() == sorted([*(1024 - steps), 1025, 0])
    assert counts.sum() == 6
    empty = histogram(Client(index=0, rows=rows[:0], seed=0), request).counts
    assert empty.shape == counts.shape == (64 * 16 + 2,)
    assert not empty.any()
    declared = HistogramRequest(np.zeros((5, 2)), 9.0, 6)
    assert Histogram.ranges(declared, 3)["counts"].largest == 30.0
    assert Histogram.ranges(declared, 3)["counts"].shape == counts.shape


def test_median_equals_that_of_all_pairs_within_a_bin() -> None:
    rows = np.random.default_rng(9).normal(size=(50, 3)) * [1.0, 5.0, 0.2] + [0.0, 9.0, 0.0]
    federation = federate(cut(rows, 4, 0))
    found = spread(federation)
    noise = federation.stream("median heuristic").standard_normal((64, 3))
    made_up = found.mean + found.deviation * noise
    pairs = ((rows[:, None] - made_up) ** 2).sum(axis=2)
    median = median_squared_distance(federation, found)
    assert np.median(pairs) * (1 - 1e-9) <= median * 2 ** (1 / 64)
    assert median <= np.median(pairs) * 2 ** (1 / 16) * 1.001


def test_rows_beyond_the_reach_count_as_the_farthest() -> None:
    """The largest square is that of twice the reach of varying features; a constant feature adds nothing."""
    rows = np.random.default_rng(10).normal(size=(20, 2))
    message = Spread(np.zeros(2), np.array([0.0, 1.0]), np.array([100.0, 1e-3]))
    assert median_squared_distance(federate([rows]), message) == 4e-6
    nowhere = Spread(np.zeros(2), np.zeros(2), np.ones(2))
    assert median_squared_distance(federate([rows]), nowhere) == 0.0
