"""Sealed bytes are recovered; changed or foreign bytes are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from raydr.arrays import UInt8Array
from raydr.errors import RunError
from raydr.privacy.sealing import Binding, seal, sealed_size, unseal

NONCE = 12
KEY = bytes(range(32))
MINE = Binding("run", client=3, round=7, purpose="a test")
ADVICE = "Resume from an earlier checkpoint, or start the run again"

keys = st.binary(min_size=32, max_size=32)
contents = arrays(np.uint8, st.integers(0, 160))


def numbers(*values: float) -> UInt8Array:
    return np.array(values, np.float32).view(np.uint8)


def nonce(sealed: UInt8Array) -> bytes:
    return sealed[:NONCE].tobytes()


@given(content=contents, key=keys)
@example(content=numbers(), key=KEY)
def test_sealed_content_is_recovered(content: UInt8Array, key: bytes) -> None:
    sealed = seal(content, key, MINE)
    opened = unseal(sealed, key, MINE)
    assert opened.dtype == sealed.dtype == np.uint8
    assert opened.shape == content.shape
    assert opened.tobytes() == content.tobytes()
    assert sealed.shape == (sealed_size(content.size),)
    assert sealed.size == 12 + content.size + 16


@given(content=contents, key=keys)
def test_sealing_is_deterministic(content: UInt8Array, key: bytes) -> None:
    assert seal(content, key, MINE).tobytes() == seal(content.copy(), key, MINE).tobytes()


@given(one=contents, other=contents, key=keys)
# Equal as numbers, but not as bits.
@example(one=numbers(0.0), other=numbers(-0.0), key=KEY)
@example(one=numbers(1.0), other=numbers(1.0), key=KEY)
def test_nonces_differ_for_different_contents(one: UInt8Array, other: UInt8Array, key: bytes) -> None:
    same = one.tobytes() == other.tobytes()
    assert (nonce(seal(one, key, MINE)) == nonce(seal(other, key, MINE))) == same


def test_nonce_depends_on_the_key() -> None:
    content = numbers(1, 2, 3)
    assert nonce(seal(content, KEY, MINE)) != nonce(seal(content, KEY[::-1], MINE))


@given(content=contents, keys=st.lists(keys, min_size=2, max_size=2, unique=True))
def test_wrong_key_is_refused(content: UInt8Array, keys: list[bytes]) -> None:
    with pytest.raises(RunError, match=f"belongs to another client, round or run.*{ADVICE}"):
        unseal(seal(content, keys[0], MINE), keys[1], MINE)


@pytest.mark.parametrize(
    "other",
    [
        replace(MINE, run="another"),
        replace(MINE, client=4),
        replace(MINE, round=6),
        replace(MINE, purpose="another"),
    ],
    ids=["run", "client", "round", "purpose"],
)
def test_wrong_associated_data_is_refused(other: Binding) -> None:
    content = numbers(1, 2, 3)
    with pytest.raises(RunError, match=f"belongs to another client, round or run.*{ADVICE}"):
        unseal(seal(content, KEY, MINE), KEY, other)
    assert nonce(seal(content, KEY, MINE)) != nonce(seal(content, KEY, other))


def test_keys_for_two_purposes_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's secret only derives keys, and each key has one purpose."""
    from cryptography.hazmat.primitives.ciphers import aead

    import raydr.privacy.sealing as room

    used: dict[str, bytes] = {}
    cipher, digest = aead.ChaCha20Poly1305, room.hmac.new
    monkeypatch.setattr(aead, "ChaCha20Poly1305", lambda key: used.setdefault("cipher", key) and cipher(key))
    monkeypatch.setattr(
        room.hmac, "new", lambda key, *more: used.setdefault("mac", key) and digest(key, *more)
    )
    seal(numbers(1), KEY, MINE)
    assert len({KEY, used["cipher"], used["mac"]}) == 3


@pytest.mark.parametrize("count", [0, 1, 7])
def test_one_flipped_bit_anywhere_is_refused(count: int) -> None:
    content = numbers(*np.random.default_rng(3).normal(size=count))
    sealed = seal(content, KEY, MINE)
    for bit in range(8 * sealed.size):
        flipped = sealed.copy()
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RunError, match=f"it was changed.*{ADVICE}"):
            unseal(flipped, KEY, MINE)
    assert unseal(sealed, KEY, MINE).tobytes() == content.tobytes()


def test_truncated_or_extended_bytes_are_refused() -> None:
    sealed = seal(numbers(1, 2, 3), KEY, MINE)
    for size in range(sealed.size):
        with pytest.raises(RunError, match=ADVICE):
            unseal(sealed[:size], KEY, MINE)
    with pytest.raises(RunError, match=ADVICE):
        unseal(np.append(sealed, np.uint8(0)), KEY, MINE)


def test_sealed_bytes_hide_their_content() -> None:
    content = numbers(*np.random.default_rng(4).normal(size=500))
    sealed = seal(content, KEY, MINE).tobytes()
    # A number's four bytes are among 2000 random ones by chance once in two million; all 500: once in 4000.
    assert [value for value in content.reshape(-1, 4) if value.tobytes() in sealed] == []
    assert KEY[:4] not in sealed
    # Equal numbers are not recognisable as equal.
    blocks = np.frombuffer(seal(numbers(*np.ones(512)), KEY, MINE).tobytes()[NONCE:], np.uint64, 256)
    assert len(set(blocks.tolist())) == blocks.size
