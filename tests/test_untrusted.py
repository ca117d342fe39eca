"""A run folder may come from anyone: its content is shown, or refused in one paragraph, and never executed."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from damages import changed, damages, outcome
from tiny import tiny_run_with_report

from raydr.data import load
from raydr.documents import MEGABYTE, DocumentError, parse_yaml, read_limited
from raydr.errors import OutputError, ScenarioError
from raydr.report.charts import line_chart
from raydr.runfolder import maps, read_run
from raydr.scenarios.schema.reading import read

pytestmark = pytest.mark.usefixtures("edits_accepted")

FILES = [
    "scenario.yaml",
    "embedding.parquet",
    "central.parquet",
    "metrics.json",
    "ledger.json",
    "privacy.json",
    "rounds.jsonl",
    "environment.json",
    "notes.json",
    "stress.json",
    "data.json",
    "fingerprints.json",
    "model/arrays.npz",
    "model/encoder.safetensors",
    "model/model.json",
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run folder with every file."""
    method = {"kind": "fedne", "rounds": 2, "hidden": [4], "local_steps": 1, "surrogate": "none"}
    folder = tiny_run_with_report(
        tmp_path_factory.mktemp("runs") / "whole", method=method, compare=["central"]
    )
    (folder / "notes.json").write_text(json.dumps([{"title": "a", "text": "b"}]))
    (folder / "stress.json").write_text(json.dumps([2.0, 1.0]))
    assert {name for name in FILES if not (folder / name).exists()} == set()
    return folder


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """Return a copy that a test may damage."""
    return Path(shutil.copytree(whole, tmp_path / "run"))


@pytest.fixture(scope="module")
def new_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write rows to place on the map."""
    iris = load(source="iris")
    path = tmp_path_factory.mktemp("rows") / "new.npz"
    np.savez(path, X=iris.rows[:5], feature_names=np.array(iris.features))
    return path


@pytest.mark.parametrize("count", [4, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_shown_or_refused(
    run: Path,
    new_rows: Path,
    name: str,
    count: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw = random.Random(name)
    content = (run / name).read_bytes()
    codes = []
    if count < 100:  # pictures take most of the time
        monkeypatch.setattr("raydr.report.picture.png", lambda figure, **how: b"")
    for damage in damages(content, draw, count):
        (run / name).write_bytes(damage)
        if name.startswith("model"):
            arguments = ["transform", str(run), str(new_rows), "--out", str(run.parent / "placed.csv")]
            codes.append(outcome(arguments, capsys)[0])
        else:
            code, _ = outcome(["compare", str(run)], capsys)
            codes += [code, outcome(["report", str(run)], capsys)[0] if code == 0 else 2]
    assert 2 in codes


# --- scenarios ------------------------------------------------------------------------------------------------------

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)

YAML = {
    "aliases": (BOMB, "*a is an alias. Write out its value, line 2"),
    "an alias of itself": ("a: &a [*a]", "*a is an alias"),
    "a merged alias": ("a: &a {b: 1}\nc: {<<: *a}", "*a is an alias"),
    "brackets": ("a: " + "[" * 10_000, "nested more than 30 levels deep"),
    "braces": ("{a: " * 5_000, "nested more than 30 levels deep"),
    "dashes": ("- " * 5_000 + "a", "nested more than 30 levels deep"),
    "a long number": ("seed: " + "9" * 5_000, "has more than 400 characters"),
    "a number to the base of sixty": ("seed: 1" + ":1" * 10_000, "has more than 400 characters"),
    "no date": ("seed: 2001-02-30", "day is out of range"),
    "no integer": ("seed: !!int x", "invalid literal"),
    "an object": ("seed: !!python/object:os.system {}", "could not determine a constructor"),
    "half a letter": ('name: "\\ud800"', "half a surrogate pair"),
    "a control character": ("name: \x00", "special characters are not allowed"),
    "a key twice": ("a: 1\na: 2", "the key 'a' appears twice"),
}


@pytest.mark.parametrize("case", YAML)
def test_malicious_yaml_is_refused(run: Path, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    text, message = YAML[case]
    with pytest.raises(DocumentError) as caught:
        parse_yaml(text)
    assert message in str(caught.value)
    (run / "scenario.yaml").write_text(text)
    for arguments in (["report"], ["compare"], ["run"], ["transform"]):
        target = run / "scenario.yaml" if arguments == ["run"] else run
        more = ["rows.csv", "--out", "out.csv"] if arguments == ["transform"] else []
        code, err = outcome([*arguments, str(target), *more], capsys)
        assert code == 2
        assert message in err


def test_a_file_that_is_too_large_or_not_regular_is_not_read(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("scenario.yaml", "metrics.json", "rounds.jsonl", "embedding.parquet"):
        content = (run / name).read_bytes()
        with (run / name).open("wb") as file:
            file.truncate(maps.LARGEST[Path(name).suffix] + 1)  # a hole: it takes no room
        with pytest.raises(OutputError, match=rf"{name} .*it is larger than \d+ MiB"):
            read_run(run)
        (run / name).unlink()
        os.mkfifo(run / name)
        with pytest.raises(OutputError, match="it is not a regular file"):
            read_run(run)
        (run / name).unlink()
        (run / name).mkdir()
        with pytest.raises(OutputError, match="Is a directory"):
            read_run(run)
        (run / name).rmdir()
        (run / name).write_bytes(content)
    assert read_run(run)
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(ScenarioError, match="it is not a regular file"):
        read(tmp_path / "pipe.yaml")
    assert read_limited(run / "metrics.json", MEGABYTE)


# --- values ---------------------------------------------------------------------------------------------------------


def text(file: str, content: str) -> Callable[[Path], None]:
    """Replace the text of a file."""

    def apply(folder: Path) -> None:
        (folder / file).write_text(content)

    return apply


def ledger(**values: Any) -> Callable[[Path], None]:
    return changed("ledger.json", lambda entries: [entries[0] | values, *entries[1:]])


def environment(**values: Any) -> Callable[[Path], None]:
    return changed("environment.json", lambda content: content | values)


def parquet(file: str, **columns: Any) -> Callable[[Path], None]:
    """Replace columns of a parquet file."""

    def apply(folder: Path) -> None:
        table = pq.read_table(folder / file).to_pydict()
        pq.write_table(pa.table(table | columns), folder / file)

    return apply


def constant_rows(count: int) -> Callable[[Path], None]:
    """Replace the map by this many equal rows, in a few kilobytes."""

    def apply(folder: Path) -> None:
        many = pq.read_table(folder / "embedding.parquet").take(pa.array([0] * 100_000))
        with pq.ParquetWriter(folder / "embedding.parquet", many.schema) as writer:
            for _ in range(count // 100_000):
                writer.write_table(many)

    return apply


def one_label(length: int, rows: int) -> Callable[[Path], None]:
    """Replace the map by rows that share one label, which a parquet file holds once."""

    def apply(folder: Path) -> None:
        table = pq.read_table(folder / "embedding.parquet").take(pa.array([0] * rows))
        label = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * length]))
        place = table.schema.get_field_index("label")
        table = table.set_column(place, "label", label).replace_schema_metadata(None)
        pq.write_table(table, folder / "embedding.parquet", store_schema=False)

    return apply


ROWS = 150
A_MEAN = {"mean": 0.5, "deviation": 1}
SITE = {"site": "a", "rows": 9, "measured": 2, "federated": {"a": A_MEAN}}
VALUES: dict[str, tuple[Callable[[Path], None], str]] = {
    "unknown direction": (ledger(direction="sideways"), "ledger.json is broken at 0.direction"),
    "negative count": (ledger(count=-1), "ledger.json has an invalid number in"),
    "negative bytes": (ledger(bytes=-5), "ledger.json has an invalid number in"),
    "endless bytes": (ledger(bytes=10**400), "ledger.json"),
    "bytes past any disk": (ledger(bytes=2**63), "ledger.json has an invalid number in"),
    "epsilon is not a number": (ledger(epsilon=float("nan")), "ledger.json has an invalid number in"),
    "negative delta": (ledger(epsilon=1.0, delta=-1.0), "ledger.json has an invalid number in"),
    "no list": (changed("ledger.json", lambda entries: entries[0]), "ledger.json is broken"),
    "deep": (
        text("ledger.json", "[" * 10**6),
        "ledger.json is broken",
    ),
    "negative seconds": (environment(seconds={"a": -1.0}), "environment.json is broken at seconds.a"),
    "no seconds": (environment(seconds={"a": float("nan")}), "environment.json is broken at seconds.a"),
    "endless seconds": (environment(seconds={"a": 1e300}), "environment.json is broken at seconds.a"),
    "endless memory": (environment(memory_bytes=10**30), "environment.json is broken at memory_bytes"),
    "cores in words": (environment(cores="two"), "environment.json is broken at cores"),
    "a site's mean above 1": (
        changed(
            "metrics.json",
            lambda scores: scores | {"sites": [SITE | {"federated": {"a": A_MEAN | {"mean": 2}}}]},
        ),
        "metrics.json is broken at sites.0.federated.a.mean",
    ),
    "a site without measured rows": (
        changed("metrics.json", lambda scores: scores | {"sites": [SITE | {"measured": 1}]}),
        "metrics.json is broken at sites.0.measured",
    ),
    "text for a metric": (changed("metrics.json", lambda all_: {"federated": {"a": "b"}}), "metrics.json"),
    "places as text": (parquet("embedding.parquet", x=["a"] * ROWS), "coordinates that are not numbers"),
    "places in lists": (parquet("embedding.parquet", x=[[1.0]] * ROWS), "coordinates that are not numbers"),
    "places at the end of doubles": (
        parquet("embedding.parquet", x=[1e308] * ROWS),
        "with a position that is not finite",
    ),
    "lost places": (parquet("embedding.parquet", x=[None] * ROWS), "coordinates that are not numbers"),
    "some lost places": (
        parquet("embedding.parquet", x=[None, *[1.0] * (ROWS - 1)]),
        "1 rows with a position",
    ),
    "clients that are lists": (parquet("embedding.parquet", client=[["a"]] * ROWS), "instead of names"),
    "labels that are numbers": (parquet("embedding.parquet", label=list(range(ROWS))), "instead of names"),
    "labels that are bytes": (parquet("embedding.parquet", label=[b"\xff"] * ROWS), "instead of names"),
    "labels that are no UTF-8": (
        parquet("embedding.parquet", label=pa.array([b"\xff"] * ROWS, pa.binary()).view(pa.string())),
        "is not a parquet file",
    ),
    "rows that are dates": (
        parquet("embedding.parquet", row=pa.array([0] * ROWS, pa.date32())),
        "instead of names",
    ),
    "rows past 2^63": (
        parquet("embedding.parquet", row=pa.array([2**64 - 1] * ROWS, pa.uint64())),
        "without a name",
    ),
    "an endless name": (
        parquet("embedding.parquet", client=["a" * 200_000] * ROWS),
        "a name of 200000 bytes",
    ),
    "a name without end for each row": (
        one_label(10**6, 2_000_000),
        "the text of the column 'label' needs too much memory: 1.819 TiB",
    ),
    "fewer pooled rows": (parquet("central.parquet", row=[0] * ROWS), "the rows of embedding.parquet"),
    "rows that nobody accounts for": (
        changed("data.json", lambda data: data | {"mapped": 3}),
        "does not account for",
    ),
    "fewer rows than none": (
        changed("data.json", lambda data: data | {"set_apart": -1}),
        "does not account for",
    ),
    "more rows than were read": (
        changed("data.json", lambda data: data | {"set_apart": 9}),
        "does not account for",
    ),
    "rows of nowhere": (changed("data.json", lambda data: data | {"sources": []}), "does not account for"),
    "more rows than can be": (constant_rows(5_100_000), "5100000 rows; at most 5000000"),
}


@pytest.mark.parametrize("case", VALUES)
def test_impossible_values_are_refused_with_the_name_of_their_file(
    run: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, message = VALUES[case]
    spoil(run)
    for command in ("compare", "report"):
        code, err = outcome([command, str(run)], capsys)
        assert code == 2
        assert message in err


SCORES = {
    "federated": {"a": float("inf"), "b": 1e308, "c": 1e-320},
    "central": {"a": 1.0, "b": -1e308, "c": 1e-320},
    "not_computed": {},
}
ROUND = {"seconds": 0.0, "bytes_up": 0, "bytes_down": 0, "asked": 1, "answered": 1, "failed": 0}
OBJECTIVES = [1e308, -1e308, 1e-320, 2e-320, float("nan"), float("inf")]
SITES = [
    SITE | {"site": "\x1b[2J<b>", "rows": 2**63 - 1, "federated": {"a": {"mean": -1, "deviation": 1e-320}}},
    SITE | {"rows": 0, "measured": 2**63 - 1, "federated": {"a": {"mean": 1, "deviation": 0}, "b": A_MEAN}},
    SITE | {"federated": {}, "central": {"a": A_MEAN}},
]
SHOWN: dict[str, Callable[[Path], None]] = {
    "scores without bounds": changed("metrics.json", lambda scores: SCORES),
    "sites at their bounds": changed("metrics.json", lambda scores: SCORES | {"sites": SITES}),
    "objectives without bounds": text(
        "rounds.jsonl",
        "\n".join(
            json.dumps(ROUND | {"round": number, "objective": value}) for number, value in enumerate(OBJECTIVES)
        ),
    ),
    "one place": parquet("embedding.parquet", x=[0.0] * ROWS, y=[0.0] * ROWS),
    "places far off": parquet("embedding.parquet", x=[1e29, *[-1e29] * (ROWS - 1)], y=[1e-320] * ROWS),
    "the ends of integers": parquet("embedding.parquet", row=[-(2**63), *range(1, ROWS)]),
    "sections that are none": text(
        "scenario.yaml", "name: [a]\ndata: 3\nclients: x\nmethod: [1]\nseed: {a: b}\n"
    ),
    "a time that is none": environment(started="tomorrow", federation="<b>", platform="\x1b[2J"),
}  # fmt: skip


@pytest.mark.parametrize("case", SHOWN)
def test_unusual_values_are_shown(run: Path, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    SHOWN[case](run)
    (run / "central.parquet").unlink()
    for command in ("compare", "report"):
        assert outcome([command, str(run)], capsys)[0] == 0


def test_a_chart_shows_the_smallest_and_largest_numbers() -> None:
    for values in ([0.0, 5e-324], [1e99, -1e99], [1e-310, 1e-310], [1e308, 1.0, 2.0]):
        chart = line_chart(range(len(values)), values, "objective")
        assert chart is not None
        assert "nan" not in chart.line
