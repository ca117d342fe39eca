"""Peak of the memory that a block of code allocates, as Python and numpy tell it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Peak:
    """``bytes`` is the peak in bytes, once the block has ended."""

    bytes: int = 0


@contextmanager
def peak_memory() -> Iterator[Peak]:
    """Measure a block of code. What it imports or compiles counts: run such code once before."""
    peak = Peak()
    tracemalloc.start()
    try:
        yield peak
        peak.bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
