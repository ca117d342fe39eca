"""A sweep's folder: made under a name that says incomplete, filled trial by trial, renamed when all of them ended."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from raydr.files import open_private
from raydr.runfolder import records
from raydr.runfolder.locking import locked

Packed = Mapping[str, bytes]
"""Content of a folder's files by their paths in it."""


@dataclass(frozen=True)
class SweepWork:
    """What an incomplete sweep folder holds for whoever goes on with it: trials that ended.

    Attributes
    ----------
    folder : Path
        The sweep's.
    """

    folder: Path

    noun: ClassVar[str] = "sweep"
    stored: ClassVar[str] = records.SWEEP
    after: ClassVar[str] = "after the trials that ended"
    command: ClassVar[str] = "sweep"

    @property
    def place(self) -> Path:
        """Folder of the lock, and of trials that have not come whole yet."""
        return self.folder / "unfinished"

    @property
    def there(self) -> bool:
        """Whether any trial ended."""
        return (self.folder / records.TRIALS).exists() or any(self._trials())

    def locked(self) -> AbstractContextManager[None]:
        """Keep every other process from the sweep: see :func:`raydr.runfolder.locking.locked`."""
        return locked(self.place, self.noun)

    def run(self, name: str) -> Path:
        """Run folder of a trial, where it is done."""
        return self.folder / records.TRIAL_FOLDERS / name

    def clear(self) -> None:
        """Remove what had not come whole when the sweep was interrupted."""
        for left in self.place.glob("trial-*"):
            shutil.rmtree(left, ignore_errors=True)

    def take(self, name: str, content: Packed) -> None:
        """Unpack a trial's run folder, which stands under its name once it is whole; a second time changes nothing."""
        if self.run(name).exists():
            return
        unfinished = self.place / f"trial-{name}"
        shutil.rmtree(unfinished, ignore_errors=True)
        for path, data in content.items():
            (unfinished / path).parent.mkdir(parents=True, exist_ok=True)
            file = unfinished / path
            with open_private(file) if path in records.PRIVATE else file.open("wb") as opened:
                opened.write(data)
        self.run(name).parent.mkdir(exist_ok=True)
        unfinished.rename(self.run(name))

    def _trials(self) -> Iterator[Path]:
        return (self.folder / records.TRIAL_FOLDERS).glob("*")


@dataclass(frozen=True)
class TableWork(SweepWork):
    """The same of a published table, whose own command also prints it."""

    command: ClassVar[str] = "reproduce"


def packed(folder: Path) -> Packed:
    """Every file of a folder, from wherever a trial ran to wherever its sweep is kept."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
