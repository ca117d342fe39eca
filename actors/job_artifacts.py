"""A job's folder, packed for the head's dashboard to serve: next to the logs of Ray's session.

A dashboard serves every file below the log folder, byte for byte, through its one port, to clients with the token. The
folder is removed with the session.
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
"""Bytes of a part. Each part is fetched, and if necessary fetched again, on its own."""
LARGEST = 2_000_000_000
"""Largest size of a packed folder, in bytes."""
MANIFEST = "manifest.json"
_ATTRIBUTES = 2**20
"""Largest size of a member's attributes, in bytes; its content is read 16 KiB at a time."""
_FORM = 1


@dataclass(frozen=True)
class Manifest:
    """Description of a kept archive (tar, gzip): size in bytes, number of parts (``0``, ``1``, ...), and hash."""

    size: Count
    parts: Count
    sha256: str
    form: int = _FORM

    def to_json(self) -> bytes:
        """Return the manifest as the content of a file."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, content: bytes) -> Manifest:
        """Parse and check a manifest; raise ValueError if it is invalid or of an unknown format."""
        manifest = TypeAdapter(cls).validate_json(content)
        if manifest.form != _FORM or manifest.size > LARGEST or manifest.parts != -(-manifest.size // PART):
            raise ValueError("not a manifest of this format")
        return manifest


def place_of(submission: str) -> str:
    """Return the folder of a job's parts, relative to the log folder."""
    return f"raydr/{submission}"


def keep(folder: Path, submission: str) -> Manifest:
    """Pack a folder for its client to fetch.

    Parameters
    ----------
    folder : Path
        Folder to keep.
    submission : str
        Id of the job.

    Raises
    ------
    OutputError
        If there is not enough disk space, or the folder is too large.
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
            f"Cannot pack the job's folder on the cluster's head ({error.strerror or error}: {place}). Free disk"
            " space there."
        ) from error
    manifest = Manifest(parts.size, parts.count, parts.digest.hexdigest())
    write_whole(place / MANIFEST, manifest.to_json(), "free disk space there")
    return manifest


class _Parts(io.RawIOBase):
    """A file that is split into files of ``PART`` bytes."""

    def __init__(self, place: Path) -> None:
        self.size = 0
        self.digest = hashlib.sha256()
        self._place = place

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Write bytes to the current part, and the rest to the next ones."""
        self.digest.update(data)
        left = memoryview(data)
        while left:
            room = PART - self.size % PART
            with (self._place / str(self.size // PART)).open("ab") as part:
                part.write(left[:room])
            self.size += len(left[:room])
            left = left[room:]
            if self.size > LARGEST:
                raise OSError(f"it is larger than {LARGEST / 1e9:g} GB, the most that can be fetched")
        return len(data)

    @property
    def count(self) -> int:
        """Number of parts so far."""
        return -(-self.size // PART)


def unpacked(parts: Iterator[bytes], manifest: Manifest, folder: Path) -> None:
    """Join an archive, verify it, and unpack it into an existing folder.

    Raises
    ------
    OSError
        If the folder cannot be written.
    ValueError
        If the content differs from what was kept, or needs more space than is free.
    """
    packed = folder / ".packed"
    digest = hashlib.sha256()
    try:
        with packed.open("wb") as file:
            for part in parts:
                digest.update(part)
                file.write(part)
        if digest.hexdigest() != manifest.sha256:
            raise ValueError("its SHA-256 does not match")
        room = shutil.disk_usage(folder).free

        def within_room(member: tarfile.TarInfo, place: str) -> tarfile.TarInfo | None:
            nonlocal room
            room -= member.size
            if room < 0:
                raise ValueError(
                    f"it needs more space than is free in {folder}: {member.name} of {size(member.size)} does not"
                    " fit"
                )
            return tarfile.data_filter(member, place)

        try:
            with _Unpacking(packed) as content, tarfile.open(fileobj=content, mode="r:") as archive:
                archive.extractall(folder, filter=within_room)
        # A truncated file raises EOFError. BadGzipFile is an OSError, like the error of a full disk.
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, OverflowError) as error:
            raise ValueError(f"its archive is truncated or damaged: {error}") from error
    finally:
        packed.unlink(missing_ok=True)


class _Unpacking(gzip.GzipFile):
    """An archive's content with limited reads: tarfile holds a member's attributes in memory."""

    def read(self, size: int | None = -1) -> bytes:
        """Return bytes: a few kilobytes of attributes, or one block of a member."""
        if size is None or not 0 <= size <= _ATTRIBUTES:
            raise tarfile.ReadError(f"a member's attributes take {size} bytes")
        return super().read(size)


def _logs() -> Path:
    """Return the log folder of Ray's session, which contains the working directory of a job."""
    for folder in Path.cwd().parents:
        if folder.name.startswith("session_") and (folder / "logs").is_dir():
            return folder / "logs"
    raise OutputError(
        f"Cannot find the folder of Ray's session above {Path.cwd()}, so the job's folder cannot be fetched."
        " Install a release of Ray that raydr was tested with."
    )
