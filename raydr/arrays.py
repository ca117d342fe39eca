"""Type aliases for arrays. Each docstring gives the shapes."""

from __future__ import annotations

import hashlib
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

Float32Array: TypeAlias = NDArray[np.float32]
Float64Array: TypeAlias = NDArray[np.float64]
FloatArray: TypeAlias = NDArray[np.floating[Any]]
"""float32 or float64. Functions keep the precision of their input unless their docstring says otherwise."""
Int64Array: TypeAlias = NDArray[np.int64]
UInt8Array: TypeAlias = NDArray[np.uint8]
IntArray: TypeAlias = NDArray[np.integer[Any]]
BoolArray: TypeAlias = NDArray[np.bool_]


def shaped(shape: tuple[int, ...], dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """Return zeros of a shape and type that take no memory, to compute sizes.

    >>> shaped((1_000_000, 1_000_000)).nbytes
    8000000000000
    """
    return np.broadcast_to(np.zeros((), dtype), shape)


def fingerprint(array: NDArray[Any]) -> str:
    """Return a hash of an array's shape, type and content; a table that stores only nonzero numbers has the same."""
    digest = hashlib.blake2b(f"{array.shape} {array.dtype}".encode(), digest_size=16)
    for block in array.blocks() if hasattr(array, "blocks") else [array]:
        digest.update(np.ascontiguousarray(block).data)
    return digest.hexdigest()
