"""Compilation of inner loops, once per installation. Importing this module imports numba."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(**options: Any) -> Callable[[F], F]:
    """Return a decorator that compiles a function at its first call and keeps the result for later processes.

    It is kept next to the source file, in the user's cache folder if that is read-only, or in the folder
    ``NUMBA_CACHE_DIR``. If none of them can be written to, each process compiles again, after a warning. A damaged
    result is compiled again.

    Parameters
    ----------
    **options
        Options of ``numba.njit`` beyond ``nogil`` and ``cache``.
    """

    def compile_lazily(function: F) -> F:
        try:
            kept: F = numba.njit(nogil=True, cache=True, **options)(function)
            _forget_what_is_damaged(kept)
            return kept
        except RuntimeError as error:
            if "no locator available" not in str(error):
                raise
        _warn_once()
        fresh: F = numba.njit(nogil=True, **options)(function)
        return fresh

    return compile_lazily


def _forget_what_is_damaged(kept: Any) -> None:
    """Let a loop whose kept result cannot be read be compiled again; numba would end with an error of pickle."""
    results = kept._cache
    load = results.load_overload

    def load_or_forget(*arguments: Any) -> Any:
        try:
            return load(*arguments)
        except Exception:
            with suppress(OSError):  # of a read-only folder
                results.flush()
            return None

    results.load_overload = load_or_forget


@cache
def _warn_once() -> None:
    warnings.warn(
        "raydr cannot keep its compiled loops, because neither its own folder nor the cache folder of this user can be"
        " written to. Each process compiles them again, which takes up to a minute. Set NUMBA_CACHE_DIR to a folder"
        " that only you can write to.",
        RuntimeWarning,
        stacklevel=2,
    )
