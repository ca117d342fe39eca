"""Sums in the ring equal exact sums of fractions in any order and packing."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from raydr.arrays import Int64Array, IntArray
from raydr.federation import Range, RangeError, RefusedReplyError
from raydr.federation.messages import BLOCK, LARGE
from raydr.federation.ring import RingSum, decode, fraction_bits, in_ring, resolution, split_as

LEAST_DOUBLE = 5e-324
ranges = st.one_of(
    st.floats(0, 1e300), st.sampled_from([0.0, LEAST_DOUBLE, 1e-320, 2.0**-1022, 0.5, 1.0, 2.0**52, 1e300])
)
summands = st.lists(st.tuples(st.floats(-1, 1), st.integers(1, 1000)), min_size=1, max_size=30)


def encoded(values: ArrayLike, bits: IntArray, weight: int = 1) -> Int64Array:
    """Return one client's summand in the ring."""
    ring = RingSum(np.shape(values), bits)
    ring.add(values, weight)
    return ring.total


def in_fractions(values: list[float], weights: list[int], bits: int) -> int:
    """Return the same sum in unbounded integers; ``round`` rounds halves to even."""
    scale = Fraction(2) ** bits
    return sum(weight * round(Fraction(value) * scale) for value, weight in zip(values, weights, strict=True))


@given(largest=ranges, parts=summands, data=st.data())
def test_sums_equal_exact_fractions_in_any_order_and_packing(
    largest: float, parts: list[tuple[float, int]], data: st.DataObject
) -> None:
    values = [share * largest for share, _ in parts]
    weights = [weight for _, weight in parts]
    bits = fraction_bits(largest, sum(weights))
    order = data.draw(st.permutations(range(len(values))))
    hosts = [RingSum((), bits) for _ in range(data.draw(st.integers(1, 4)))]
    for client in order:
        host = hosts[data.draw(st.integers(0, len(hosts) - 1))]
        host.add(values[client], weights[client])
    total = np.add.reduce([host.total for host in hosts])
    assert int(total) == in_fractions(values, weights, int(bits))


@given(largest=ranges, parts=summands)
def test_sum_is_within_its_resolution(largest: float, parts: list[tuple[float, int]]) -> None:
    values = [share * largest for share, _ in parts]
    weights = [weight for _, weight in parts]
    bits = fraction_bits(largest, sum(weights))
    ring = RingSum((), bits)
    for value, weight in zip(values, weights, strict=True):
        ring.add(value, weight)
    exact = sum(
        (Fraction(value) * weight for value, weight in zip(values, weights, strict=True)), Fraction(0)
    )
    resolution = Fraction(2) ** -int(bits)
    decoded = Fraction(float(decode(ring.total, bits)))
    assert abs(decoded - exact) <= sum(weights) * resolution / 2 + abs(exact) * Fraction(2) ** -52


@given(largest=st.floats(1e-280, 1e290), weight=st.integers(1, 10**9))
def test_resolution_is_as_fine_as_the_ring_allows(largest: float, weight: int) -> None:
    bits = int(fraction_bits(largest, weight))
    whole = Fraction(largest) * weight * Fraction(2) ** bits
    assert Fraction(2) ** 60 < whole <= Fraction(2) ** 62


@given(largest=ranges, weight=st.integers(1, 10**7), sign=st.sampled_from([-1.0, 1.0]))
def test_sum_at_the_edge_of_its_range_does_not_wrap(largest: float, weight: int, sign: float) -> None:
    bits = fraction_bits(largest, weight)
    total = encoded(sign * largest, bits, weight)
    assert int(total) == in_fractions([sign * largest], [weight], int(bits))
    assert abs(int(total)) < 2**63
    exact = float(Fraction(sign * largest) * weight)
    rounded = weight * 2.0 ** -int(bits)
    np.testing.assert_allclose(decode(total, bits), exact, rtol=1e-15, atol=rounded)


@pytest.mark.parametrize("ring", [16, 32])
@pytest.mark.parametrize("clients", [1, 7, 300])
def test_truncated_sums_of_rounded_summands_are_unbiased(ring: int, clients: int) -> None:
    """The sum of the last bits, in any packing, is that of the products rounded up or down."""
    random = np.random.default_rng(clients)
    weights, size = random.integers(1, 50, clients), 2 * BLOCK + 3
    values = random.uniform(-1.0, 1.0, (clients, 1)) * np.ones(size, np.float32)
    bits = fraction_bits(1.0, int(weights.sum()), ring)
    whole, parts = RingSum((size,), bits), []
    for client, weight in enumerate(weights):
        alone = RingSum((size,), bits)
        for each in (whole, alone):
            each.add_at_random(values[client], int(weight), np.random.default_rng(client))
        parts.append(in_ring(alone.total, ring))
    total = np.add.reduce(parts, dtype=parts[0].dtype)
    np.testing.assert_array_equal(total, whole.total)
    errors = total - np.ldexp(weights @ values.astype(np.float64), bits)
    assert np.abs(errors).max() < clients
    assert abs(errors.mean()) < 6.0 * 0.5 * math.sqrt(clients / size)


def test_masks_are_truncated_with_the_sum() -> None:
    random = np.random.default_rng(0)
    total = random.integers(-(2**14), 2**14, 1000)
    masks = random.integers(-(2**63), 2**63 - 1, 1000)
    sent = in_ring(total + masks, 16)
    assert sent.dtype == np.int16
    np.testing.assert_array_equal(in_ring(sent.astype(np.int64) - masks, 16), total)


def test_summands_at_the_edge_of_a_narrow_ring_do_not_wrap() -> None:
    """2^14 - 1 clients, each rounded up by almost 1."""
    clients = 2**14 - 1
    bits = fraction_bits(1.0, clients, 16)
    ring = RingSum((1,), bits)
    for client in range(clients):
        ring.add_at_random([1.0], 1, np.random.default_rng(client))
    assert in_ring(ring.total, 16)[0] == ring.total[0]


def test_bits_are_limited_to_powers_of_two_that_are_doubles() -> None:
    largest = np.array([0.0, LEAST_DOUBLE, 2.0**-939, 2.0**-938, 1.7e308])
    assert fraction_bits(largest, 1).tolist() == [62, 1000, 1000, 999, -962]


def test_resolution_is_of_the_coarsest_entry() -> None:
    assert resolution(np.array([1.0, 100.0]), 3) == 2.0**-53  # 300 is below 2^9
    assert resolution(1.0, 1) == 2.0**-61


@pytest.mark.parametrize("size", [3, 2 * BLOCK + 1])
@pytest.mark.parametrize("per_entry", [False, True])
def test_a_sum_is_divided_entry_by_entry(size: int, per_entry: bool) -> None:
    bits = fraction_bits(np.linspace(1.0, 9.0, size) if per_entry else 9.0, 4)
    total = np.arange(size, dtype=np.int64) - 1
    for divisor in (1, 2, 3):
        expected = total * np.ldexp(1.0, -bits) / divisor
        np.testing.assert_array_equal(decode(total, bits, divisor), expected)


@pytest.mark.parametrize("size", [3, BLOCK + 1, LARGE])
@pytest.mark.parametrize("weight", [1, 2])
def test_common_weight_is_applied(size: int, weight: int) -> None:
    bits, values = fraction_bits(1.0, 2 * weight), np.linspace(-1.0, 1.0, size)
    ring = RingSum((size,), bits)
    for _ in range(2):
        ring.add(values, weight)
    np.testing.assert_array_equal(ring.total, 2 * weight * np.rint(np.ldexp(values, bits)).astype(np.int64))


def test_long_sum_is_split_into_its_parts() -> None:
    like = {"one": np.zeros((2, 2), np.int64), "two": np.zeros((), np.int64), "three": np.zeros(1, np.int64)}
    parts = split_as(np.arange(6), like)
    assert {name: part.tolist() for name, part in parts.items()} == {
        "one": [[0, 1], [2, 3]],
        "two": 4,
        "three": [5],
    }


def test_each_entry_of_a_range_has_its_own_resolution() -> None:
    largest = np.array([[1e-30, 1.0], [1e30, 0.0]])
    bits = fraction_bits(largest, 3)
    assert bits.shape == largest.shape
    assert bits.tolist() == [[int(fraction_bits(entry, 3)) for entry in row] for row in largest]
    np.testing.assert_allclose(decode(encoded(largest, bits, 3), bits), 3 * largest, rtol=1e-15)


def test_powers_of_two_pass_through_the_ring_unchanged() -> None:
    """The factor 2**bits must be exact on every processor."""
    bits = np.arange(-1000, 1001, dtype=np.int32)
    powers = np.array([2.0 ** -int(bit) for bit in bits])
    assert np.array_equal(encoded(powers, bits), np.ones(bits.size, np.int64))
    assert np.array_equal(decode(np.ones(bits.size, np.int64), bits), powers)


@given(total=st.integers(-(2**62), 2**62), bits=st.integers(-900, 960))
def test_decoding_rounds_once(total: int, bits: int) -> None:
    exact = Fraction(total) / Fraction(2) ** bits
    assert float(decode(np.array(total, np.int64), np.array(bits, np.int32))) == float(exact)


@pytest.mark.parametrize("shape", [(2 * BLOCK + 7,), (3, BLOCK - 1), (0, 4), (LARGE // 4 + 1, 4)])
@pytest.mark.parametrize("per_entry", [False, True])
def test_arrays_longer_than_a_block_are_summed_entry_by_entry(
    shape: tuple[int, ...], per_entry: bool
) -> None:
    random = np.random.default_rng(0)
    largest = random.uniform(1.0, 1e6, shape) if per_entry else 1.0
    bits = fraction_bits(largest, 6)
    parts = [random.uniform(-1, 1, shape) * largest for _ in range(3)]
    # The layout in memory does not matter.
    parts[0] = np.asfortranarray(parts[0])
    ring = RingSum(shape, bits)
    scale = np.ldexp(1.0, bits)
    for weight, part in zip((1, 2, 3), parts, strict=True):
        ring.add(part, weight)
    expected = sum(
        weight * np.rint(part * scale).astype(np.int64) for weight, part in zip((1, 2, 3), parts, strict=True)
    )
    assert np.array_equal(ring.total, expected)


def test_summands_are_not_changed() -> None:
    values = np.array([0.25, -0.5])
    encoded(values, fraction_bits(1.0, 5), 5)
    assert values.tolist() == [0.25, -0.5]


def test_halves_are_rounded_to_even_at_the_client() -> None:
    bits = np.array(0, np.int32)
    assert encoded([0.5, 1.5, 2.5, -0.5, -1.5], bits).tolist() == [0, 2, 2, 0, -2]


def test_counts_are_exact() -> None:
    counts = np.array([0, 1, 2**40, 2**52], np.int64)
    bits = fraction_bits(float(2**52), 100)
    assert decode(encoded(counts, bits, 100), bits).tolist() == (100 * counts).tolist()


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("largest", [math.inf, math.nan, -1.0, -LEAST_DOUBLE, 1e308])
def test_range_too_large_for_the_ring_is_refused(largest: float) -> None:
    with pytest.raises(RangeError, match="must be finite and not negative"):
        fraction_bits(largest, 100)
    with pytest.raises(RangeError):
        fraction_bits(np.array([1.0, largest]), 100)


ARRAY_BOUND = np.array([1.0, 100.0])


@pytest.mark.parametrize(
    ("declared", "value", "words"),
    [
        (Range((2,), 10.0), np.array([0.0, np.nan]), "nan"),
        (Range((2,), 10.0), np.array([np.inf, 0.0]), "inf"),
        (Range((2,), math.inf), np.array([-np.inf, 0.0]), "inf"),
        (Range((2,), math.inf), np.array([0.0, np.nan]), "nan"),
        (Range((), math.inf), math.nan, "nan"),
        (Range((2,), 10.0), np.array([0.0, 10.0 + 1e-14]), "10"),
        (Range((2,), 10.0), np.array([-10.5, 0.0]), "-10.5"),
        (Range((), 10.0), 11, "11"),
        (Range((2,), ARRAY_BOUND), np.array([1.5, 0.0]), "1.5"),
        (Range((2,), ARRAY_BOUND), np.array([0.0, -100.5]), "-100.5"),
        (Range((2,), np.array([0.0, 1.0])), np.array([LEAST_DOUBLE, 0.0]), "1 of 2"),
        (Range((2,), 0.0), np.array([LEAST_DOUBLE, 0.0]), "1 of 2"),
        (Range((2,), 1e-200), np.array([0.0, 1e-190]), "1e-190"),
        (Range((2,), 1e150), np.array([0.0, 1e200]), "1e\\+200"),
        (Range((2,), 10.0), np.zeros(3), r"shape \(3,\) instead of \(2,\)"),
        (Range((2,), 10.0), np.zeros((2, 1)), r"shape \(2, 1\)"),
        (Range((2,), 10.0), 1.0, r"shape \(\)"),
        (Range((), 10.0), np.zeros(1), r"shape \(1,\)"),
        (Range((0, 3), 10.0), np.zeros((3, 0)), r"shape \(3, 0\)"),
        (Range((2,), 10.0), np.zeros(2, np.float32), "float32 instead of float64"),
        (Range((2,), 10.0, "int64"), np.zeros(2), "float64 instead of int64"),
        (Range((2,), 10.0), np.zeros(2, np.complex128), "complex128"),
        (Range((2,), 10.0), np.array([None, None]), "object"),
    ],
)
def test_undeclared_values_are_refused(declared: Range, value: Any, words: str) -> None:
    with pytest.raises(RefusedReplyError, match=f"field .*{words}"):
        declared.check("field", value)


@pytest.mark.parametrize("size", [BLOCK + 7, LARGE])
@pytest.mark.parametrize("kind", ["float32", "float16", "int64"])
def test_numbers_of_any_type_are_summed_as_doubles(kind: str, size: int) -> None:
    values = (np.random.default_rng(0).normal(size=size) * 100).astype(kind)
    bits = fraction_bits(1e3, 5)
    assert np.array_equal(encoded(values, bits, 3), encoded(values.astype(np.float64), bits, 3))


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("weight", [1, 7])
def test_compiled_loop_equals_blockwise_sums(kind: str, weight: int) -> None:
    """Cases: halves, both zeros, the range limits, read-only arrays."""
    bits = fraction_bits(3.0, 7)
    values = np.random.default_rng(0).uniform(-3.0, 3.0, LARGE + 3)
    values[:6] = [0.0, -0.0, 3.0, -3.0, float(np.ldexp(0.5, -int(bits))), float(np.ldexp(1.5, -int(bits)))]
    values = values.astype(kind)
    by_parts = np.concatenate([encoded(part, bits, weight) for part in np.array_split(values, 8)])
    assert np.array_equal(encoded(values, bits, weight), by_parts)
    values.flags.writeable = False
    assert np.array_equal(encoded(values, bits, weight), by_parts)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("bound", [1.0, math.inf])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 1.5, None])
def test_long_arrays_are_checked_to_the_last_entry(kind: str, bound: float, wrong: float | None) -> None:
    values = np.ones(LARGE, kind)
    values[-1] = -1.0 if wrong is None else wrong
    declared = Range((LARGE,), bound, kind)
    if wrong is None or abs(wrong) <= min(bound, 1e300):
        declared.check("field", values)
    else:
        with pytest.raises(RefusedReplyError, match=f"1 of {LARGE}"):
            declared.check("field", values)


def test_least_integer_is_out_of_every_range() -> None:
    """In 64 bits, its absolute value is itself."""
    with pytest.raises(RefusedReplyError):
        Range((2,), 1.0, "int64").check("votes", np.array([0, np.iinfo(np.int64).min]))


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (Range((2,), 10.0), np.array([10.0, -10.0])),
        (Range((2,), ARRAY_BOUND), np.array([-1.0, 100.0])),
        (Range((2,), 0.0), np.array([0.0, -0.0])),
        (Range((2,), math.inf), np.array([1.7e308, -1.7e308])),
        (Range((2,), 1.0, "int64"), np.array([0, 1])),
        (Range((), 10.0), 10),
        (Range((0, 3), 10.0), np.zeros((0, 3))),
    ],
)
def test_range_limits_are_inside(declared: Range, value: Any) -> None:
    declared.check("field", value)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
@pytest.mark.parametrize("size", [1, 7, 500, 1000])
def test_short_summands_added_together_give_the_same_sum(count: int, size: int) -> None:
    """The test checks partial sums for a common scale and a scale per entry, with any weights."""
    random = np.random.default_rng(count * size)
    largest = random.uniform(0.1, 10.0, size)
    values = random.uniform(-1, 1, (count, size)) * largest
    weights = random.integers(1, 9, count)
    for bound in (largest, float(largest.max())):
        bits = fraction_bits(bound, int(weights.sum()))
        together, looked_at = RingSum((size,), bits), RingSum((size,), bits)
        for number, (row, weight) in enumerate(zip(values, weights, strict=True)):
            together.add(row, int(weight))
            looked_at.add(row, int(weight))
            if number % 5 == 0:
                _ = looked_at.total
        expected = (np.rint(values * np.ldexp(1.0, bits)).astype(np.int64) * weights[:, None]).sum(axis=0)
        np.testing.assert_array_equal(together.total, expected)
        np.testing.assert_array_equal(looked_at.total, expected)


@pytest.mark.parametrize("outside", [np.nan, np.inf, -np.inf, 2.0000001, -1e300])
@pytest.mark.parametrize("size", [1, 100])
def test_out_of_range_numbers_are_found_in_short_arrays(outside: float, size: int) -> None:
    declared = Range((size,), 2.0)
    for inside in (0.0, 2.0, -2.0):
        values = np.full(size, inside)
        declared.check("values", values)
        values[size // 2] = outside
        with pytest.raises(RefusedReplyError):
            declared.check("values", values)
