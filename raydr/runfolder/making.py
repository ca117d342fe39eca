"""Creation of run folders: written under an incomplete name, renamed when complete."""

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
"""Part of the name of every incomplete folder (:func:`raydr.runfolder.records.is_incomplete`)."""


def default_folder(name: str, started: datetime) -> Path:
    """Return ``runs/NAME-TIMESTAMP`` in the current directory, with a number from 2 on if that name is taken."""
    folder = Path("runs") / f"{name}-{started:%Y%m%d-%H%M%S}"
    candidates = chain([folder], (folder.with_name(f"{folder.name}-{number}") for number in count(2)))
    return next(
        path for path in candidates if not path.exists() and not any(path.parent.glob(f"{path.name}{_MARK}*"))
    )


class Unfinished(Protocol):
    """State in an incomplete folder from which a run or sweep can be resumed."""

    noun: ClassVar[str]
    """``"run"`` or ``"sweep"``."""
    stored: ClassVar[str]
    """Name of the scenario or sweep file in the folder."""
    command: ClassVar[str]
    """The raydr command that resumes it."""

    @property
    def after(self) -> str:
        """The point from which it resumes, in words."""

    @property
    def place(self) -> Path:
        """Folder of the state, which is removed when all is done."""

    @property
    def there(self) -> bool:
        """Whether there is state to resume from."""

    def locked(self) -> AbstractContextManager[None]:
        """Lock the folder against other processes."""


def require_free(target: Path) -> Path:
    """Return the absolute path for a new run folder.

    Raises
    ------
    OutputError
        If it exists and is not an empty folder, or its name contains "incomplete".
    """
    target = target.expanduser().absolute()
    if is_incomplete(target):
        raise OutputError(
            f"A run folder cannot be named {target.name}: 'incomplete' in a name marks a run that is not complete."
            " Pass another --out, or give the scenario another name."
        )
    try:
        taken = target.exists() and (not target.is_dir() or any(target.iterdir()))
    except OSError as error:
        raise _not_to_be_made(target, error) from error
    if taken and not target.is_dir():
        raise OutputError(
            f"{target} is a file, but a run writes a folder. Pass another --out, or move the file away."
        )
    if taken:
        raise OutputError(
            f"The output folder {target} exists and is not empty, and raydr overwrites nothing. Pass another --out, or"
            " move the folder away."
        )
    return target


@contextmanager
def incomplete(target: Path, work: Callable[[Path], Unfinished]) -> Iterator[Path]:
    """Make a folder next to ``target`` and rename it to ``target`` at the end.

    After an error the folder is removed, unless it can be resumed, for example from a checkpoint. Parent folders that
    were created for it are removed too if they are empty.

    Raises
    ------
    OutputError
        Before any work: if ``target`` exists and is not an empty folder, or its name contains "incomplete". Also if
        another process is writing it, or its parent cannot be written. At the end: if the folder cannot be renamed;
        it then keeps its results.
    """
    target = require_free(target)
    for other in target.parent.glob(f"{glob.escape(target.name)}{_MARK}*"):
        _require_left(other, target, work(other))
    folder = target.with_name(f"{target.name}{_MARK}{secrets.token_hex(3)}")
    made = [parent for parent in target.parents if not parent.exists()]
    try:
        with ExitStack() as completing:
            with signals_deferred():  # a signal in between would leave the folder behind
                try:
                    folder.mkdir(parents=True)
                except OSError as error:
                    raise _not_to_be_made(target, error) from error
                completing.enter_context(_completing(folder, target, work(folder)))
            yield folder
    except BaseException:
        with suppress(OSError):  # stop at the first that is not empty or does not exist
            for parent in made:
                parent.rmdir()
        raise


def _require_left(folder: Path, target: Path, work: Unfinished) -> None:
    """Raise if another process is still writing an incomplete folder for the same target."""
    if work.place.is_dir() and is_locked(work.place):
        raise OutputError(
            f"Another process is writing {target}, in {folder.name}. Wait until it ends, or pass another --out."
        )


def _not_to_be_made(target: Path, error: OSError) -> OutputError:
    return OutputError(
        f"Cannot create the output folder {target}: {error.strerror} ({error.filename}). Pass another --out, or free"
        " this path."
    )


@contextmanager
def taken_up(folder: Path, work: Callable[[Path], Unfinished]) -> Iterator[Path]:
    """Resume in an incomplete folder and rename it at the end; after an error the folder is always kept."""
    with _completing(folder, target_of(folder, work), work(folder), stays=True):
        yield folder


def target_of(folder: Path, work: Callable[[Path], Unfinished]) -> Path:
    """Return the path that an incomplete folder gets when it is complete.

    Raises
    ------
    OutputError
        If it is not an incomplete folder of this kind, or the complete folder already exists.
    """
    name, mark, _ = folder.name.rpartition(_MARK)
    noun, stored = work(folder).noun, work(folder).stored
    if not mark or not (folder / stored).is_file():
        raise OutputError(
            f"{folder} is not an interrupted {noun}. Pass a folder that has {_MARK!r} in its name and contains"
            f" {stored}; the interrupted {noun} printed its name."
        )
    target = folder.with_name(name)
    if target.exists():
        raise OutputError(f"{target}, the complete form of {folder}, already exists. Move it away to resume.")
    return target


def interrupted(target: Path, work: Callable[[Path], Unfinished]) -> Path | None:
    """Return the incomplete folder from which ``target`` can be completed, the newest if there are several.

    None if there is none.
    """
    target = target.expanduser().absolute()
    found = [
        folder for folder in target.parent.glob(f"{glob.escape(target.name)}{_MARK}*") if work(folder).there
    ]
    return max(found, key=lambda folder: folder.stat().st_mtime_ns, default=None)


@contextmanager
def unwritable(folder: Path) -> Iterator[None]:
    """Turn a file system error inside a ``with`` block into an ``OutputError`` about the run folder."""
    try:
        yield
    except RaydrError:
        raise
    except OSError as error:
        raise OutputError(
            f"The run folder {folder} could not be written: {error.strerror or error}. Free disk space there, or pass"
            " another --out."
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
                error.add_note(f"Continue {work.after} with `raydr {work.command} {folder} --resume`.")
            raise
        finally:
            if folder.exists() and not (whole or stays or work.there):
                shutil.rmtree(folder, ignore_errors=True)


def _rename(folder: Path, target: Path) -> None:
    """Rename a complete folder to its final name; if this fails, nothing is lost.

    Raises
    ------
    OutputError
        If the target exists by now, or the file system refuses.
    """
    try:
        folder.rename(target)  # over an empty folder too
    except OSError as error:
        raise OutputError(
            f"All results are in {folder}, but it could not be renamed to {target}: {error.strerror or error}. Free"
            f" that path and rename the folder yourself: mv {shlex.quote(str(folder))} {shlex.quote(str(target))}"
        ) from error
