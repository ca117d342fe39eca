"""The types that messages may hold besides arrays, numbers and text: a closed registry, filled by class definitions.

Requests, replies, mechanisms and settings of methods register themselves. Any other dataclass, enum or section of
settings that a message holds is registered with :func:`travels`. Its constructor must look at values alone.

A message names its types, and :mod:`raydr.federation.codec` looks the names up here. Nothing is ever imported because a
message names it.
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T", bound=type)

_BY_NAME: dict[str, type] = {}
_NAMES: dict[type, str] = {}


def travels(kind: T) -> T:
    """Register a dataclass, enum or settings that messages may hold. Use this as a decorator.

    A class that is defined again in the same module takes the place of the first.

    Raises
    ------
    TypeError
        If a class of another module has the same name on the wire.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @travels
    ... @dataclass(frozen=True)
    ... class Circle:
    ...     radius: float
    >>> wire_type(wire_name(Circle)) is Circle
    True
    """
    name = f"{kind.__module__.removeprefix('raydr.')}.{kind.__qualname__}"
    other = _BY_NAME.get(name, kind)
    if other.__module__ != kind.__module__:
        raise TypeError(
            f"the modules {kind.__module__} and {other.__module__} define types with the same name in messages,"
            f" {name}: rename one of the modules"
        )
    _BY_NAME[name], _NAMES[kind] = kind, name
    return kind


def wire_name(kind: type) -> str | None:
    """Return the name of a type in messages; None if it may not travel."""
    return _NAMES.get(kind)


def wire_type(name: str) -> type | None:
    """Return the type with this name in messages; None if there is none."""
    return _BY_NAME.get(name)
