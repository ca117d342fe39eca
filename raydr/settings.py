"""Base classes for settings: validated, immutable, and strict about unknown keys."""

from __future__ import annotations

import math
import os.path
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Annotated, Any, ClassVar, Self, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo

from raydr.wire_types import travels, wire_name


@dataclass(frozen=True)
class PathMark:
    """Mark a key whose text is the path of a file, so that paths are resolved for every such key.

    ``elsewhere`` names a key of the same section. If that key has a value, the file is on another machine,
    and the path is left as it is. ``secret`` marks a file that is never sent. ``names`` are texts that are no paths.
    """

    elsewhere: str | None = None
    secret: bool = False
    names: tuple[str, ...] = ()

    def is_path(self, text: str) -> bool:
        """Return whether the text of a key is a path; a file with the name wins."""
        return text not in self.names or os.path.isfile(os.path.expanduser(text))


LocalPath: TypeAlias = Annotated[str, PathMark()]
"""Path of a file on this machine."""

SecretPath: TypeAlias = Annotated[str, PathMark(secret=True)]
"""Path of a file on this machine that is never sent to another machine."""


def share_of(share: float, count: int) -> Fraction:
    """Return a share of a count, exactly. The share is read as its decimal, not as the nearest binary number.

    >>> import math
    >>> math.ceil(0.07 * 100), math.ceil(share_of(0.07, 100))
    (8, 7)
    """
    return Fraction(repr(share)) * count


class Settings(BaseModel):
    """Base class of every part of a scenario, including a method's own settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    package: ClassVar[str | None] = None
    """Optional package that a run with these settings needs: see :mod:`raydr.extras`."""

    def resolved(self) -> Self:
        """Return a copy with every file path absolute. A second call changes nothing.

        >>> class Source(Settings):
        ...     path: LocalPath
        >>> Source(path="/data/../rows.csv").resolved()
        Source(path='/rows.csv')
        """
        changed = {}
        for name, mark in _marks(type(self)).items():
            value = getattr(self, name)
            if mark is not None and isinstance(value, str):
                here = mark.elsewhere is None or getattr(self, mark.elsewhere) is None
                if here and mark.is_path(value):
                    changed[name] = _absolute(value)
            else:
                changed[name] = _resolved(value)
        return self.model_copy(
            update={name: value for name, value in changed.items() if value != getattr(self, name)}
        )


class MessageSettings(Settings):
    """Base of settings that messages hold: they and their sections are registered as wire types.

    Their validators must look at values alone. Those of a scenario's other sections may read files, so such sections
    never travel.
    """

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        _register(cls)


def _register(settings: type[Settings]) -> None:
    travels(settings)
    for field in settings.model_fields.values():
        for member in _members(field.annotation):
            if issubclass(member, Settings) and wire_name(member) is None:
                _register(member)


def _members(annotation: Any) -> Iterator[type]:
    """Yield the classes in a type, such as those of a union."""
    if isinstance(annotation, type) and not get_args(annotation):
        yield annotation
    for part in get_args(annotation):
        yield from _members(part)


def require_in_order(bounds: tuple[float, float] | None) -> None:
    """Raise ValueError if bounds are given and the first is not less than the second."""
    if bounds is not None and not 0 < bounds[1] - bounds[0] < math.inf:
        low, high = bounds
        raise ValueError(f"bounds are {low:g} and {high:g}. Give the lower bound first, then a larger one")


@cache
def _marks(model: type[Settings]) -> dict[str, PathMark | None]:
    return {name: path_mark(field) for name, field in model.model_fields.items()}


def path_mark(field: FieldInfo) -> PathMark | None:
    """Return the mark of a key that is the path of a file, or None."""
    return next(
        (found for found in (*field.metadata, *_metadata(field.annotation)) if isinstance(found, PathMark)),
        None,
    )


def _metadata(annotation: Any) -> list[Any]:
    """Return the metadata of a type, or of the members of a union such as ``LocalPath | None``."""
    here = list(getattr(annotation, "__metadata__", ()))
    return here + [found for member in get_args(annotation) for found in _metadata(member)]


def _resolved(value: Any) -> Any:
    if isinstance(value, Settings):
        return value.resolved()
    return tuple(_resolved(item) for item in value) if isinstance(value, tuple) else value


def _absolute(path: str) -> str:
    return os.path.realpath(os.path.expanduser(path))
