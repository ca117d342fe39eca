"""Numbers as text that stands in a page: deflated, seven bits to a letter."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import Float64Array, Int64Array

LETTERS = 1.19
"""Bytes of text for a byte: 8 / 7, and 3 of 128 letters take two."""
COARSE = 8
"""Bits of a place that are deflated; those below look like chance and would only take time."""
FINEST = 16
"""Bits of a place at most: a map may then be zoomed in 64 times before its points stand on a grid."""


def as_text(content: bytes) -> str:
    """Text of a part of a page: seven bits are the code of a letter, all of which may stand in a script element.

    The three that may not (no letter, carriage return, less-than) are 128 higher. In UTF-8 that is 1.17 bytes for a
    byte, where base64 takes 1.33.

    >>> [ord(letter) & 127 for letter in as_text(b"\\xff\\x00")]
    [127, 64, 0]
    """
    bits = np.unpackbits(np.frombuffer(content, np.uint8))
    sevens = np.pad(bits, (0, -len(bits) % 7)).reshape(-1, 7)
    letters = np.packbits(sevens, axis=1)[:, 0] >> 1
    letters = np.where(np.isin(letters, (0, 13, 60)), letters + 128, letters).astype(np.uint8)
    return letters.tobytes().decode("latin-1")


def deflated(content: bytes) -> bytes:
    """What :func:`as_text` is given, as the page's script expects it."""
    return zlib.compress(content, 6)


def codes(values: Int64Array) -> tuple[int, bytes]:
    """Whole numbers from 0 (rows,): the bytes of each (1, 2 or 4), and those bytes, deflated, the lowest first."""
    width = next(width for width in (1, 2, 4) if not len(values) or values.max() < 256**width)
    planes = values.astype(f"<u{width}").view(np.uint8).reshape(-1, width).T
    return width, deflated(planes.tobytes())


def numbers(values: Float64Array) -> bytes:
    """Real numbers (rows,) in single precision, byte by byte, deflated."""
    return deflated(values.astype("<f4").view(np.uint8).reshape(-1, 4).T.tobytes())


def row_ids(rows: Int64Array | Sequence[str]) -> dict[str, object] | tuple[str, bytes]:
    """Names of rows: where they begin, if they count up by one; else what they are, and a list, deflated.

    Examples
    --------
    >>> row_ids(np.arange(5, 9))
    {'kind': 'range', 'first': 5}
    >>> row_ids(["a", "b"])[0]
    'names'
    """
    if isinstance(rows, np.ndarray) and np.abs(rows.astype(np.float64)).max() < 2**53:
        if len(rows) == 1 or (np.diff(rows) == 1).all():
            return {"kind": "range", "first": int(rows[0])}
        return "steps", deflated(
            json.dumps(np.diff(rows, prepend=0).tolist(), separators=(",", ":")).encode()
        )
    # JavaScript's numbers are exact up to 2^53.
    return "names", deflated(json.dumps([str(row) for row in rows]).encode())


def by_place(across: Float64Array, along: Float64Array) -> Int64Array:
    """Order of rows by where they lie (rows,) from 0 to 1: along a Morton curve through 256 times 256 cells."""
    key = np.zeros(len(across), np.int64)
    for shift, places in ((0, across), (1, along)):
        cell = np.nan_to_num(np.clip(np.floor(places * 2**COARSE), 0, 2**COARSE - 1)).astype(np.int64)
        for bit in range(COARSE):
            key |= (cell >> bit & 1) << 2 * bit + shift
    return np.argsort(key, kind="stable").astype(np.int64)


@dataclass(frozen=True)
class Places:
    """Coordinates along one axis (rows,), from 0 to 1, as whole numbers of 16 bits; their first 8 are deflated."""

    values: NDArray[np.uint16]
    coarse: bytes

    @classmethod
    def of(cls, along: Float64Array, order: Int64Array) -> Places:
        """From coordinates (rows,) between 0 and 1; those that are no number, of rows that are not there, become 0.

        ``order`` (rows,) brings rows together that lie near each other, so that less is left to say of each.
        """
        values = np.nan_to_num(np.clip(np.floor(along * 2**FINEST), 0, 2**FINEST - 1)).astype(np.uint16)[
            order
        ]
        return cls(values, deflated((values >> (FINEST - COARSE)).astype(np.uint8).tobytes()))

    def rounded(self, bits: int) -> bytes:
        """As so many bits, 8 to 16, of each: the length of the deflated ones, these, and the rest, packed."""
        fine = (self.values >> (FINEST - bits)).astype(np.uint16) << FINEST - (bits - COARSE)
        rest = np.unpackbits(fine.astype(">u2").view(np.uint8).reshape(-1, 2), axis=1)[:, : bits - COARSE]
        return len(self.coarse).to_bytes(4, "little") + self.coarse + np.packbits(rest).tobytes()
