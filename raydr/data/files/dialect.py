"""Formats of text tables: encoding, separator, decimal mark, compression."""

from __future__ import annotations

import codecs
import csv
import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import IO, TextIO

from raydr.data.files.header import Header, find_header
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
"""File types that are not text, by their first bytes."""
LONGEST_LINE = 2**26
"""Maximum bytes of a line. A reader takes no more text at once."""
_SEEN, _LEAST_SEEN, _SEEN_CELLS = 500, 10, 2**18  # records used to detect the header and the decimal mark
_MOST_FOUND = 10_000  # lines that are looked at closely
_COMMA, _POINT = re.compile(r"[-+]?\d+,\d+"), re.compile(r"[-+]?\d+\.\d+")
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(\.\d{3})+")


@dataclass(frozen=True)
class Dialect:
    """The format of one text table.

    Attributes
    ----------
    separator : str
        The character between cells.
    encoding : str
        ``utf-8-sig``, ``utf-16``, or ``cp1252``, which can read any Western European file.
    decimal : str
        The decimal mark: point or comma.
    packed : bool
        Whether it is compressed by gzip.
    certain : bool
        Whether commas must be decimal marks; ``1,234`` could be a thousand and more.
    header : Header
        The place of the names.
    """

    separator: str = ","
    encoding: str = "utf-8-sig"
    decimal: str = "."
    packed: bool = False
    certain: bool = True
    header: Header = field(default_factory=Header)

    @classmethod
    def of(cls, path: Path) -> Dialect:
        """Detect the format of a file.

        Raises
        ------
        DataError
            If the file is empty, or is not text.
        """
        packed = path.suffix.lower() == ".gz"
        try:
            encoding = _encoding(path, packed)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{path} cannot be unpacked by gzip: {error}.") from error
        plain = cls(encoding=encoding, packed=packed)
        with plain.open(path) as file:
            first = next((line for line in file if line.strip()), "")
        if not first:
            raise DataError(f"{path} is empty. A CSV file needs a header line and at least two rows.")
        separators = sorted(SEPARATORS, key=first.count, reverse=True)
        likely = [replace(plain, separator=separator) for separator in separators]
        found = max(
            likely, key=lambda dialect: dialect._regularity(path)
        )  # the first of equally regular ones
        found = replace(found, header=found._header(path) or Header())
        decimal, certain = found._decimal(path)
        return replace(found, decimal=decimal, certain=certain)

    def __str__(self) -> str:
        """Describe the format in words.

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
        """Open the file as text, with line breaks unchanged."""
        if self.packed:
            return gzip.open(path, "rt", encoding=self.encoding, errors=errors, newline="")
        return path.open(encoding=self.encoding, errors=errors, newline="")

    def text_bytes(self, path: Path) -> int:
        """Return the bytes of text in the file, unpacked."""
        if not self.packed:
            return path.stat().st_size
        with gzip.open(path, "rb") as file:
            return sum(map(len, iter(lambda: file.read(2**22), b"")))

    def records(self, path: Path) -> Iterator[tuple[int, list[str]]]:
        """Yield the line number (from 1) and the cells of the header and of every row that is not blank."""
        with self.open(path, errors="replace") as file:
            reader = csv.reader(file, delimiter=self.separator)
            line = 1
            for record in reader:
                if record and line >= self.header.line and line != self.header.second:
                    yield line, record
                line = reader.line_num + 1

    def lines_with(self, path: Path, pattern: re.Pattern[bytes]) -> Iterator[str]:
        """Yield the first lines with a match of the pattern."""
        found, rest = 0, b""
        with _bytes(path, self.packed) as file:
            while block := file.read(2**22):
                block = rest + block
                stop = block.rfind(b"\n") + 1
                block, rest = block[:stop], block[stop:]
                at = 0
                while found < _MOST_FOUND and (match := pattern.search(block, max(at - 1, 0))):
                    start, at = (
                        block.rfind(b"\n", 0, match.start() + 1) + 1,
                        block.find(b"\n", match.end() - 1) + 1,
                    )
                    found += 1
                    yield block[start:at].decode(self.encoding, errors="replace").rstrip("\r\n")
                if found == _MOST_FOUND:
                    return
        if pattern.search(rest + b"\n"):
            yield rest.decode(self.encoding, errors="replace")

    def head(self, path: Path, rows: int = _SEEN) -> Iterator[tuple[int, list[str]]]:
        """Yield the first :meth:`records`, fewer than ``rows`` in a wide table."""
        cells = 0
        for place, (line, record) in enumerate(islice(self.records(path), rows)):
            cells += len(record)
            if place > _LEAST_SEEN and cells > _SEEN_CELLS:
                return
            yield line, record

    def _header(self, path: Path) -> Header | None:
        """Return the place of the names if the file has the shape of a table in this format."""
        try:
            return find_header(list(self.head(path)))
        except csv.Error:
            return None

    def _regularity(self, path: Path) -> float:
        """Return the share of the rows that are as wide as the names in this format, or -1 if it has no names."""
        header = self._header(path)
        if header is None:
            return -1.0
        (_, names), *rows = replace(self, header=header).head(path)
        return sum(len(row) == len(names) for _, row in rows) / max(len(rows), 1)

    def _decimal(self, path: Path) -> tuple[str, bool]:
        """Return the decimal mark, and whether no other is possible.

        It is a comma if some cells have one as a decimal mark and points are thousands separators, if any.
        """
        if self.separator == ",":
            return ".", True
        commas = certain = False
        try:
            for _, record in islice(self.head(path), 1, None):
                cells = [cell.strip() for cell in record]
                if any(_POINT.fullmatch(cell) and not _THOUSANDS.fullmatch(cell) for cell in cells):
                    return ".", True
                decimals = list(filter(_COMMA.fullmatch, cells))
                commas = commas or bool(decimals)
                certain = certain or any(
                    not _THOUSANDS.fullmatch(cell.replace(",", ".")) for cell in decimals
                )
        except csv.Error:
            return ".", True
        return ("," if commas else "."), certain or not commas


def _encoding(path: Path, packed: bool) -> str:
    with _bytes(path, packed) as file:
        start = file.read(2)
    if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        _undecodable(path, packed, "utf-16")  # to check its lines; the reader reports invalid characters
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
        f"{path} is not text{looks and f': it starts like {looks}'} ({reason}). Save the table as CSV in UTF-8."
    )


def _undecodable(path: Path, packed: bool, encoding: str) -> str | None:
    """Return why a file is not text in that encoding, or None if it is. Text has no zero bytes.

    Raises
    ------
    DataError
        If a line is too long for memory.
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
                        f"{path} has a line of more than {size(LONGEST_LINE)}, unpacked, which is too long for a table."
                        " Put each row on its own line."
                    )
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            return str(error)
    return None


def _open_line(block: bytes, before: int) -> int:
    """Return the length so far of a block's last, unfinished line, with ``before`` bytes from earlier blocks."""
    end = max(block.rfind(b"\n"), block.rfind(b"\r"))
    return before + len(block) if end < 0 else len(block) - end - 1


def _bytes(path: Path, packed: bool) -> IO[bytes]:
    return gzip.open(path, "rb") if packed else path.open("rb")  # type: ignore[return-value]
