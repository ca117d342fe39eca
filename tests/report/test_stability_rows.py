"""Sentences, lines and colours on which places of a map stay on other maps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_pages import ROWS, write_run

from raydr.data.provenance import sha256_of_file
from raydr.front.terminal import print_stability
from raydr.report import write_report
from raydr.report.colouring import GREY, VERDICT_COLOURS, stability_colouring
from raydr.report.map.atlas import map_of_run
from raydr.report.run.stability_rows import cost, lines, sentences
from raydr.runfolder.reading import read_run
from raydr.runfolder.stability import (
    Comparison,
    RepetitionCost,
    Stability,
    StabilityRecord,
    write_stability,
)

COST = RepetitionCost(
    redrawn=False,
    repetitions=4,
    messages=40,
    per_record=8,
    bytes=2_000_000,
    epsilon=None,
    accounted=0.0,
    epsilon_run=None,
    delta=1e-5,
)
SEEDS = [
    Comparison(seed=1, rows=ROWS, changed=3, stable=1, dissolved=[2]),
    Comparison(seed=2, rows=ROWS, changed=2, stable=0),
]
SITES = [
    Comparison(seed=0, without="site 0", rows=40, changed=1, stable=1),
    Comparison(seed=0, without="site <1>", rows=40, changed=8, stable=6, dissolved=[1, 2]),
]


def record(**changes: Any) -> StabilityRecord:
    found = StabilityRecord(
        map="",
        raydr="0.1.0",
        started="2026-02-03T10:22:31+00:00",
        seconds=1.0,
        neighbors=6,
        rows=ROWS,
        with_seed=2,
        without_site=5,
        islands=[30, 20, 10],
        comparisons=[*SEEDS, *SITES],
        kept=[],
        cost=COST,
    )
    return replace(found, **changes)


def with_stability(folder: Path, verdicts: list[int] | None = None, **changes: Any) -> Path:
    """Add a comparison to a run folder; all rows stay except the first."""
    found = np.zeros(ROWS, np.int64)
    found[: len(verdicts or [])] = verdicts or []
    shares = np.where(found < 0, np.nan, 0.75)
    whole = record(**changes, map=sha256_of_file(folder / "embedding.parquet"))
    write_stability(folder, Stability(whole, shares, shares, found))
    return folder


def told(folder: Path, **changes: Any) -> str:
    return " ".join(sentences(read_run(with_stability(folder, **changes))))


def test_sentences_name_seeds_sites_islands_and_cost(tmp_path: Path) -> None:
    assert sentences(read_run(write_run(tmp_path / "plain"))) == []
    assert told(write_run(tmp_path / "run")) == (
        f"2 of {ROWS} places change with the seed: on 2 maps with other seeds, they keep less than half of their 6"
        " nearest rows on average. Island 3 (10 rows) dissolves on at least one of these maps."
        f" 5 more of {ROWS} places change without at least one of 2 sites."
        " Without site <1>, 8 of 40 places change, of which 6 stay with other seeds. Island 2 (20 rows) dissolves."
        " Without site 0, 1 of 40 places changes, of which 1 stays with other seeds."
        " In a deployed federation, these 4 repetitions would send 40 messages (2\u202fMB) from sites again, 8 of"
        " them with data about single records. No finite epsilon holds for all messages."
    )


def test_sentences_of_one_map_and_of_no_change(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    one = told(run, comparisons=SEEDS[:1], with_seed=1, without_site=0)
    assert one.startswith(
        f"1 of {ROWS} places changes with the seed: on 1 map with another seed, it keeps less than half of its 6"
        " nearest rows."
    )
    none = told(run, comparisons=SITES[:1], with_seed=0, without_site=0, kept=["b was not left out."])
    assert none.startswith("No place changes without the site that was left out. Without site 0, 1 of 40")
    assert "b was not left out. In a deployed" in none
    some = told(run, comparisons=[replace(SEEDS[0], dissolved=[])], with_seed=0, rows=20)
    assert some.startswith(
        f"Compared are a sample of 20 of {ROWS} rows, each with all other rows. No place changes"
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"epsilon": 3.0, "accounted": 3.0, "epsilon_run": 1.0},
            "The run and all repetitions would cost epsilon 3 at delta 1e-5, and the run alone 1.",
        ),
        (
            {"accounted": 2.0},
            "Their releases under noise and those of the run would cost epsilon 2 at delta 1e-5. No finite epsilon",
        ),
        ({"repetitions": 1}, "this repetition would send 40 messages"),
        ({"redrawn": True, "epsilon": 8.0}, "They send nothing, and epsilon stays 8."),
    ],
)
def test_cost_is_that_of_the_run_and_all_repetitions(changes: dict[str, Any], sentence: str) -> None:
    assert sentence in cost(replace(COST, **changes))


def test_lines_have_every_map(tmp_path: Path) -> None:
    found = lines(read_run(with_stability(write_run(tmp_path / "run"))))
    assert [line.map for line in found] == ["seed 1", "seed 2", "without site 0", "without site <1>"]
    assert found[3].changed == "8 (20.0\u202f%)"
    assert [line.islands for line in found] == ["3", "none", "none", "2, 3"]


def test_page_and_terminal_tell_and_colour_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = with_stability(
        write_run(tmp_path / "run", metrics={"federated": {}, "not_computed": {}}), [1, 2, -1]
    )
    page = " ".join(write_report(folder).read_text(encoding="utf-8").split())
    assert "Which places stay" in page
    assert "Without site &lt;1&gt;, 8 of 40 places change" in page
    print_stability(folder)
    assert "Without site <1>, 8 of 40 places change" in " ".join(capsys.readouterr().err.split())
    found = map_of_run(read_run(folder))
    ways = {way["by"]: way for way in found.header["ways"]}
    assert ways["stability"]["colours"] == (*VERDICT_COLOURS, GREY)
    assert {"kept with other seeds", "kept without a site"} <= set(ways)


def test_rows_that_were_not_compared_are_grey() -> None:
    found = stability_colouring(np.array([0, 2, 1, -1]))
    assert [found.names[code] for code in found.codes] == [
        "stays",
        "changes without a site",
        "changes with the seed",
        "not compared",
    ]
    assert stability_colouring(np.array([0, 1])).colours == VERDICT_COLOURS
