"""Published tables in raydr: they are complete, and each can be run or has a reason."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from raydr.errors import ScenarioError
from raydr.runfolder.paper_table import read_paper_table
from raydr.runfolder.records import COSTS
from raydr.scenarios.running.client_data import dealt_out
from raydr.tune.reading import PAPERS
from raydr.tune.reproducing import read_table, shipped_results
from raydr.tune.schema import Sweep
from raydr.tune.search import search_of
from raydr.tune.space import SweepPoint
from raydr.tune.tables import TableSearch, cells, content_of
from raydr.tune.tabulating import require_cells

KNOWN = PAPERS.names()
PLACES = {
    "P1": {"table": range(1, 6), "figure": range(1, 8)},
    "P2": {"table": range(1, 10), "figure": range(2, 11)},
    "P3": {"table": range(1, 18), "figure": range(2, 7)},
}
"""Tables and figures of the papers. P2's and P3's figures 1 show how a method works."""
IN_TEXT = {"p3-a8": ("P3", "A.8")}
"""Numbers of a paper that are in its text."""
OWN = {"sites-benchmark"}
"""Tables that are in no paper."""
UNBOUNDED = {"distance_error", "frobenius", "anchored_frobenius", *COSTS}


def places() -> Iterator[tuple[str, str]]:
    for paper, sorts in PLACES.items():
        for sort, numbers in sorts.items():
            yield from ((paper, f"{sort} {number}") for number in numbers)


whole = cache(read_table)
"""Read each file once."""


def table_of(asked: Sweep) -> TableSearch:
    assert isinstance(asked.search, TableSearch)
    return asked.search


def test_each_table_and_figure_has_its_file() -> None:
    wanted = {
        f"{paper.lower()}-{where.replace(' ', '-')}": (paper, where) for paper, where in places()
    } | IN_TEXT
    assert set(KNOWN) == {*wanted, *OWN}
    for name, (paper, where) in wanted.items():
        asked = whole(name)
        assert (asked.name, table_of(asked).paper, table_of(asked).where) == (name, paper, where)
        assert KNOWN[name].endswith(f"({paper}, {where})")


@pytest.mark.parametrize("name", KNOWN)
def test_each_cell_can_be_run_or_has_a_reason(name: str) -> None:
    asked = whole(name)
    if not any(cell.default for cell in cells(table_of(asked))):
        with pytest.raises(ScenarioError, match=f"{name} cannot be run"):
            require_cells(asked)
        return
    for way in (asked, read_table(name, quick=True)):
        assert search_of(way).count


@pytest.mark.parametrize("name", KNOWN)
def test_pooled_values_come_from_runs_with_a_pooled_map(name: str) -> None:
    asked = whole(name)
    table = table_of(asked)
    for cell in cells(table):
        if cell.default is not None and cell.measure.startswith("central."):
            assert content_of(asked.scenario, table, cell.default)["compare"] == ["central"]


@pytest.mark.parametrize("name", KNOWN)
def test_all_runs_of_a_repetition_have_the_same_seed(name: str) -> None:
    """So columns, and values by default, as published and pooled, are paired."""
    asked = whole(name)
    table = table_of(asked)
    for cell in cells(table):
        for values in (cell.default, cell.as_published):
            if values is not None:
                assert content_of(asked.scenario, table, values).get("seed") == asked.scenario.get("seed")


def test_a_repetition_redraws_the_partition_for_all_its_runs() -> None:
    small = {"data.source": "digits", "data.holdout": 0.1, "data.rows": 500}
    asked = read_table("p2-figure-5", small)
    table = table_of(asked)
    found = next(cell for cell in cells(table) if cell.default and cell.as_published)
    ids, owners = [], []
    for repeat in (0, 1):
        for values in (found.default, found.as_published):
            assert values is not None
            content = content_of(asked.scenario, table, values)
            dealt = dealt_out(SweepPoint(0, values, content).scenario(repeat), None)
            ids.append(dealt.ids.tolist())
            owners.append(dealt.client_of_row.tolist())
    for drawn in (ids, owners):
        assert drawn[0] == drawn[1] != drawn[2] == drawn[3]


@pytest.mark.parametrize("name", KNOWN)
def test_numbers_are_in_the_range_of_their_metric(name: str) -> None:
    for cell in cells(table_of(whole(name))):
        if cell.published is None:
            continue
        assert cell.published.value >= 0
        assert cell.published.value <= 1 or cell.measure.rpartition(".")[2] in UNBOUNDED
        assert (cell.published.deviation or 0) < 0.2


def test_shipped_results_match_the_shipped_tables() -> None:
    """Otherwise a number that is corrected in a table would stay wrong in its result, and in the docs."""
    for path in shipped_results():
        found = read_paper_table(path)
        asked = whole(path.stem.partition(".")[0])
        assert (found.heading["name"], found.heading["where"]) == (asked.name, table_of(asked).where)
        numbers = {(cell.group, cell.row, cell.column): cell.published for cell in cells(table_of(asked))}
        for cell in found.cells:
            published = numbers[cell.group, cell.row, cell.column]
            assert (cell.paper and cell.paper.value) == (published and published.value)
            assert (cell.paper and cell.paper.deviation) == (published and published.deviation)
        assert "/" not in found.changed
