"""The error for a folder that is not whole."""

from __future__ import annotations

from pathlib import Path

from raydr.errors import OutputError
from raydr.runfolder.records import SCENARIO, SWEEP, TRIALS


def is_sweep(folder: Path) -> bool:
    """Whether a folder is a sweep's, whole or not, rather than a run's."""
    return any((folder / file).exists() for file in (SWEEP, TRIALS))


def not_whole(folder: Path, file: str, reason: str, remedy: str = "") -> OutputError:
    """Return the error that refuses a folder because of one of its files.

    ``reason`` follows the name of the file; ``remedy`` is a sentence on what else can be done.
    """
    noun, asked = ("sweep", SWEEP) if is_sweep(folder) else ("run", SCENARIO)
    return OutputError(
        f"{folder} is not a whole {noun} folder: {file} {reason}. Bring the file back, or repeat the {noun} with"
        f" `raydr {noun} {folder / asked} --out ANOTHER-FOLDER`.{f' {remedy}' if remedy else ''}"
    )
