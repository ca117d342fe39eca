"""Sealed arrays: bits come back, and nothing that was changed, or is another's, does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from raydr.arrays import Float32Array, UInt8Array
from raydr.errors import RunError
from raydr.privacy.sealing import seal, sealed_size, unseal

NONCE = 12
KEY = bytes(range(32))
ADVICE = "Resume from an earlier checkpoint, or start the run anew"

keys = st.binary(min_size=32, max_size=32)
# Drawn as bits: every float32 there is, with every payload of NaN and both zeros.
patterns = arrays(np.uint32, st.integers(0, 40), elements=st.integers(0, 2**32 - 1))
SPECIAL = np.array([0x7F800001, 0xFFC12345, 0x7F800000, 0xFF800000, 0x80000000, 1], np.uint32)


def floats(bits: list[int] | np.ndarray) -> Float32Array:
    return np.array(bits, np.uint32).view(np.float32)


def nonce(sealed: UInt8Array) -> bytes:
    return sealed[:NONCE].tobytes()


@given(bits=patterns, key=keys)
@example(bits=SPECIAL, key=KEY)
@example(bits=SPECIAL[:0], key=KEY)
def test_what_was_sealed_comes_back_to_the_bit(bits: np.ndarray, key: bytes) -> None:
    values = floats(bits)
    sealed = seal(values, key)
    opened = unseal(sealed, key)
    assert opened.dtype == np.float32
    assert opened.shape == values.shape
    assert opened.tobytes() == values.tobytes()
    assert sealed.dtype == np.uint8
    assert sealed.shape == (sealed_size(values.size),)
    assert sealed.size == 12 + 4 * values.size + 16


@given(bits=patterns, key=keys)
def test_the_same_values_give_the_same_bytes(bits: np.ndarray, key: bytes) -> None:
    assert seal(floats(bits), key).tobytes() == seal(floats(bits.copy()), key).tobytes()


@given(one=patterns, other=patterns, key=keys)
# Equal as numbers, and as NaN, but not as bits.
@example(one=floats([0]).view(np.uint32), other=floats([0x80000000]).view(np.uint32), key=KEY)
@example(one=SPECIAL[:1], other=SPECIAL[1:2], key=KEY)
def test_a_nonce_never_serves_two_contents(one: np.ndarray, other: np.ndarray, key: bytes) -> None:
    same = one.tobytes() == other.tobytes()
    assert (nonce(seal(floats(one), key)) == nonce(seal(floats(other), key))) == same


def test_the_nonce_tells_nothing_to_who_has_not_the_key() -> None:
    values = floats([1, 2, 3])
    assert nonce(seal(values, KEY)) != nonce(seal(values, KEY[::-1]))


@given(bits=patterns, keys=st.lists(keys, min_size=2, max_size=2, unique=True))
def test_another_key_is_refused(bits: np.ndarray, keys: list[bytes]) -> None:
    with pytest.raises(RunError, match=f"from another client.*{ADVICE}"):
        unseal(seal(floats(bits), keys[0]), keys[1])


@pytest.mark.parametrize("count", [0, 1, 7])
def test_one_flipped_bit_anywhere_is_refused(count: int) -> None:
    values = np.random.default_rng(3).normal(size=count).astype(np.float32)
    sealed = seal(values, KEY)
    for bit in range(8 * sealed.size):
        flipped = sealed.copy()
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RunError, match=f"came back changed.*{ADVICE}"):
            unseal(flipped, KEY)
    assert unseal(sealed, KEY).tobytes() == values.tobytes()


def test_bytes_that_are_missing_or_too_many_are_refused() -> None:
    sealed = seal(floats([1, 2, 3]), KEY)
    for size in range(sealed.size):
        with pytest.raises(RunError, match=ADVICE):
            unseal(sealed[:size], KEY)
    with pytest.raises(RunError, match=ADVICE):
        unseal(np.append(sealed, np.uint8(0)), KEY)


def test_sealed_bytes_do_not_show_what_is_sealed() -> None:
    values = np.random.default_rng(4).normal(size=500).astype(np.float32)
    sealed = seal(values, KEY).tobytes()
    # A number's four bytes are among 2000 random ones by chance once in two million; all 500: once in 4000.
    assert [value for value in values if value.tobytes() in sealed] == []
    assert KEY[:4] not in sealed
    # Of equal numbers it shows not even that they are equal.
    blocks = np.frombuffer(seal(np.ones(512, np.float32), KEY).tobytes()[NONCE:], np.uint64, 256)
    assert len(set(blocks.tolist())) == blocks.size
