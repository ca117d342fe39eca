"""A sweep's folder: made under an incomplete name, filled trial by trial, renamed when all trials ended."""

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
"""Content of a folder's files, by relative path."""


@dataclass(frozen=True)
class SweepWork:
    """State of an incomplete sweep folder, from which the sweep can be resumed: trials that ended.

    Attributes
    ----------
    folder : Path
        The sweep folder.
    """

    folder: Path

    noun: ClassVar[str] = "sweep"
    stored: ClassVar[str] = records.SWEEP
    after: ClassVar[str] = "after the trials that ended"
    command: ClassVar[str] = "sweep"

    @property
    def place(self) -> Path:
        """Folder of the lock, and of trials that are still being received."""
        return self.folder / "unfinished"

    @property
    def there(self) -> bool:
        """Whether any trial ended."""
        return (self.folder / records.TRIALS).exists() or any(self._trials())

    def locked(self) -> AbstractContextManager[None]:
        """Lock the sweep against other processes: see :func:`raydr.runfolder.locking.locked`."""
        return locked(self.place, self.noun)

    def run(self, name: str) -> Path:
        """Return the run folder of a trial; it exists if the trial is done."""
        return self.folder / records.TRIAL_FOLDERS / name

    def clear(self) -> None:
        """Remove trials that were incomplete when the sweep was interrupted."""
        for left in self.place.glob("trial-*"):
            shutil.rmtree(left, ignore_errors=True)

    def take(self, name: str, content: Packed) -> None:
        """Unpack a trial's run folder and rename it when it is complete; do nothing if it exists."""
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
    """State of an incomplete folder of a published table, which `raydr reproduce` resumes."""

    command: ClassVar[str] = "reproduce"


def packed(folder: Path) -> Packed:
    """Return every file of a folder, to send it from a trial's node to the sweep folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
