"""Packages that not everybody has: whoever needs one says so in a sentence, before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

from raydr.errors import RaydrError, ScenarioError
from raydr.settings import Settings

EXTRAS: Mapping[str, str] = MappingProxyType(
    {
        "anndata": "",
        "mlflow": "",
        "phate": " and is licensed under the GPL, version 2",
        "torch": "",
    }
)
"""Packages that extras of raydr's bring, by the extra's name, which is the package's, and what else is to be known."""


class MissingPackageError(RaydrError, ImportError):
    """An optional package that is not installed."""

    exit_code = 2


def lacking(package: str, needed_by: str) -> str | None:
    """What is needed, by whom, and how it is had, as a sentence without its full stop; None where it is there.

    >>> lacking("math", "Arithmetic") is None
    True
    >>> lacking("raydr_of_tomorrow", "Tomorrow")
    'Tomorrow needs the package raydr_of_tomorrow, which is not installed: `pip install raydr_of_tomorrow`'
    """
    if find_spec(package) is not None:
        return None
    wanted = f"'raydr[{package}]'" if package in EXTRAS else package
    return (
        f"{needed_by} needs the package {package}, which is not installed{EXTRAS.get(package, '')}:"
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


def require_packages(settings: Settings, key: str = "") -> None:
    """Raise ScenarioError where settings, or a section of theirs, need a package that is not installed here.

    Nothing but a run needs them: a scenario can be read, planned, sent to a cluster and reported without.
    """
    for where, needing in _needing(settings, key):
        kind = getattr(needing, "kind", None)
        who = f"{where}.kind {kind!r}".lstrip(".") if kind is not None else where
        missing = lacking(needing.package, who) if needing.package is not None else None
        if missing is not None:
            raise ScenarioError(f"{missing}, or choose another.")


def _needing(settings: Settings, key: str) -> Iterator[tuple[str, Settings]]:
    """Sections that need a package, with their keys."""
    if settings.package is not None:
        yield key, settings
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, Settings):
            yield from _needing(value, f"{key}.{name}".lstrip("."))
