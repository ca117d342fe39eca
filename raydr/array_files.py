"""Readers for NumPy array files from untrusted sources.

Every header is compared with the file and with the free memory before memory is allocated. numpy does not
check: a header of 128 bytes can ask for terabytes, and an archive of a few megabytes can unpack to gigabytes.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from raydr.memory import lacking_memory, size

_SAVE = "Save plain arrays of numbers or text with numpy.save or numpy.savez."
_AGAIN = "Copy the file again, or save the array again with numpy.save or numpy.savez."


class ArrayFileError(ValueError):
    """An array file that cannot be read. The message says what is wrong and what to do, as the end of a sentence."""


def read_array_file(path: Path) -> NDArray[Any]:
    """Read the array of a .npy file.

    Raises
    ------
    OSError
        If the file cannot be opened.
    ArrayFileError
        If it is not one array that can be read.
    """
    with path.open("rb") as file:
        return _read(file, path.stat().st_size, "its header")


class ArrayArchive(Mapping[str, NDArray[Any]]):
    """The arrays of an .npz file by name. Each array is read on access.

    Parameters
    ----------
    file : Path or binary file
        The archive.

    Raises
    ------
    OSError
        If the file cannot be opened.
    ArrayFileError
        If the file is not an archive, or an array cannot be read.
    """

    def __init__(self, file: Path | BinaryIO) -> None:
        try:
            self._zip = zipfile.ZipFile(file)
        except OSError:
            raise
        except Exception as error:  # zipfile raises several types for a damaged file
            raise ArrayFileError(f"{_reason(error)}. {_AGAIN}") from error
        self._members = {info.filename.removesuffix(".npy"): info for info in self._zip.infolist()}

    def __enter__(self) -> ArrayArchive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._zip.close()

    def __getitem__(self, name: str) -> NDArray[Any]:
        info = self._members[name]
        try:
            with self._zip.open(info) as file:
                return _read(file, info.file_size, f"the header of {name!r}")
        except (ArrayFileError, MemoryError):
            raise
        except Exception as error:  # each compression raises its own type
            raise ArrayFileError(
                f"the array {name!r} cannot be unpacked ({_reason(error)}). {_AGAIN}"
            ) from error

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


def write_array_archive(
    file: Path | IO[bytes], arrays: Mapping[str, NDArray[Any]], *, is_compressed: bool = False
) -> None:
    """Write arrays as an .npz file, byte for byte as ``numpy.savez`` does.

    ``numpy.savez`` itself has no ``allow_pickle`` before NumPy 2.2 and stores an array of that name instead.

    Parameters
    ----------
    file : Path or binary file
        Where to write.
    arrays : mapping of str to array
        Arrays of numbers or text by name.
    is_compressed : bool
        Whether to deflate, as ``numpy.savez_compressed`` does.

    Raises
    ------
    OSError
        If the file cannot be written.
    ValueError
        If an array holds Python objects.
    """
    compression = zipfile.ZIP_DEFLATED if is_compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, np.asanyarray(values), allow_pickle=False)


def _read(file: IO[bytes], length: int, header: str) -> NDArray[Any]:
    """Read an array from a file of ``length`` bytes. Errors call its header ``header``."""
    shape, dtype, start = _header(file, length, header)
    claimed = f"{header} gives the shape {shape} of {dtype}"
    if dtype.hasobject:
        raise ArrayFileError(
            f"{claimed}. The array holds pickled Python objects, which raydr does not open, because they can run code."
            f" {_SAVE}"
        )
    if min(shape, default=0) < 0:
        raise ArrayFileError(
            f"{claimed}, which is not a valid shape. {size(length - start)} follow it. {_AGAIN}"
        )
    numbers, held = math.prod(shape), length - start
    if numbers * dtype.itemsize != held:
        raise ArrayFileError(
            f"{claimed}, which takes {size(numbers * dtype.itemsize)}, but the file holds {size(held)}. It was cut, or"
            f" the header is wrong. {_AGAIN}"
        )
    # A table holds float32 or float64. Numbers of another type are in memory twice for a moment.
    lacking = lacking_memory(held + (numbers * _table_itemsize(dtype)))
    if lacking is not None:
        raise ArrayFileError(
            f"{claimed}: {lacking}. Use fewer rows or columns, a smaller type, or a machine with more memory. To see"
            f" what a run needs, run `raydr plan FILE --rows {shape[0]}` on a file with some of the rows."
        )
    file.seek(0)
    try:
        with np.errstate(invalid="ignore"):
            return np.asarray(npy.read_array(file, allow_pickle=False))
    except (ValueError, TypeError) as error:  # empty arrays of impossible shapes
        raise ArrayFileError(f"{claimed}, but it cannot be read ({_reason(error)}). {_AGAIN}") from error


def _table_itemsize(dtype: np.dtype[Any]) -> int:
    """Return the bytes per number of the table made from an array, or 0 if it uses the array itself or is text."""
    if dtype.kind not in "biuf" or dtype.itemsize in (4, 8) * (dtype.kind == "f"):
        return 0
    return 4 if dtype.itemsize <= 2 else 8


def _header(file: IO[bytes], length: int, header: str) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Return the shape and type from a header, and the offset of the array."""
    try:
        version = npy.read_magic(file)
        # Version 3 differs from version 2 only in the letters that field names can use.
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(file)
    except MemoryError:
        raise
    except Exception as error:  # numpy parses it as Python, so there are several types of syntax error
        raise ArrayFileError(
            f"{header} cannot be read ({_reason(error)}), but the file holds {size(length)}. {_AGAIN}"
        ) from error
    return shape, dtype, file.tell()


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
