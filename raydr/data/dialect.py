"""How a text table is written: its letters, what separates its cells, how fractions are spelt, whether it is packed."""

from __future__ import annotations

import codecs
import csv
import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, TextIO

from raydr.errors import DataError
from raydr.memory import size

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_OTHERS = {
    b"PK": "a spreadsheet or a ZIP archive",
    b"\xd0\xcf\x11\xe0": "a spreadsheet",
    b"\x1f\x8b": "a file packed by gzip, whose name ends in .gz,",
    b"PAR1": "a Parquet file",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"%PDF": "a PDF",
}
"""What is no text, by its first bytes."""
LONGEST_LINE = 2**26
"""Bytes of a line, at most: no more of a text is read at once."""
_SEEN = 500  # records by which fractions are judged
_COMMA, _POINT = re.compile(r"[-+]?\d+,\d+"), re.compile(r"[-+]?\d+\.\d+")


@dataclass(frozen=True)
class Dialect:
    """How one file is written.

    Attributes
    ----------
    separator : str
        Between cells.
    encoding : str
        ``utf-8-sig``, ``utf-16``, or ``cp1252``, which every file of Western Europe can be read by.
    decimal : str
        Point or comma: before the fraction of a number.
    packed : bool
        Whether it is compressed by gzip.
    """

    separator: str = ","
    encoding: str = "utf-8-sig"
    decimal: str = "."
    packed: bool = False

    @classmethod
    def of(cls, path: Path) -> Dialect:
        """Find out how a file is written.

        Raises
        ------
        DataError
            If it is empty, or no text.
        """
        packed = path.suffix.lower() == ".gz"
        try:
            encoding = _encoding(path, packed)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{path} cannot be unpacked by gzip: {error}.") from error
        plain = cls(encoding=encoding, packed=packed)
        with plain.open(path) as file:
            header = next((line for line in file if line.strip()), "")
        if not header:
            raise DataError(f"{path} is empty; a CSV file needs a header line and at least two rows.")
        separator = max(SEPARATORS, key=header.count)
        found = cls(separator, encoding, packed=packed)
        return cls(separator, encoding, found._decimal(path), packed)

    def __str__(self) -> str:
        """Say it in words.

        >>> str(Dialect(";", "cp1252", ","))
        'separated by semicolons, in cp1252, with decimal commas'
        """
        parts = [f"separated by {SEPARATORS[self.separator]}"]
        parts += ["packed by gzip"] * self.packed
        parts += [f"in {self.encoding.upper()}"] * (self.encoding == "utf-16")
        parts += [f"in {self.encoding}"] * (self.encoding == "cp1252")
        parts += ["with decimal commas"] * (self.decimal == ",")
        return ", ".join(parts)

    def open(self, path: Path, *, errors: str = "strict") -> TextIO:
        """Open the file as text, line breaks as they are."""
        if self.packed:
            return gzip.open(path, "rt", encoding=self.encoding, errors=errors, newline="")
        return path.open(encoding=self.encoding, errors=errors, newline="")

    def text_bytes(self, path: Path) -> int:
        """Return how many bytes of text the file holds, unpacked."""
        if not self.packed:
            return path.stat().st_size
        with gzip.open(path, "rb") as file:
            return sum(map(len, iter(lambda: file.read(2**22), b"")))

    def records(self, path: Path) -> Iterator[tuple[int, list[str]]]:
        """Yield the first line number, from 1, and the cells of every record that is not blank."""
        with self.open(path, errors="replace") as file:
            reader = csv.reader(file, delimiter=self.separator)
            line = 1
            for record in reader:
                if record:
                    yield line, record
                line = reader.line_num + 1

    def _decimal(self, path: Path) -> str:
        """A comma where some cells have one in their midst, as a fraction has, and none a point."""
        if self.separator == ",":
            return "."
        commas = False
        try:
            for _, record in islice(self.records(path), 1, _SEEN):
                cells = [cell.strip() for cell in record]
                if any(map(_POINT.fullmatch, cells)):
                    return "."
                commas = commas or any(map(_COMMA.fullmatch, cells))
        except csv.Error:
            return "."
        return "," if commas else "."


def _encoding(path: Path, packed: bool) -> str:
    with _bytes(path, packed) as file:
        start = file.read(2)
    if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        _undecodable(path, packed, "utf-16")  # for its lines: what is no letter is told by whoever reads it
        return "utf-16"
    reason = _undecodable(path, packed, "utf-8")
    if reason is None:
        return "utf-8-sig"
    if _undecodable(path, packed, "cp1252") is None:
        return "cp1252"
    with _bytes(path, packed) as file:
        start = file.read(8)
    looks = next((what for magic, what in _OTHERS.items() if start.startswith(magic)), "")
    raise DataError(
        f"{path} is no text{looks and f': it begins as {looks} does'} ({reason}); save the table as CSV in UTF-8."
    )


def _undecodable(path: Path, packed: bool, encoding: str) -> str | None:
    """Why a file is no text of that encoding, None where it is; text has no zero bytes.

    Raises
    ------
    DataError
        If a line is so long that it would fill memory.
    """
    decoder, line = codecs.getincrementaldecoder(encoding)(), 0
    with _bytes(path, packed) as file:
        try:
            while block := file.read(2**22):
                if b"\0" in block and encoding == "cp1252":
                    return "it has zero bytes"
                decoder.decode(block)
                line = _open_line(block, line)
                if line > LONGEST_LINE:
                    raise DataError(
                        f"{path} has a line of more than {size(LONGEST_LINE)}, unpacked: no table has such a line. Put"
                        " each row on a line of its own."
                    )
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            return str(error)
    return None


def _open_line(block: bytes, before: int) -> int:
    """Return the length so far of the line that a block leaves open, of which there were so many bytes ``before``."""
    end = max(block.rfind(b"\n"), block.rfind(b"\r"))
    return before + len(block) if end < 0 else len(block) - end - 1


def _bytes(path: Path, packed: bool) -> IO[bytes]:
    return gzip.open(path, "rb") if packed else path.open("rb")  # type: ignore[return-value]
