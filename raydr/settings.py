"""Settings: validated, immutable, and refusing what they do not know."""

from __future__ import annotations

import math
import os.path
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Annotated, Any, ClassVar, Self, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo


@dataclass(frozen=True)
class OfFile:
    """Marks a key whose text is the path of a file, so that no such key is forgotten when paths are resolved.

    ``elsewhere`` names the key of the same section that says, where it is given, which other machine has the file:
    a path there means nothing here and is left as it is. ``secret`` is the file that is sent to nobody.
    """

    elsewhere: str | None = None
    secret: bool = False


LocalPath: TypeAlias = Annotated[str, OfFile()]
"""Path of a file that this machine sees."""

SecretPath: TypeAlias = Annotated[str, OfFile(secret=True)]
"""Path of a file that this machine sees, and that no other is to be sent."""


def share_of(share: float, count: int) -> Fraction:
    """Return a share of a count, exactly, by the decimal as it is written and not by the binary number next to it.

    >>> import math
    >>> math.ceil(0.07 * 100), math.ceil(share_of(0.07, 100))
    (8, 7)
    """
    return Fraction(repr(share)) * count


class Settings(BaseModel):
    """Base of every part of a scenario, a method's own settings included."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    package: ClassVar[str | None] = None
    """What must be importable for a run of these settings, where not everybody has it: :mod:`raydr.extras`."""

    def resolved(self) -> Self:
        """Same, with every path of a file in the form that leads there from any folder; doing it twice changes nothing.

        >>> class Source(Settings):
        ...     path: LocalPath
        >>> Source(path="/data/../rows.csv").resolved()
        Source(path='/rows.csv')
        """
        changed = {}
        for name, mark in _marks(type(self)).items():
            value = getattr(self, name)
            if mark is not None and isinstance(value, str):
                if mark.elsewhere is None or getattr(self, mark.elsewhere) is None:
                    changed[name] = _absolute(value)
            else:
                changed[name] = _resolved(value)
        return self.model_copy(
            update={name: value for name, value in changed.items() if value != getattr(self, name)}
        )


def require_in_order(bounds: tuple[float, float] | None) -> None:
    """Raise ValueError unless bounds, where there are any, are a least value and a larger one."""
    if bounds is not None and not 0 < bounds[1] - bounds[0] < math.inf:
        low, high = bounds
        raise ValueError(f"bounds are {low:g} and {high:g}: give the least value first, then a larger one")


@cache
def _marks(model: type[Settings]) -> dict[str, OfFile | None]:
    return {name: path_mark(field) for name, field in model.model_fields.items()}


def path_mark(field: FieldInfo) -> OfFile | None:
    """What marks a key as the path of a file, None where nothing does."""
    return next(
        (found for found in (*field.metadata, *_metadata(field.annotation)) if isinstance(found, OfFile)),
        None,
    )


def _metadata(annotation: Any) -> list[Any]:
    """Everything that is noted on a type or on the members of a union, such as ``LocalPath | None``."""
    here = list(getattr(annotation, "__metadata__", ()))
    return here + [found for member in get_args(annotation) for found in _metadata(member)]


def _resolved(value: Any) -> Any:
    if isinstance(value, Settings):
        return value.resolved()
    return tuple(_resolved(item) for item in value) if isinstance(value, tuple) else value


def _absolute(path: str) -> str:
    return os.path.realpath(os.path.expanduser(path))
