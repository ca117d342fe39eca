"""Run folders and sweep folders: file names, writers and readers."""

from __future__ import annotations

from raydr.runfolder.reading import RunFolder, read_audit, read_run
from raydr.runfolder.refusals import is_sweep
from raydr.runfolder.sweep import Point, SweepFolder, read_sweep

__all__ = [
    "Point",
    "RunFolder",
    "SweepFolder",
    "is_sweep",
    "read_audit",
    "read_run",
    "read_sweep",
]
