"""Optional packages, with a clear error if one is missing before a run starts."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

from raydr.errors import RaydrError, ScenarioError
from raydr.settings import Settings

EXTRAS: Mapping[str, str] = MappingProxyType(
    {"anndata": "anndata", "flwr": "flower", "mlflow": "mlflow", "phate": "phate", "torch": "torch"}
)
"""The extra of raydr that installs a package, by package."""

_REMARKS: Mapping[str, str] = MappingProxyType({"phate": " and is licensed under the GPL, version 2"})
"""Remarks of the error, by package."""


class MissingPackageError(RaydrError, ImportError):
    """An optional package that is not installed."""

    exit_code = 2


def lacking(package: str, needed_by: str) -> str | None:
    """Return which package is missing and how to install it, or None if it is installed.

    >>> lacking("math", "Arithmetic") is None
    True
    >>> lacking("raydr_of_tomorrow", "Tomorrow")
    'Tomorrow needs the package raydr_of_tomorrow, which is not installed: `pip install raydr_of_tomorrow`'
    """
    if find_spec(package) is not None:
        return None
    wanted = f"'raydr[{EXTRAS[package]}]'" if package in EXTRAS else package
    return (
        f"{needed_by} needs the package {package}, which is not installed{_REMARKS.get(package, '')}:"
        f" `pip install {wanted}`"
    )


def imported(package: str, needed_by: str) -> Any:
    """Import a package.

    Raises
    ------
    MissingPackageError
        If it is not installed.
    """
    missing = lacking(package, needed_by)
    if missing is not None:
        raise MissingPackageError(f"{missing}.")
    return import_module(package)


@contextmanager
def without(package: str) -> Iterator[None]:
    """Make imports of a package fail in the block, as if it were not installed, unless it is loaded already."""
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[package]


def require_packages(settings: Settings, key: str = "") -> None:
    """Raise ScenarioError if the settings, or a section of them, need a package that is not installed here.

    Only a run needs the packages. You can read, plan, report and send a scenario to a cluster without them.
    """
    for where, needing in _needing(settings, key):
        kind = getattr(needing, "kind", None)
        who = f"{where}.kind {kind!r}".lstrip(".") if kind is not None else where
        missing = lacking(needing.package, who) if needing.package is not None else None
        if missing is not None:
            raise ScenarioError(f"{missing}, or choose another kind.")


def needed_packages(settings: Settings) -> set[str]:
    """Return the packages that the settings and their sections need, whether or not they are installed here."""
    return {needing.package for _, needing in _needing(settings, "") if needing.package is not None}


def _needing(settings: Settings, key: str) -> Iterator[tuple[str, Settings]]:
    """Yield the sections that need a package, with their keys."""
    if settings.package is not None:
        yield key, settings
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, Settings):
            yield from _needing(value, f"{key}.{name}".lstrip("."))
