"""Figures on the pages come from files of commands, except some old ones."""

from __future__ import annotations

from collections import Counter

import pytest
from figures import FiguresTable, figures, figures_tables, made_up

TABLES = list(figures_tables())
WITHOUT_FILES = {
    "docs/attacks.md": 1,
    "docs/background/attacks.md": 2,
    "docs/background/fed-plus.md": 1,
    "docs/background/fedne.md": 6,
    "docs/bounds.md": 2,
    "docs/determinism.md": 1,
    "docs/dsne.md": 1,
    "docs/fedne.md": 6,
    "docs/landmarks.md": 3,
    "docs/new-rows.md": 1,
    "docs/plan.md": 2,
    "docs/privacy.md": 1,
    "docs/private-map.md": 4,
    "docs/robust-aggregation.md": 1,
    "docs/secure-aggregation.md": 2,
    "docs/sense.md": 6,
    "docs/sites.md": 1,
}
"""Tables of figures by page, at most, that name no file: of the command beside them, of which nothing was kept.

A new table has a file, and one that is measured again gets one.
"""


def test_each_new_table_of_figures_names_its_file() -> None:
    for page, count in Counter(table.page for table in TABLES if not table.files).items():
        assert count <= WITHOUT_FILES.get(page, 0), (
            f"{page} has a table of figures without a file: keep what its command writes (`python -m benchmarks.NAME"
            " --json benchmarks/figures/NAME.json`), and name it above the table: <!-- figures: FILE -->"
        )


@pytest.mark.parametrize("table", [table for table in TABLES if table.files], ids=lambda table: table.page)
def test_each_figure_of_a_table_is_in_its_files(table: FiguresTable) -> None:
    assert any(figure for row in table.rows for cell in row for figure in figures(cell))
    assert made_up(table) == []


def test_a_figure_in_no_file_is_found() -> None:
    file = "benchmarks/figures/omnifc.json"
    assert made_up(FiguresTable("page", (file,), (("13 MB", "2.6e7"),))) == []
    assert made_up(FiguresTable("page", (file,), (("13 MB", "2.7e7"), ("12 MB",)))) == ["2.7e7", "12 MB"]
