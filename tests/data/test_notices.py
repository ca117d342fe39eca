"""Notices about a table before a run: printed, stored in the folder, and without values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from inline_federations import cut, federate
from tiny import tiny, tiny_run, tiny_scenario

import raydr
from raydr.arrays import Float64Array, Int64Array
from raydr.data.survey.notices import (
    CODES,
    MISSING_CODES,
    MOSTLY_EMPTY,
    NUMBERING,
    ONE_VALUE,
    PLAIN,
    common_looks,
    looks,
    of_columns,
    of_spreads,
)
from raydr.front.cli import status
from raydr.journal import Event, IncidentEvent, StageStarted
from raydr.report.run import mapped
from raydr.runfolder import read_run
from raydr.scenarios.runner import run
from raydr.statistics.moments import spread

ROWS = 60
NAMES = ("weight", "chart", "ward", "smokes", "flat", "$x_$")


def content(rows: int = ROWS) -> Float64Array:
    """Return a measurement, an identity with a harmless name, codes, a binary, a constant and a wide column."""
    random = np.random.default_rng(0)
    number = np.arange(rows)
    return np.column_stack(
        [
            random.normal(size=rows),
            7_000_000 + 13 * random.permutation(rows),
            number % 4 + 1,
            number % 2,
            np.full(rows, 5.5),
            random.normal(size=rows) * 1_000,
        ]
    )


def write(path: Path, rows: Float64Array, site: bool = True) -> Path:
    lines = [",".join([*NAMES, "site"] if site else NAMES)]
    for number, row in enumerate(rows.tolist()):
        cells = [
            "" if np.isnan(value) else repr(int(value) if value == int(value) else value) for value in row
        ]
        lines.append(",".join([*cells, f"s{number % 3}"] if site else cells))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_columns_are_classified_by_their_numbers() -> None:
    assert looks(content()).tolist() == [PLAIN, NUMBERING, CODES, PLAIN, ONE_VALUE, PLAIN]
    holed = content()
    holed[::7] = np.nan
    assert looks(holed).tolist() == [PLAIN, NUMBERING, CODES, PLAIN, ONE_VALUE, PLAIN]
    assert not looks(content(10)).any(), "few rows give no notice"
    assert looks(content().astype(np.float32))[2] == CODES
    assert looks(np.full((30, 2), np.nan)).tolist() == [MOSTLY_EMPTY] * 2
    assert looks(1e5 + np.arange(60.0)[:, None] % 4).tolist() == [PLAIN], "large numbers are no codes"
    assert looks(np.arange(60.0)[:, None] % 12).tolist() == [PLAIN], "many are none either"


@pytest.mark.parametrize(
    ("code", "values", "found"),
    [
        (999, np.arange(20, 60), MISSING_CODES),
        (-99, np.arange(20, 60), MISSING_CODES),
        (99, np.arange(1, 41), MISSING_CODES),
        (-1, np.arange(20, 60), PLAIN),
        (99, np.arange(59, 99), PLAIN),
        (999, np.arange(40) * 50, PLAIN),
        (-9, np.arange(-20, 20), PLAIN),
        (666, np.arange(40) % 2, MISSING_CODES),
        (666, np.arange(40) % 3, PLAIN),
        (66, np.arange(40) % 2, CODES),
    ],
)
def test_isolated_number_may_be_a_missing_value_code(code: int, values: Int64Array, found: int) -> None:
    column = np.concatenate([values, values[:5], [code, code]]).astype(float)
    assert looks(column[:, None]).tolist() == [found]


def test_notice_needs_agreement_of_sites() -> None:
    one, other = looks(content()), looks(content(5))
    assert common_looks([one, one, other]).tolist() == one.tolist(), "too few rows to say"
    changed = one.copy()
    changed[1] = PLAIN
    assert common_looks([one, changed]).tolist() == changed.tolist()
    assert common_looks([other]).tolist() == other.tolist()
    assert common_looks(iter([other, changed, one])).tolist() == changed.tolist(), (
        "as many sites as rows, one by one"
    )
    changed[1] = MISSING_CODES
    assert common_looks([one, changed, other]).tolist() == changed.tolist(), "one site with a code is enough"


def test_notices_show_no_values_and_ignore_count_tables() -> None:
    message = of_columns(NAMES, looks(content()), ("flat",))
    assert [text.partition(":")[0] for text in message] == ["'chart'", "'ward'", "'flat'"]
    assert "7000" not in "".join(message)
    pixels = np.arange(60)[:, None] * np.arange(1, 65) % 9
    message = of_columns([f"p{i}" for i in range(64)], looks(pixels.astype(float)))
    assert not any("codes of categories" in text for text in message)


def test_spreads_are_compared_with_the_median() -> None:
    assert of_spreads(("a", "b", "c"), np.array([1.0, 2.0, 9.0])) == ()
    (message,) = of_spreads(("a", "b", "$x_$"), np.array([1.0, 2.0, 300.0]))
    assert "'$x_$' varies 150 times as much" in message
    (message,) = of_spreads(
        ("a", "b", "c", "d", "e"),
        np.array([0.0, 1.0, 50.0, 1.0, 300.0]),
    )
    assert "'e'" in message
    assert of_spreads(("a", "b"), np.zeros(2)) == ()
    assert of_spreads(("a", "b"), np.array([0.0, 3.0])) == ()


def test_federation_keeps_the_first_spread() -> None:
    rows = content()
    federation = federate(cut(rows, 4, 0))
    assert federation.deviation is None
    spread(federation)
    np.testing.assert_allclose(federation.deviation, rows.std(axis=0), rtol=1e-12, atol=1e-12)  # type: ignore[arg-type]


def settings(path: Path, **data: Any) -> dict[str, Any]:
    return {
        "data": {"path": str(path), **data},
        "clients": {"partition": {"kind": "by-column", "column": "site"}},
        "method": {"kind": "fed-tsne", "landmarks": 8, "rounds": 2, "early_iterations": 5, "iterations": 5},
    }


def test_run_prints_notices_first_and_stores_them(tmp_path: Path) -> None:
    path = write(tmp_path / "table.csv", content())
    received: list[str] = []

    def listen(event: Event) -> None:
        match event:
            case IncidentEvent(text):
                received.append(text)
            case StageStarted(stage):
                received.append(stage)

    folder = run(tiny_scenario(**settings(path)), out=tmp_path / "run", listener=listen)
    found = read_run(folder).data.notices
    assert [text.partition(":")[0] for text in found[:3]] == ["'chart'", "'ward'", "'flat'"]
    assert "'$x_$'" in found[3]
    assert "Nothing is scaled" in found[3]
    before = received[: received.index("clients")]
    assert [text for text in before if text in found] == list(found[:3]), "before anything is mapped"
    message = [fact.text for fact in mapped.facts(read_run(folder).data) if fact.name == mapped.NOTICE]
    assert message == list(found)
    page = (folder / "report.html").read_text()
    assert page.count("whole numbers, all distinct") == 1
    assert raydr.Result(folder).data["notices"] == list(found)


@pytest.mark.parametrize("kind", ["sense", "fed-tsne", "fedne"])
def test_scaled_and_built_in_tables_have_no_notice(tmp_path: Path, kind: str) -> None:
    method = {
        "sense": {"kind": "sense", "anchors": 5, "anchor_source": "random",
                  "embedder": {"kind": "tsne", "early_iterations": 5, "iterations": 5}},
        "fed-tsne": tiny()["method"],
        "fedne": {"kind": "fedne", "rounds": 2, "hidden": [4]},
    }[kind]  # fmt: skip
    path = write(tmp_path / "table.csv", content())
    plain = read_run(tiny_run(tmp_path / "plain", **settings(path) | {"method": method})).data.notices
    assert "'chart' and 1 more" in plain[-1] or "'$x_$'" in plain[-1], "by sums, or by the evaluation"
    scaled = settings(path, scale="standard") | {"method": method}
    assert not any("scaled" in text for text in read_run(tiny_run(tmp_path / "s", **scaled)).data.notices)
    assert read_run(tiny_run(tmp_path / "iris", method=method)).data.notices == ()


def test_sites_with_own_files_vote(tmp_path: Path) -> None:
    rows, sites = content(90), []
    for number in range(3):
        path = write(tmp_path / f"{number}.csv", rows[number::3], site=False)
        sites.append({"path": str(path)})
    folder = tiny_run(tmp_path / "run", data={"scale": "standard"}, clients={"sites": sites})
    assert [text.partition(":")[0] for text in read_run(folder).data.notices] == [
        "'chart'",
        "'ward'",
        "'flat'",
    ]


def test_quiet_run_stores_notices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "table.csv", content())
    (tmp_path / "s.yaml").write_text(json.dumps(tiny() | settings(path)))
    written = []
    for number, shown in enumerate((["--verbose"], ["--quiet"])):
        out = tmp_path / str(number)
        assert status(["run", str(tmp_path / "s.yaml"), "--out", str(out), *shown]) == 0
        written.append((out / "data.json").read_bytes())
        message = capsys.readouterr().err
        assert ("whole numbers, all distinct" in message) == ("--verbose" in shown)
        data = read_run(out).data
        for needle in (
            data.sources[0].sha256,
            "Columns mapped: 6: weight, chart",
            "Columns left out: site (the client)",
        ):
            assert (needle in message) == ("--verbose" in shown)
    assert written[0] == written[1]


def test_check_prints_notices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "table.csv", content())
    assert status(["check", str(path), "--site", "site"]) == 0
    message = capsys.readouterr().out
    assert f"{mapped.NOTICE}: 'chart': whole numbers, all distinct" in message
    assert "SHA-256 of table.csv" in message


@pytest.mark.parametrize(("wards", "warned"), [(12, True), (2, False)])
def test_words_that_are_too_rare_to_map_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wards: int, warned: bool
) -> None:
    """A site names a word of five rows; with twelve wards most rows would count as equal without a word on it."""
    random = np.random.default_rng(0)
    names = [f"w{number}" for number in random.integers(0, wards, 60)]
    lines = [f"{'ab'[row % 2]},{row % 7}.5,{name}" for row, name in enumerate(names)]
    path = tmp_path / "wards.csv"
    path.write_text("\n".join(["site,age,ward", *lines]))
    assert status(["check", str(path), "--site", "site"]) == 0
    shown = capsys.readouterr().out
    assert ("'ward': more than a tenth of the rows have words" in shown) == warned


@pytest.mark.parametrize("second", ["Yes", "no"])
@pytest.mark.parametrize("kept", ["one file", "own files", "a frame"])
def test_classes_in_several_spellings_are_said(tmp_path: Path, kept: str, second: str) -> None:
    """One hospital writes yes, the other `second`: two classes, of which metrics and colours say nothing."""
    columns = np.random.default_rng(0).normal(size=(40, 2)).round(3)
    classes = [["yes", "never"], [second, "never"]]
    rows = [
        f"{x},{y},{'ab'[place % 2]},{classes[place % 2][place // 2 % 2]}"
        for place, (x, y) in enumerate(columns.tolist())
    ]
    header = "x,y,site,died"
    if kept == "own files":
        sites = []
        for number in range(2):
            path = tmp_path / f"{number}.csv"
            path.write_text("\n".join([header, *rows[number::2]]))
            sites.append({"path": str(path)})
        data = {"features": ["x", "y"], "label": "died"}
        found = read_run(tiny_run(tmp_path / "run", data=data, clients={"sites": sites})).data.notices
    else:
        path = tmp_path / "all.csv"
        path.write_text("\n".join([header, *rows]))
        if kept == "one file":
            found = read_run(tiny_run(tmp_path / "run", **settings(path, label="died"))).data.notices
        else:
            frame = pd.read_csv(path)
            model = raydr.FedTSNE(landmarks=8, rounds=2, federation="inline", metrics=())
            model.fit(frame[["x", "y"]], frame["died"], sites=frame["site"])
            found = read_run(model.result_.folder).data.notices
    said = [text for text in found if text.startswith("The label: classes that differ only in case")]
    assert len(said) == (second == "Yes")
