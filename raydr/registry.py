"""Registries of definitions, from raydr or from other packages.

The decorator of a package, such as :func:`raydr.metrics.metric`, registers a definition. On first access, a registry
imports every module of its package but ``kernels``, which loads numba, and the entry points of other packages:

.. code-block:: toml

    [project.entry-points."raydr.metrics"]
    mine = "mypackage.metric"     # the module that defines it

The schema, command line, reference and report are made from registries, so one file is enough for a new
definition.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
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
"""One lock for all registries, because an import for one registry can read another."""


class ExtensionError(RaydrError):
    """An extension from another package that cannot be used."""

    exit_code = 2


class Registry(Mapping[str, T], Generic[T]):
    """Definitions by name, in the order of their modules and of their definition.

    Parameters
    ----------
    things : str
        The plural noun for the definitions. It also names the group of entry points: ``raydr.THINGS``.
    room : str
        The package whose modules define them.
    first : tuple of str
        Modules to list first, in this order. The others follow by name.
    """

    def __init__(self, things: str, room: str, first: tuple[str, ...] = ()) -> None:
        self.things, self.room, self.first = things, room, first
        self._things: dict[str, T] = {}
        self._modules: dict[str, str] = {}
        self._loaded = self._closed = False

    def add(self, name: str, thing: T, module: str = "") -> None:
        """Register a definition under a name; ``module`` defines it, if its place in lists depends on that.

        Raises
        ------
        ExtensionError
            If another definition has that name, or the registry is closed.
        """
        if self._closed:
            raise ExtensionError(
                f"{name!r} comes too late for the {self.things}: the schema of scenarios is already made. Import the"
                f" module that defines it earlier, or name it as an entry point of the group 'raydr.{self.things}'."
            )
        other = self._things.get(name)
        if other is not None and other != thing:
            raise ExtensionError(
                f"Two {self.things} have the name {name!r}: {other!r} and {thing!r}. Rename one."
            )
        self._things[name], self._modules[name] = thing, module

    def _load(self) -> None:
        with _LOADING:
            if self._loaded:
                return
            # Code that reads the registry during these imports sees the definitions so far.
            self._loaded = True
            package = import_module(self.room)
            found = (module.name for module in pkgutil.iter_modules(package.__path__))
            modules = sorted(name for name in found if name != "kernels")
            ordered = [f"{self.room}.{module}" for module in dict.fromkeys([*self.first, *modules])]
            for module in ordered:
                import_module(module)
            # Some may have been imported before, in another order. Sorting keeps the order within a module.
            names = sorted(self._things, key=lambda name: _place(self._modules[name], ordered))
            self._things = {name: self._things[name] for name in names}
            _import_extensions()

    def __getitem__(self, name: str) -> T:
        if name not in self._things:
            self._load()
        return self._things[name]

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(self._things)

    def __len__(self) -> int:
        self._load()
        return len(self._things)

    def close(self) -> None:
        """Refuse later additions, because something was already built from all definitions."""
        self._load()
        self._closed = True


def _place(module: str, ordered: Sequence[str]) -> int:
    """Return the place of a module, or of the package that it is in; after all of them if it is in none."""
    inside = f"{module}."
    return next((place for place, name in enumerate(ordered) if inside.startswith(f"{name}.")), len(ordered))


class Kinds(Registry[type[Settings]]):
    """Classes of settings with a ``kind``. A scenario chooses one by its ``kind``."""

    def __call__(self, settings: S) -> S:
        """Register a class of settings under the default of its ``kind``. Use this as a decorator."""
        self.add(kind_of(settings), settings)
        return settings

    @property
    def choice(self) -> Any:
        """The union type of all classes, chosen by ``kind``, for annotations of settings."""
        self.close()
        return one_of(tuple(self.values()))


def one_of(settings: tuple[type[Settings], ...]) -> Any:
    """Return the union type of these classes of settings, chosen by ``kind`` if there are several."""
    return Annotated[Union[settings], Discriminator("kind")] if len(settings) > 1 else settings[0]  # noqa: UP007


def kind_of(settings: type[Settings]) -> str:
    """Return the ``kind`` that names a class of settings.

    Raises
    ------
    TypeError
        If the class has no ``kind`` with a default.
    """
    field = settings.model_fields.get("kind")
    if field is None or not isinstance(field.default, str):
        raise TypeError(
            f'{settings.__name__} has no kind. Give it a field such as `kind: Literal["mine"] = "mine"`'
        )
    return field.default


def summary(thing: Callable[..., Any] | type) -> str:
    """Return the first line of a docstring, for lists and tables."""
    return (thing.__doc__ or "").strip().partition("\n")[0]


def extensions() -> dict[str, str]:
    """Return the version of each installed package that extends raydr, by name."""
    return {package.name: package.version for package, _ in _entry_points()}


@cache
def extension_packages() -> frozenset[str]:
    """Return the names of the top-level packages that extend raydr, as Python imports them."""
    return frozenset(point.module.partition(".")[0] for _, point in _entry_points())


@cache
def _entry_points() -> tuple[tuple[metadata.Distribution, metadata.EntryPoint], ...]:
    """Return all entry points for raydr from installed packages.

    Cached, because it looks at every package. Only if one names raydr, all their names are read, which takes 0.25 s.
    """
    every = tuple(metadata.distributions())
    if not any("[raydr." in (package.read_text("entry_points.txt") or "") for package in every):
        return ()
    packages: dict[str, metadata.Distribution] = {}
    for package in every:
        packages.setdefault(
            package.name, package
        )  # if two have the same name, the first on the path counts, as for imports
    return tuple(
        (package, point)
        for package in packages.values()
        for point in package.entry_points
        if point.group.startswith("raydr.")
    )


@cache
def _import_extensions() -> None:
    """Import all extensions. One module can define a method and the metric that goes with it."""
    for package, point in _entry_points():
        try:
            point.load()
        except RaydrError:
            raise
        except Exception as error:
            raise ExtensionError(
                f"The extension {point.value!r} of the package {package.name} {package.version} cannot be imported"
                f" ({type(error).__name__}: {error}). Fix it, or uninstall the package."
            ) from error
