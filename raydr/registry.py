"""Registries: what is added to raydr by defining it, in one file, here or in another package.

A definition is registered by the decorator of its room, such as :func:`raydr.metrics.metric`. A registry knows every
module of its room, which are imported when it is first looked into, and what other packages name as entry points:

.. code-block:: toml

    [project.entry-points."raydr.metrics"]
    mine = "mypackage.metric"     # the module that defines it

Schema, command line, reference and report are made from registries, so nothing else has to know of a definition.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module, metadata
from threading import RLock
from typing import Annotated, Any, Generic, TypeVar, Union

from pydantic import Discriminator

from raydr.errors import RaydrError
from raydr.settings import Settings

T = TypeVar("T")
S = TypeVar("S", bound=type[Settings])


class ExtensionError(RaydrError):
    """Another package's addition to raydr that cannot be used."""

    exit_code = 2


class Registry(Mapping[str, T], Generic[T]):
    """Definitions by name, in the order of the room's modules and of their definition.

    Parameters
    ----------
    room : str
        The package whose modules define the things; also the group of other packages' entry points.
    """

    def __init__(self, room: str) -> None:
        self.room = room
        self._things: dict[str, T] = {}
        self._loading = RLock()
        self._loaded = self._closed = False

    def add(self, name: str, thing: T) -> None:
        """Register a thing under a name.

        Raises
        ------
        ExtensionError
            If another has that name, or it comes too late.
        """
        if self._closed:
            raise ExtensionError(
                f"{name!r} comes too late for {self.room}: the schema of scenarios is made already. Import the module"
                f" that defines it before, or name it as an entry point of the group {self.room!r}."
            )
        other = self._things.get(name)
        if other is not None and other != thing:
            raise ExtensionError(
                f"{self.room} has two things by the name of {name!r}: {other!r} and {thing!r}."
            )
        self._things[name] = thing

    def _load(self) -> None:
        with self._loading:
            if self._loaded:
                return
            self._loaded = (
                True  # whoever looks in while a module of the room is imported sees what there is so far
            )
            package = import_module(self.room)
            for module in sorted(found.name for found in pkgutil.iter_modules(package.__path__)):
                import_module(f"{self.room}.{module}")
            for point in _entry_points():
                if point.group == self.room:
                    _import(point)

    def __getitem__(self, name: str) -> T:
        self._load()
        return self._things[name]

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(self._things)

    def __len__(self) -> int:
        self._load()
        return len(self._things)

    def close(self) -> None:
        """Refuse what comes later: somebody has made something of all that there is."""
        self._load()
        self._closed = True


class Kinds(Registry[type[Settings]]):
    """Settings that have a ``kind``, by which a scenario chooses one of them."""

    def __call__(self, settings: S) -> S:
        """Register a class of settings under the default of its ``kind``: the room's decorator."""
        self.add(kind_of(settings), settings)
        return settings

    @property
    def choice(self) -> Any:
        """Type of one of them, chosen by its ``kind``; for annotations of settings."""
        self.close()
        return one_of(tuple(self.values()))


def one_of(settings: tuple[type[Settings], ...]) -> Any:
    """Type of settings of one of these classes, chosen by its ``kind`` where there are several."""
    return Annotated[Union[settings], Discriminator("kind")] if len(settings) > 1 else settings[0]  # noqa: UP007


def kind_of(settings: type[Settings]) -> str:
    """Value of ``kind`` that names settings of this class.

    Raises
    ------
    TypeError
        If it has none.
    """
    field = settings.model_fields.get("kind")
    if field is None or not isinstance(field.default, str):
        raise TypeError(
            f'{settings.__name__} has no name: give it a field such as `kind: Literal["mine"] = "mine"`'
        )
    return field.default


def summary(thing: Callable[..., Any] | type) -> str:
    """First line of a definition's docstring: what it is, for lists and tables."""
    return (thing.__doc__ or "").strip().partition("\n")[0]


@cache
def _entry_points() -> tuple[metadata.EntryPoint, ...]:
    """Everything that installed packages add to raydr; found once, since it means reading every package's metadata."""
    found: dict[str, tuple[metadata.EntryPoint, ...]] = {}
    for package in metadata.distributions():
        # Of two by one name the first on the path counts, as for an import.
        found.setdefault(package.name, tuple(package.entry_points))
    return tuple(point for points in found.values() for point in points if point.group.startswith("raydr."))


def _import(point: metadata.EntryPoint) -> None:
    try:
        point.load()
    except RaydrError:
        raise
    except Exception as error:
        package = f"the package {point.dist.name}" if point.dist is not None else "an installed package"
        raise ExtensionError(
            f"What {package} adds to {point.group} by {point.value!r} cannot be imported ({type(error).__name__}:"
            f" {error}): mend it, or uninstall the package."
        ) from error
