"""Federated dimensionality reduction: one map of everybody's data, and what that map cost in privacy.

``raydr.run("digits-fed-tsne")`` is the whole of it; :mod:`raydr.front.api` says more. Importing raydr is light: Ray,
numba, torch and matplotlib are loaded by what needs them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raydr.front.api import (
        Result,
        SweepResult,
        audit,
        map,  # noqa: A004  as every function here it is called by its module's name
        reproduce,
        resume,
        resume_sweep,
        run,
        sweep,
        transform,
    )

__all__ = [
    "Result",
    "SweepResult",
    "audit",
    "map",
    "reproduce",
    "resume",
    "resume_sweep",
    "run",
    "sweep",
    "transform",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("raydr.front.api"), name)
    raise AttributeError(f"module 'raydr' has no attribute {name!r}")
