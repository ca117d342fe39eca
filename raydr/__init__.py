"""Federated dimensionality reduction: one map of everybody's data, and what that map cost in privacy.

``raydr.run("digits-fed-tsne")`` is the whole of it; :mod:`raydr.api` says more. Importing raydr is light: Ray, numba,
torch and matplotlib are loaded by what needs them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raydr.api import Result, resume, run, transform

__all__ = ["Result", "resume", "run", "transform"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("raydr.api"), name)
    raise AttributeError(f"module 'raydr' has no attribute {name!r}")
