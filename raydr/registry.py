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


_LOADING = RLock()
"""One for all registries: what is imported for one may look into another."""


class ExtensionError(RaydrError):
    """Another package's addition to raydr that cannot be used."""

    exit_code = 2


class Registry(Mapping[str, T], Generic[T]):
    """Definitions by name, in the order of the room's modules and of their definition.

    Parameters
    ----------
    things : str
        What they are, in the plural, which also names the group of other packages' entry points: ``raydr.THINGS``.
    room : str
        The package whose modules define them.
    first : tuple of str
        Modules of the room whose definitions are listed first, in this order; the others follow by name.
    """

    def __init__(self, things: str, room: str, first: tuple[str, ...] = ()) -> None:
        self.things, self.room, self.first = things, room, first
        self._things: dict[str, T] = {}
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
                f"{name!r} comes too late among the {self.things}: the schema of scenarios is made already. Import the"
                f" module that defines it before, or name it as an entry point of the group 'raydr.{self.things}'."
            )
        other = self._things.get(name)
        if other is not None and other != thing:
            raise ExtensionError(
                f"There are two {self.things} by the name of {name!r}: {other!r} and {thing!r}. Rename one."
            )
        self._things[name] = thing

    def _load(self) -> None:
        with _LOADING:
            if self._loaded:
                return
            # Whoever looks in while a module of the room is imported sees what there is so far.
            self._loaded = True
            package = import_module(self.room)
            modules = sorted(found.name for found in pkgutil.iter_modules(package.__path__))
            for module in dict.fromkeys([*self.first, *modules]):
                import_module(f"{self.room}.{module}")
            _import_extensions()

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


def extensions() -> dict[str, str]:
    """Version of each installed package that adds to raydr, by its name."""
    return {package.name: package.version for package, _ in _entry_points()}


@cache
def _entry_points() -> tuple[tuple[metadata.Distribution, metadata.EntryPoint], ...]:
    """Everything that installed packages add to raydr; found once, since it means reading every package's metadata."""
    packages: dict[str, metadata.Distribution] = {}
    for package in metadata.distributions():
        packages.setdefault(
            package.name, package
        )  # of two by one name the first on the path, as for an import
    return tuple(
        (package, point)
        for package in packages.values()
        for point in package.entry_points
        if point.group.startswith("raydr.")
    )


@cache
def _import_extensions() -> None:
    """Import all of them, whatever they add: one module may define a method and the metric that goes with it."""
    for package, point in _entry_points():
        try:
            point.load()
        except RaydrError:
            raise
        except Exception as error:
            raise ExtensionError(
                f"What the package {package.name} {package.version} adds to raydr by {point.value!r} cannot be imported"
                f" ({type(error).__name__}: {error}): mend it, or uninstall the package."
            ) from error
