"""Parameters of a test of which the fast suite takes a few: each covers another path, and the rest repeat them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def fast_only(is_fast: Callable[[T], bool], cases: Iterable[T]) -> list[Any]:
    """Return the cases, marked slow unless ``is_fast``."""
    return [case if is_fast(case) else pytest.param(case, marks=pytest.mark.slow) for case in cases]
