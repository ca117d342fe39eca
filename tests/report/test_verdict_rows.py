"""Verdicts on places: in the map's files, on the page and in the terminal."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from run_pages import ROWS, write_run
from tiny import tiny_run

from raydr.errors import OutputError
from raydr.front.terminal import print_result
from raydr.metrics.verdicts import LEVEL, MISPLACED, NO_STRUCTURE, RELIABLE
from raydr.report import write_report
from raydr.report.colouring import CATEGORIES, GREY, VERDICT_COLOURS, verdict_colouring, with_grey
from raydr.report.map.atlas import map_of_run
from raydr.report.run.verdict_rows import sentence
from raydr.runfolder.reading import read_run
from raydr.runfolder.records import VERDICTS

pytestmark = pytest.mark.usefixtures("edits_accepted")


def with_verdicts(folder: Path, verdicts: list[str], file: str = "embedding") -> Path:
    """Add verdicts to the first rows of a map; the others are reliable."""
    table = pq.read_table(folder / f"{file}.parquet")
    every = pa.array(verdicts + ["reliable"] * (table.num_rows - len(verdicts)))
    pq.write_table(table.append_column("verdict", every), folder / f"{file}.parquet")
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(
        tmp_path_factory.mktemp("verdicts") / "run", metrics=["npa_10", "reliable"], compare=["central"]
    )


def test_columns_of_a_run_agree_with_its_metric(whole: Path) -> None:
    measures = json.loads((whole / "metrics.json").read_text())
    for file, which in (("embedding", "federated"), ("central", "central")):
        table = pq.read_table(whole / f"{file}.parquet")
        reliable = np.array(table["verdict"].to_pylist()) == VERDICTS[RELIABLE]
        assert table.column_names[-3:] == ["npa_10", "reliability", "verdict"]
        assert reliable.mean() == pytest.approx(measures[which]["reliable"])
        assert ((table["reliability"].to_numpy() >= 1 - LEVEL - 1e-12) == reliable).all()
    run = read_run(whole)
    assert run.verdicts is not None
    assert run.central_verdicts is not None
    assert [VERDICTS[verdict] for verdict in run.verdicts] == pq.read_table(whole / "embedding.parquet")[
        "verdict"
    ].to_pylist()


def test_verdicts_change_no_bit_of_the_map(whole: Path, tmp_path: Path) -> None:
    plain = pq.read_table(tiny_run(tmp_path / "run") / "embedding.parquet")
    judged = pq.read_table(whole / "embedding.parquet")
    assert judged.select(plain.column_names).equals(plain)
    assert read_run(tmp_path / "run").verdicts is None


def test_names_are_in_the_order_of_the_numbers() -> None:
    assert (VERDICTS[RELIABLE], VERDICTS[MISPLACED], VERDICTS[NO_STRUCTURE]) == (
        "reliable",
        "misplaced",
        "no structure",
    )


def test_sentence_estimates_the_share_of_a_sample(whole: Path) -> None:
    run = read_run(whole)
    errors = {which: {"reliable": 0.0123} for which in ("federated", "central")}
    values = {"reliable": 0.75}
    measures = replace(
        run.measures, federated=values, central=values, standard_errors=errors, sampled_rows=50
    )
    told = sentence(replace(run, verdicts=None, measures=measures))
    assert told.replace("\u202f", "").startswith(
        f"About 25.0% (± 1.2%) of {len(run.clients)} places are unreliable"
    )
    assert told.replace("\u202f", "").endswith("On the pooled-data map 25.0% are unreliable.")
    assert sentence(replace(run, verdicts=None)) == ""


def test_sentence_counts_unreliable_places(tmp_path: Path) -> None:
    run = with_verdicts(write_run(tmp_path / "run"), ["misplaced", "misplaced", "no structure"])
    assert sentence(read_run(run)) == (
        f"3 of {ROWS} places are unreliable: the rows next to them are no nearer in the data than in a table with"
        " shuffled columns. 2 are misplaced: the map lost nearer rows. For 1, the data have no nearer rows."
    )
    with_verdicts(run, ["misplaced"], "central")
    assert sentence(read_run(run)).endswith(" On the pooled-data map 1 is unreliable.")
    fine = with_verdicts(write_run(tmp_path / "fine"), [])
    assert sentence(read_run(fine)).startswith(f"All {ROWS} places are reliable")
    assert sentence(read_run(write_run(tmp_path / "without"))) == ""


def test_page_and_terminal_tell_and_colour_verdicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = with_verdicts(write_run(tmp_path / "run"), ["no structure", "misplaced"])
    with_verdicts(run, ["misplaced"], "central")
    told = sentence(read_run(run))
    assert told in " ".join(write_report(run).read_text(encoding="utf-8").split())
    print_result(run)
    assert told in " ".join(capsys.readouterr().err.split())
    found = map_of_run(read_run(run))
    (way,) = (way for way in found.header["ways"] if way["by"] == "verdict")
    assert way["kind"] == "categories"
    assert way["colours"] == VERDICT_COLOURS
    assert [found.header["columns"][column]["title"] for column in way["columns"]] == [
        "verdict",
        "verdict: pooled-data map",
    ]


def test_rows_that_came_later_have_no_verdict() -> None:
    found = with_grey(verdict_colouring(np.array([0, 2])), 1)
    assert [found.names[code] for code in found.codes] == ["reliable", "no structure", "no verdict"]
    assert found.colours[-1] == GREY
    assert set(VERDICT_COLOURS) <= set(CATEGORIES)


def test_other_verdicts_are_refused(tmp_path: Path) -> None:
    run = with_verdicts(write_run(tmp_path / "run"), ["doubtful"])
    with pytest.raises(OutputError, match="has a verdict 'doubtful', which is none of reliable, misplaced"):
        read_run(run)
