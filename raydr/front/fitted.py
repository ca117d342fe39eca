"""The run of a fitted estimator, with the lifetime of the estimator."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import finalize

from raydr.front.result import Result
from raydr.runfolder.records import PICTURE, REPORT


@dataclass(frozen=True, repr=False)
class FittedRun(Result):
    """The run of an estimator. Pickling includes its files; unpickling writes them to a temporary folder.

    Attributes
    ----------
    temporary : bool
        Whether the parent of the run folder is deleted with this object.
    """

    temporary: bool = False

    def __post_init__(self) -> None:
        if self.temporary:
            finalize(self, _remove, self.folder.parent, os.getpid())

    @property
    def report(self) -> Path:
        """Path of the report, written on first use."""
        from raydr.report import write_report

        page = super().report
        return page if page.exists() else write_report(self.folder)

    def __reduce__(self) -> tuple[Any, ...]:
        files = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        content = {
            path.relative_to(self.folder).as_posix(): path.read_bytes()
            for path in files
            if path.name not in (REPORT, PICTURE)
        }
        return _restored, (content,)


def temporary_place() -> Path:
    """Return a path for a run in a new folder that only this user can read."""
    return Path(tempfile.mkdtemp(prefix="raydr-fit-")) / "run"


def _restored(files: Mapping[str, bytes]) -> FittedRun:
    folder = temporary_place()
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return FittedRun(folder, temporary=True)


def _remove(folder: Path, process: int) -> None:
    """Remove a folder, only in the process that made it, not in its forks."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
