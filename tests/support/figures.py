"""Tables of figures on the pages, and the files that commands made from which these figures are.

A table of a page names its files in a comment above it:

    <!-- figures: benchmarks/figures/omnifc.json -->

A .json file is what ``python -m benchmarks.NAME --json FILE`` wrote, a .parquet file what ``raydr reproduce`` did. Each
number of the table, but for those of its first column and its header, is one of a file's, rounded as it stands there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pages import ROOT, name_of, pages
from papers_reference import COUNTS, MARK

from raydr.runfolder.paper_table import read_paper_table

UNITS = {"": 1.0, "%": 1e-2, "kB": 1e3, "MB": 1e6, "GB": 1e9, "ms": 1e-3}
MOSTLY_FIGURES = 0.25
"""Part of a table's cells that have figures, from which on it is a table of figures."""
_TABLE = re.compile(
    r"(?:^<!-- figures: (?P<files>[^>]+) -->\n)?^\|.*\n\|[ :|-]+\|\n(?P<body>(?:^\|.*\n?)+)", re.MULTILINE
)
_NUMBER = re.compile(
    r"(?<![\w.])(?P<number>[-−]?(?:\d[\d,]*)?\.?\d+(?:e[-+]?\d+)?)(?: ?(?P<unit>%|kB|MB|GB|ms)(?!\w))?(?![\w])"
)
_FIGURE = re.compile(r"(?<![\w.])(?:\d*\.\d|\d\d)")
_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class FiguresTable:
    """A table of figures: its page, the files that it names, and the cells of each row but the first."""

    page: str
    files: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Figure:
    """A number as it stands in a cell: its value, and half a unit of its last digit."""

    text: str
    value: float
    rounding: float


def figures_tables() -> Iterator[FiguresTable]:
    """Tables of figures of all pages, without what is made from results as a whole."""
    for page in pages():
        if "figures" in page.parts or "methods" in page.parts:
            continue
        text = _FENCE.sub("", page.read_text(encoding="utf-8")).partition(MARK)[0]
        text = text.partition(COUNTS[0])[0] + text.partition(COUNTS[1])[2]
        for found in _TABLE.finditer(text):
            rows = tuple(
                tuple(cell.strip() for cell in line.strip().strip("|").split("|")[1:])
                for line in found["body"].splitlines()
            )
            cells = [cell for row in rows for cell in row]
            if found["files"] or sum(bool(_FIGURE.search(cell)) for cell in cells) > MOSTLY_FIGURES * len(
                cells
            ):
                files = tuple(file.strip() for file in (found["files"] or "").split(",") if file.strip())
                yield FiguresTable(name_of(page), files, rows)


def figures(cell: str) -> Iterator[Figure]:
    """Numbers of a cell.

    >>> [(figure.value, figure.rounding) for figure in figures("6,400 MB, .98 and 1.6e11")]
    [(6400000000.0, 500000.0), (0.98, 0.005), (160000000000.0, 5000000000.0)]
    """
    for found in _NUMBER.finditer(cell):
        text, unit = found["number"].replace(",", "").replace("−", "-"), UNITS[found["unit"] or ""]
        digits, _, power = text.partition("e")
        scale = unit * 10.0 ** int(power or 0)
        yield Figure(found[0], float(digits) * scale, 0.5 * 10.0 ** -len(digits.partition(".")[2]) * scale)


@cache
def measured(file: str) -> tuple[float, ...]:
    """Numbers of a file: the figures and ratios of a benchmark, or the means of a table's cells."""
    path = ROOT / file
    if path.suffix == ".parquet":
        table = read_paper_table(path)
        means = [
            mean
            for cell in table.cells
            for mean in (cell.paper, cell.published, cell.default, cell.pooled)
            if mean is not None
        ]
        return tuple(value for mean in means for value in (mean.value, mean.deviation) if value is not None)
    content = json.loads(Path(path).read_text(encoding="utf-8"))
    return tuple(float(value) for part in ("figures", "ratios") for value in content[part].values())


def made_up(table: FiguresTable) -> list[str]:
    """Figures of a table that are in none of its files."""
    known = [value for file in table.files for value in measured(file)]
    return [
        figure.text
        for row in table.rows
        for cell in row
        for figure in figures(cell)
        if not any(abs(figure.value - value) <= figure.rounding * (1 + 1e-6) for value in known)
    ]
