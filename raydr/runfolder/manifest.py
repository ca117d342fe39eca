"""The manifest of a folder: the SHA-256 of every file in it, written last and checked by every reader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from raydr.data.provenance import sha256_of_file
from raydr.documents import MEGABYTE, read_limited
from raydr.errors import OutputError
from raydr.files import write_whole
from raydr.runfolder.records import (
    AUDIT,
    FINGERPRINTS,
    FRONTIER,
    MANIFEST,
    MODEL,
    PICTURE,
    REPORT,
    SCENARIO,
    SITES,
    SWEEP,
    SWEEP_REPORT,
    TABLE_REPORT,
)

NOT_LISTED = frozenset({MANIFEST, REPORT, PICTURE, SWEEP_REPORT, FRONTIER, TABLE_REPORT, FINGERPRINTS, SITES})
"""Files that are not in the manifest.

``raydr report`` makes pages and pictures again. A digest of ``fingerprints.json`` or ``sites.npz`` would tell the last
record to somebody who knows the others, after the owner deleted these files; their readers check them otherwise.
"""
REMOVABLE = frozenset({AUDIT})
"""Files that the owner of the data may delete."""
_REMEDY = "make room there, and try again"
_ACCEPTED: ContextVar[bool] = ContextVar("edits_accepted", default=False)


@dataclass(frozen=True)
class _File:
    """Size and SHA-256 of a file."""

    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> _File:
        return cls(path.stat().st_size, sha256_of_file(path))

    def is_that_of(self, path: Path) -> bool:
        """Compare sizes first: a file that grew may be too large to hash."""
        return path.stat().st_size == self.bytes and sha256_of_file(path) == self.sha256


@contextmanager
def edits_accepted() -> Iterator[None]:
    """Read folders whose files differ from their manifest, for the length of a ``with`` block."""
    token = _ACCEPTED.set(True)
    try:
        yield
    finally:
        _ACCEPTED.reset(token)


def seal(folder: Path, *changed: str) -> None:
    """Write the manifest of a folder; with names of files, of these alone: the other entries stay as they are.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    files = _read(folder) if changed else {}
    for name in changed or sorted(_present(folder)):
        files[name] = _File.of(folder / name)
    content = {"files": {name: asdict(file) for name, file in files.items()}}
    write_whole(folder / MANIFEST, (json.dumps(content, indent=1) + "\n").encode(), _REMEDY)


def require_unchanged(folder: Path, *names: str) -> tuple[str, ...]:
    """Check the files of a folder against its manifest.

    Parameters
    ----------
    folder : Path
        A run folder, a sweep folder, or that of a site that joined.
    names : str
        The files to check; all without them. One that neither the folder nor the manifest has is as it should be.

    Returns
    -------
    tuple of str
        What differs, in words; empty outside of :func:`edits_accepted`.

    Raises
    ------
    OutputError
        If a file differs, is missing, or is not in the manifest, and edits are not accepted.
    """
    accepted = _ACCEPTED.get()
    try:
        files = _read(folder)
    except OutputError as error:
        if accepted:
            return (f"{MANIFEST} cannot be used",)
        raise error
    found = []
    for name in names or sorted(files.keys() | _present(folder)):
        path = folder / name
        if not path.is_file():
            if name in files and name not in REMOVABLE:
                found.append(f"{name} is missing")
        elif name not in files:
            found.append(f"{name} is not listed in {MANIFEST}")
        elif not files[name].is_that_of(path):
            found.append(f"{name} was changed after it was written")
    if found and not accepted:
        raise _changed(folder, "; ".join(found[:3]) + ("; ..." if len(found) > 3 else ""))
    return tuple(found)


def _changed(folder: Path, reason: str) -> OutputError:
    noun, asked = ("sweep", SWEEP) if (folder / SWEEP).exists() else ("run", SCENARIO)
    return OutputError(
        f"{folder} is not a whole {noun} folder: {reason}. Bring the file back, or repeat the {noun} with"
        f" `raydr {noun} {folder / asked} --out ANOTHER-FOLDER`. To read the folder as it is, pass --edited (in Python"
        " edited=True); pages that are made then say so."
    )


def _present(folder: Path) -> set[str]:
    files = (*folder.iterdir(), *(folder / MODEL).glob("*"))
    names = {file.relative_to(folder).as_posix() for file in files if file.is_file()}
    return {name for name in names if not name.startswith(".")} - NOT_LISTED


def _read(folder: Path) -> dict[str, _File]:
    try:
        content = json.loads(read_limited(folder / MANIFEST, MEGABYTE))
        files = {name: _File(**file) for name, file in content["files"].items()}
    except FileNotFoundError:
        raise _changed(folder, f"{MANIFEST} is missing") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _changed(folder, f"{MANIFEST} is damaged") from None
    if any(PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts for name in files):
        raise _changed(folder, f"{MANIFEST} names files elsewhere")
    return files
