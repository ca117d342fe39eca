"""The run that a fitted estimator keeps, for as long as the estimator lasts."""

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
    """The run of an estimator, whose folder holds no row; pickled with its files, and then in a temporary folder.

    Attributes
    ----------
    temporary : bool
        Whether the folder, alone in another, goes when this goes.
    """

    temporary: bool = False

    def __post_init__(self) -> None:
        if self.temporary:
            finalize(self, _remove, self.folder.parent, os.getpid())

    @property
    def report(self) -> Path:
        """The report's page, made now if it was not."""
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
    """A place for a run, in a folder that nobody else can read."""
    return Path(tempfile.mkdtemp(prefix="raydr-fit-")) / "run"


def _restored(files: Mapping[str, bytes]) -> FittedRun:
    folder = temporary_place()
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return FittedRun(folder, temporary=True)


def _remove(folder: Path, process: int) -> None:
    """Remove a folder, in the process that made it: its forks leave it alone."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
