"""A job's folder, packed where its head's dashboard can serve it: beside the logs of Ray's session.

A dashboard serves any file below that folder, through its one port and to whoever has the token, in what bytes it
holds. The folder goes with the session.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from raydr.errors import OutputError
from raydr.files import write_whole
from raydr.journal import Count
from raydr.memory import size

PART = 8 * 2**20
"""Bytes of a part, each of which is fetched, and when need be fetched again, on its own."""
LARGEST = 2_000_000_000
"""Bytes of a folder, packed."""
MANIFEST = "manifest.json"
_ATTRIBUTES = 2**20
"""Bytes of a member's attributes, at most; its content is read 16 KiB at a time."""
_FORM = 1


@dataclass(frozen=True)
class Manifest:
    """What was kept: an archive (tar, gzip) of so many bytes in parts ``0``, ``1``, ..., and its hash."""

    size: Count
    parts: Count
    sha256: str
    form: int = _FORM

    def to_json(self) -> bytes:
        """As a file."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, content: bytes) -> Manifest:
        """Read and check one; raises ValueError if it is none, or of a form that is not known here."""
        manifest = TypeAdapter(cls).validate_json(content)
        if manifest.form != _FORM or manifest.size > LARGEST or manifest.parts != -(-manifest.size // PART):
            raise ValueError("not a manifest of this form")
        return manifest


def place_of(submission: str) -> str:
    """Return the folder of a job's parts, below that of the logs."""
    return f"raydr/{submission}"


def keep(folder: Path, submission: str) -> Manifest:
    """Pack a folder for its client to fetch.

    Parameters
    ----------
    folder : Path
        What to keep.
    submission : str
        Id of the job.

    Raises
    ------
    OutputError
        If there is no room, or the folder is too large.
    """
    place = _logs() / place_of(submission)
    try:
        place.mkdir(parents=True, exist_ok=True)
        parts = _Parts(place)
        with tarfile.open(fileobj=parts, mode="w|gz") as archive:
            archive.add(folder, arcname=".")
    except OSError as error:
        for part in place.glob("*"):
            part.unlink(missing_ok=True)
        raise OutputError(
            f"The job's folder could not be packed on the cluster's head ({error.strerror or error}: {place}): free"
            " some room there."
        ) from error
    manifest = Manifest(parts.size, parts.count, parts.digest.hexdigest())
    write_whole(place / MANIFEST, manifest.to_json(), "free some room there")
    return manifest


class _Parts(io.RawIOBase):
    """A file of which each so many bytes lie in a file of their own."""

    def __init__(self, place: Path) -> None:
        self.size = 0
        self.digest = hashlib.sha256()
        self._place = place

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: Any) -> int:
        """Write bytes to the part that has room for them, and the rest to the next."""
        self.digest.update(data)
        left = memoryview(data)
        while left:
            room = PART - self.size % PART
            with (self._place / str(self.size // PART)).open("ab") as part:
                part.write(left[:room])
            self.size += len(left[:room])
            left = left[room:]
            if self.size > LARGEST:
                raise OSError(f"it is more than {LARGEST / 1e9:g} GB, which is the most that is brought back")
        return len(data)

    @property
    def count(self) -> int:
        """Parts so far."""
        return -(-self.size // PART)


def unpacked(parts: Iterator[bytes], manifest: Manifest, folder: Path) -> None:
    """Put an archive together, verify it, and unpack it into a folder that is there.

    Raises
    ------
    OSError
        If the folder cannot be written.
    ValueError
        If what came is not what was kept, or unpacks to more than there is room for.
    """
    packed = folder / ".packed"
    digest = hashlib.sha256()
    try:
        with packed.open("wb") as file:
            for part in parts:
                digest.update(part)
                file.write(part)
        if digest.hexdigest() != manifest.sha256:
            raise ValueError("its SHA-256 is another")
        room = shutil.disk_usage(folder).free

        def within_room(member: tarfile.TarInfo, place: str) -> tarfile.TarInfo | None:
            nonlocal room
            room -= member.size
            if room < 0:
                raise ValueError(
                    f"it unpacks to more than is free in {folder}: {member.name} of {size(member.size)} does not fit"
                )
            return tarfile.data_filter(member, place)

        try:
            with _Unpacking(packed) as content, tarfile.open(fileobj=content, mode="r:") as archive:
                archive.extractall(folder, filter=within_room)
        # A file that was cut is an EOFError, and of gzip's own errors one is an OSError, as of a full disk.
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, OverflowError) as error:
            raise ValueError(f"its archive was cut or damaged: {error}") from error
    finally:
        packed.unlink(missing_ok=True)


class _Unpacking(gzip.GzipFile):
    """An archive's content, of which nobody reads much at once: tarfile holds a member's attributes in memory."""

    def read(self, size: int | None = -1) -> bytes:
        """Bytes, of a few kilobytes of attributes or of one block of a member."""
        if size is None or not 0 <= size <= _ATTRIBUTES:
            raise tarfile.ReadError(f"a member's attributes take {size} bytes")
        return super().read(size)


def _logs() -> Path:
    """Return the folder of the logs of Ray's session, in which the working directory of a job lies."""
    for folder in Path.cwd().parents:
        if folder.name.startswith("session_") and (folder / "logs").is_dir():
            return folder / "logs"
    raise OutputError(
        f"The folder of Ray's session is not where it was expected, above {Path.cwd()}, so the job's folder cannot be"
        " brought back: install the release of Ray that raydr was tested with."
    )
