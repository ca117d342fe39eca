"""A run folder: written under a name that says incomplete, renamed when it is whole."""

from __future__ import annotations

import glob
import secrets
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import ClassVar, Protocol

from raydr.errors import OutputError, RaydrError
from raydr.runfolder.locking import is_locked
from raydr.runfolder.manifest import seal
from raydr.runfolder.records import is_incomplete
from raydr.signals import signals_deferred

_MARK = ".incomplete-"
"""Part of the name of every folder that is not whole (:func:`raydr.runfolder.records.is_incomplete`)."""


def default_folder(name: str, started: datetime) -> Path:
    """``runs/NAME-TIMESTAMP`` in the current directory; numbered from 2 when that second has a run already."""
    folder = Path("runs") / f"{name}-{started:%Y%m%d-%H%M%S}"
    candidates = chain([folder], (folder.with_name(f"{folder.name}-{number}") for number in count(2)))
    return next(
        path for path in candidates if not path.exists() and not any(path.parent.glob(f"{path.name}{_MARK}*"))
    )


class Unfinished(Protocol):
    """What an incomplete folder holds beside its results, for whoever goes on with it."""

    noun: ClassVar[str]
    """What is going on there: "run", or "sweep"."""
    stored: ClassVar[str]
    """The file that says what was asked for."""
    command: ClassVar[str]
    """Of raydr's, the one that goes on with it."""

    @property
    def after(self) -> str:
        """From where it goes on, in words."""

    @property
    def place(self) -> Path:
        """Folder of it, which goes when all is done."""

    @property
    def there(self) -> bool:
        """Whether there is anything to go on with."""

    def locked(self) -> AbstractContextManager[None]:
        """Keep every other process out."""


def require_free(target: Path) -> Path:
    """Return the absolute path of a run folder to be.

    Raises
    ------
    OutputError
        If it exists and is not an empty folder, or its name says incomplete.
    """
    target = target.expanduser().absolute()
    if is_incomplete(target):
        raise OutputError(
            f"A run folder cannot be called {target.name}: 'incomplete' in its name says that a run is not whole."
            " Choose another --out, or another name for the scenario."
        )
    try:
        taken = target.exists() and (not target.is_dir() or any(target.iterdir()))
    except OSError as error:
        raise _not_to_be_made(target, error) from error
    if taken and not target.is_dir():
        raise OutputError(
            f"{target} is a file, and a run writes a folder: name another place with --out, or move it away."
        )
    if taken:
        raise OutputError(
            f"The output folder {target} exists and is not empty: nothing there is overwritten. Name another"
            " with --out, or move it away."
        )
    return target


@contextmanager
def incomplete(target: Path, work: Callable[[Path], Unfinished]) -> Iterator[Path]:
    """Make a folder beside ``target`` and rename it to ``target`` at the end.

    After an error the folder is removed, unless it holds something to go on with, such as a run's checkpoint; so are
    folders above it that were made for it and hold nothing else.

    Raises
    ------
    OutputError
        If ``target`` exists and is not an empty folder, its name says incomplete, another process is writing it, or its
        parent cannot be written; before any work is done. If the folder cannot be renamed; then it stays as it is.
    """
    target = require_free(target)
    for other in target.parent.glob(f"{glob.escape(target.name)}{_MARK}*"):
        _require_left(other, target, work(other))
    folder = target.with_name(f"{target.name}{_MARK}{secrets.token_hex(3)}")
    made = [parent for parent in target.parents if not parent.exists()]
    try:
        with ExitStack() as completing:
            with signals_deferred():  # or one that comes in between would leave the folder
                try:
                    folder.mkdir(parents=True)
                except OSError as error:
                    raise _not_to_be_made(target, error) from error
                completing.enter_context(_completing(folder, target, work(folder)))
            yield folder
    except BaseException:
        with suppress(OSError):  # of the first that is not empty, or never came to be
            for parent in made:
                parent.rmdir()
        raise


def _require_left(folder: Path, target: Path, work: Unfinished) -> None:
    """Refuse a target whose incomplete folder some process is still writing."""
    if work.place.is_dir() and is_locked(work.place):
        raise OutputError(
            f"Another process is writing {target}, in {folder.name}: wait until it ends, or name another folder with"
            " --out."
        )


def _not_to_be_made(target: Path, error: OSError) -> OutputError:
    return OutputError(
        f"The output folder {target} cannot be made: {error.strerror} ({error.filename}). Name another with --out, or"
        " free its place."
    )


@contextmanager
def taken_up(folder: Path, work: Callable[[Path], Unfinished]) -> Iterator[Path]:
    """Go on in an incomplete folder, and rename it at the end; after an error it stays, whatever is in it."""
    with _completing(folder, target_of(folder, work), work(folder), stays=True):
        yield folder


def target_of(folder: Path, work: Callable[[Path], Unfinished]) -> Path:
    """Return the name that an incomplete folder will have once it is whole.

    Raises
    ------
    OutputError
        If it is not an incomplete folder of that sort, or its whole counterpart exists by now.
    """
    name, mark, _ = folder.name.rpartition(_MARK)
    noun, stored = work(folder).noun, work(folder).stored
    if not mark or not (folder / stored).is_file():
        raise OutputError(
            f"{folder} is not an interrupted {noun}: give a folder whose name holds {_MARK!r} and that holds the"
            f" {noun}'s {stored}, as the interrupted {noun} named it."
        )
    target = folder.with_name(name)
    if target.exists():
        raise OutputError(f"{target}, the whole form of {folder}, exists already: move it away to resume.")
    return target


@contextmanager
def unwritable(folder: Path) -> Iterator[None]:
    """Say of an error of the file system inside a ``with`` block that the run folder could not be written."""
    try:
        yield
    except RaydrError:
        raise
    except OSError as error:
        raise OutputError(
            f"The run folder {folder} could not be written: {error.strerror or error}. Free its place, or name"
            " another with --out."
        ) from error


@contextmanager
def _completing(folder: Path, target: Path, work: Unfinished, stays: bool = False) -> Iterator[None]:
    with work.locked():
        whole = False
        try:
            yield
            seal(folder)
            whole = True
            _rename(folder, target)
            shutil.rmtree(target / work.place.relative_to(folder), ignore_errors=True)
        except BaseException as error:
            if work.there and not whole:
                error.add_note(f"Go on {work.after} with `raydr {work.command} {folder} --resume`.")
            raise
        finally:
            if folder.exists() and not (whole or stays or work.there):
                shutil.rmtree(folder, ignore_errors=True)


def _rename(folder: Path, target: Path) -> None:
    """Give a whole folder its name; nothing in it is lost where that fails.

    Raises
    ------
    OutputError
        If something is there by now, or the file system refuses.
    """
    try:
        folder.rename(target)  # over an empty folder too
    except OSError as error:
        raise OutputError(
            f"All results are in {folder}, which could not be renamed to {target}: {error.strerror or error}. Free"
            f" that place and rename the folder yourself: mv {shlex.quote(str(folder))} {shlex.quote(str(target))}"
        ) from error
