"""Encoding of numbers as page text: deflated, with seven bits per character."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import Float64Array, Int64Array

LETTERS = 1.19
"""UTF-8 bytes of text per byte of content: 8 / 7, and 3 of 128 characters take two bytes."""
COARSE = 8
"""Bits of a coordinate that are deflated; lower bits are too random to compress."""
FINEST = 16
"""Largest number of bits of a coordinate: a grid appears only when the map is zoomed in 64 times."""


def as_text(content: bytes) -> str:
    """Encode bytes as text for a script element, seven bits per character.

    The three characters that a script element may not hold (null, carriage return, less-than) are shifted by 128. In
    UTF-8 this takes 1.17 bytes per byte, compared with 1.33 for base64.

    >>> [ord(letter) & 127 for letter in as_text(b"\\xff\\x00")]
    [127, 64, 0]
    """
    bits = np.unpackbits(np.frombuffer(content, np.uint8))
    sevens = np.pad(bits, (0, -len(bits) % 7)).reshape(-1, 7)
    letters = np.packbits(sevens, axis=1)[:, 0] >> 1
    letters = np.where(np.isin(letters, (0, 13, 60)), letters + 128, letters).astype(np.uint8)
    return letters.tobytes().decode("latin-1")


def deflated(content: bytes) -> bytes:
    """Compress bytes for :func:`as_text`, as the page's script expects them."""
    return zlib.compress(content, 6)


def codes(values: Int64Array) -> tuple[int, bytes]:
    """Encode integers >= 0 (rows,): the width of each in bytes (1, 2 or 4), and the deflated bytes, lowest first."""
    width = next(width for width in (1, 2, 4) if not len(values) or values.max() < 256**width)
    planes = values.astype(f"<u{width}").view(np.uint8).reshape(-1, width).T
    return width, deflated(planes.tobytes())


def numbers(values: Float64Array) -> bytes:
    """Encode real numbers (rows,) as deflated float32, byte plane by byte plane."""
    return deflated(values.astype("<f4").view(np.uint8).reshape(-1, 4).T.tobytes())


def row_ids(rows: Int64Array | Sequence[str]) -> dict[str, object] | tuple[str, bytes]:
    """Encode row names: the first one if they count up by one, else their kind and a deflated list.

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
    """Return the order of rows with coordinates (rows,) in [0, 1] along a Morton curve through 256 x 256 cells."""
    key = np.zeros(len(across), np.int64)
    for shift, places in ((0, across), (1, along)):
        cell = np.nan_to_num(np.clip(np.floor(places * 2**COARSE), 0, 2**COARSE - 1)).astype(np.int64)
        for bit in range(COARSE):
            key |= (cell >> bit & 1) << 2 * bit + shift
    return np.argsort(key, kind="stable").astype(np.int64)


@dataclass(frozen=True)
class PackedCoordinates:
    """Coordinates (rows,) in [0, 1] along one axis as 16-bit integers; their first 8 bits are deflated."""

    values: NDArray[np.uint16]
    coarse: bytes

    @classmethod
    def of(cls, along: Float64Array, order: Int64Array) -> PackedCoordinates:
        """Encode coordinates (rows,) in [0, 1]; NaN becomes 0.

        ``order`` (rows,) puts rows with near positions next to each other, which compresses better.
        """
        values = np.nan_to_num(np.clip(np.floor(along * 2**FINEST), 0, 2**FINEST - 1)).astype(np.uint16)[
            order
        ]
        return cls(values, deflated((values >> (FINEST - COARSE)).astype(np.uint8).tobytes()))

    def rounded(self, bits: int) -> bytes:
        """Return ``bits`` (8 to 16) bits of each: the length of the deflated ones, these, and the rest, packed."""
        fine = (self.values >> (FINEST - bits)).astype(np.uint16) << FINEST - (bits - COARSE)
        rest = np.unpackbits(fine.astype(">u2").view(np.uint8).reshape(-1, 2), axis=1)[:, : bits - COARSE]
        return len(self.coarse).to_bytes(4, "little") + self.coarse + np.packbits(rest).tobytes()
