"""The package of a job: raydr itself, the job's input, and files that are small enough.

It is one zip archive. Ray unpacks it on every node that works for the job and puts it first on Python's path there. So
a cluster needs no raydr, and an installed one is not used.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

from raydr.errors import DataError

LARGEST = 100_000_000
"""Largest size of an archive in bytes, compressed. A head takes 100 MiB in one request, and keeps them in memory for
each job.
"""

_ROOT = Path(__file__).parents[1]
"""The folder raydr, which contains ``raydr.actors.shipping``."""
_SUFFIXES = {".py", ".typed", ".yaml", ".html", ".css", ".js"}
"""Suffixes of raydr's own files in an installation."""
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""Fixed timestamp: the same files make the same archive, which is sent to a cluster once."""


@dataclass(frozen=True)
class Package:
    """An archive, named after its content."""

    content: bytes

    @property
    def name(self) -> str:
        """Name in Ray's format for its own packages."""
        return f"_ray_pkg_{hashlib.sha256(self.content).hexdigest()[:32]}.zip"


def packed(work: Mapping[str, Path | bytes]) -> Package:
    """Pack raydr and a job's input, by their names in its working directory.

    Raises
    ------
    DataError
        If the archive is too large to be sent, or a file cannot be read.
    """
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in sorted({**own_files(), **work}.items()):
            try:
                data = content.read_bytes() if isinstance(content, Path) else content
            except OSError as error:
                raise DataError(f"Cannot send {content!s} to the cluster ({error.strerror}).") from error
            file.writestr(zipfile.ZipInfo(name, _LONG_AGO), data, zipfile.ZIP_DEFLATED)
            if archive.tell() > LARGEST:
                raise DataError(
                    f"The job's files are larger than {LARGEST / 1e6:.0f} MB (compressed), the most that can be"
                    f" sent; {name} did not fit. Put it where the cluster's head can read it, and name that place."
                )
    return Package(archive.getvalue())


def compressed(path: Path, most: int) -> int:
    """Return the compressed size of a file, or a number above ``most`` if it is larger; OSError if unreadable."""
    if path.stat().st_size <= most:
        return path.stat().st_size
    size, deflate = 0, zlib.compressobj()
    with path.open("rb") as file:
        while size <= most and (piece := file.read(2**20)):
            size += len(deflate.compress(piece))
    return size + len(deflate.flush())


def own_files() -> dict[str, Path | bytes]:
    """Return raydr's own files by their names in an archive, with the metadata of an installation.

    The links from ``raydr/`` to ``actors/``, ``scenarios/`` and ``tune/`` are followed.
    """
    files: dict[str, Path | bytes] = {}
    for folder in _folders(_ROOT):
        for path in folder.iterdir():
            if path.suffix in _SUFFIXES:
                files[f"raydr/{path.relative_to(_ROOT).as_posix()}"] = path
    described = distribution("raydr")
    name = f"raydr-{described.version}.dist-info"
    files[f"{name}/METADATA"] = f"Metadata-Version: 2.1\nName: raydr\nVersion: {described.version}\n".encode()
    files["start.py"] = _ROOT / "actors" / "node_check.py"
    return files


def requirements() -> list[str]:
    """Return raydr's dependencies, without its extras."""
    return [text for text in distribution("raydr").requires or () if "extra ==" not in text]


def _folders(folder: Path) -> list[Path]:
    inner = [path for path in folder.iterdir() if path.is_dir() and path.name != "__pycache__"]
    return [folder, *(found for path in inner for found in _folders(path))]
