"""The manifest of a folder: the SHA-256 of its files, written last and checked by every reader."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from raydr.data.provenance import sha256_of_file
from raydr.documents import MEGABYTE, read_limited
from raydr.files import write_whole
from raydr.runfolder.records import (
    AUDIT,
    FINGERPRINTS,
    FRONTIER,
    MANIFEST,
    MODEL,
    PICTURE,
    RELIABILITY,
    REPORT,
    SITES,
    STABILITY,
    SWEEP_REPORT,
    TABLE_REPORT,
)
from raydr.runfolder.refusals import not_whole

NOT_LISTED = frozenset({MANIFEST, REPORT, PICTURE, SWEEP_REPORT, FRONTIER, TABLE_REPORT, FINGERPRINTS, SITES})
"""Files that are not in the manifest.

``raydr report`` writes pages and pictures again. A digest of ``fingerprints.json`` or ``sites.npz`` would reveal the
last record to someone who knows the others, even after the owner deleted these files. Their readers check them in
another way.
"""
REMOVABLE = frozenset({AUDIT, STABILITY, RELIABILITY})
"""Files that the owner of the data may delete."""
_REMEDY = "free disk space there, and try again"
_HOW = "To read the folder as it is, pass --edited (in Python edited=True); its pages then have a warning."
_ACCEPTED: ContextVar[dict[str, None] | None] = ContextVar("edits_accepted", default=None)


@dataclass(frozen=True)
class _File:
    """Size and SHA-256 of a file."""

    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> _File:
        return cls(path.stat().st_size, sha256_of_file(path))

    def is_that_of(self, path: Path) -> bool:
        """Return whether a file is the same. Sizes come first: a file that grew may be too large to hash."""
        return path.stat().st_size == self.bytes and sha256_of_file(path) == self.sha256


@contextmanager
def edits_accepted() -> Iterator[Mapping[str, None]]:
    """Accept folders whose files differ from their manifest; yield a mapping whose keys describe the differences."""
    found: dict[str, None] = {}
    token = _ACCEPTED.set(found)
    try:
        yield found
    finally:
        _ACCEPTED.reset(token)


def seal(folder: Path, *changed: str) -> None:
    """Write the manifest of a folder; with file names, update only their entries.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    listed = _read(folder) if changed else {}
    if isinstance(listed, str):  # an edited folder stays edited
        return
    files = dict(listed)
    for name in changed or sorted(_present(folder)):
        files[name] = _File.of(folder / name)
    content = {"files": {name: asdict(file) for name, file in files.items()}}
    write_whole(folder / MANIFEST, (json.dumps(content, indent=1) + "\n").encode(), _REMEDY)


def require_unchanged(folder: Path, *names: str) -> tuple[str, ...]:
    """Check the files of a folder against its manifest.

    Parameters
    ----------
    folder : Path
        A run folder, a sweep folder, or the folder of a site that joined.
    names : str
        The files to check; default: all. A name that is neither in the folder nor in the manifest is fine.

    Returns
    -------
    tuple of str
        The differences in words; empty outside of :func:`edits_accepted`.

    Raises
    ------
    OutputError
        If a file differs, is missing, or is not in the manifest, and edits are not accepted.
    """
    accepted = _ACCEPTED.get()
    found = _differing(folder, names)
    if found and accepted is None:
        file, reason = found[0]
        raise not_whole(folder, file, reason, _HOW)
    if accepted is not None:
        accepted.update((f"{folder / file} {reason}", None) for file, reason in found)
    return tuple(f"{file} {reason}" for file, reason in found)


def _differing(folder: Path, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the files that differ from the manifest, and how."""
    files = _read(folder)
    if isinstance(files, str):
        return [(MANIFEST, files)]
    found = []
    for name in names or sorted(files.keys() | _present(folder)):
        path = folder / name
        if not path.is_file():
            if name in files and name not in REMOVABLE:
                found.append((name, "is missing"))
        elif name not in files:
            found.append((name, f"is not listed in {MANIFEST}"))
        elif not files[name].is_that_of(path):
            found.append((name, "was changed after it was written"))
    return found


def _present(folder: Path) -> set[str]:
    files = (*folder.iterdir(), *(folder / MODEL).glob("*"))
    names = {file.relative_to(folder).as_posix() for file in files if file.is_file()}
    return {name for name in names if not name.startswith(".")} - NOT_LISTED


def _read(folder: Path) -> dict[str, _File] | str:
    """Return the entries of a manifest by name, or a text if it cannot be used."""
    try:
        content = json.loads(read_limited(folder / MANIFEST, MEGABYTE))
        files = {name: _File(**file) for name, file in content["files"].items()}
    except FileNotFoundError:
        return "is missing"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "is damaged"
    if any(PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts for name in files):
        return "names files elsewhere"
    return files
