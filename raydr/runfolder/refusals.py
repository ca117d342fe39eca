"""The error for an incomplete folder."""

from __future__ import annotations

from pathlib import Path

from raydr.errors import OutputError
from raydr.runfolder.records import SCENARIO, SWEEP, TRIALS


def is_sweep(folder: Path) -> bool:
    """Return whether a folder is a sweep folder, complete or not."""
    return any((folder / file).exists() for file in (SWEEP, TRIALS))


def not_whole(folder: Path, file: str, reason: str, remedy: str = "") -> OutputError:
    """Return the error for a folder with a missing or broken file.

    ``reason`` follows the name of the file; ``remedy`` is a sentence with another remedy.
    """
    noun, document = ("sweep", SWEEP) if is_sweep(folder) else ("run", SCENARIO)
    return OutputError(
        f"{folder} is not a complete {noun} folder: {file} {reason}. Restore the file, or repeat the {noun} with"
        f" `raydr {noun} {folder / document} --out ANOTHER-FOLDER`.{f' {remedy}' if remedy else ''}"
    )
