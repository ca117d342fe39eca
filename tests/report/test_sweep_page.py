"""The page of a sweep: made from its folder alone, safe to open, and complete about missing and failed trials."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import random
import re
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from browsers import content_after
from damages import damages, outcome
from run_pages import ROWS, SCRIPT, external_loads, read_page, write_run
from sweep_folders import OBJECTIVES, Tried, best_of, made_up, write_sweep

from raydr.errors import OutputError
from raydr.report import wording, write_sweep_report
from raydr.report.map.aligned import align
from raydr.report.sweep.axes import axes, measures_of_interest, ranking
from raydr.report.sweep.round_curves import MOST_PLACES, courses
from raydr.report.sweep.thumbnails import thumbnails
from raydr.runfolder import is_sweep, read_run, read_sweep
from raydr.runfolder.sweep import Setting

pytestmark = pytest.mark.usefixtures("edits_accepted")

FILES = ["sweep.yaml", "trials.parquet", "points.parquet", "pareto.parquet"]


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Write a sweep of twelve points over four methods with unfinished trials and no run folders."""
    return write_sweep(tmp_path / "sweep", made_up(12), objectives=OBJECTIVES)


def tried(settings: list[dict[str, Any]], **measures: float) -> list[Tried]:
    """Return one trial of each point."""
    return [
        Tried(place, 0, some, {"federated.npa_10": 0.1 * place} | measures)
        for place, some in enumerate(settings)
    ]


def message(folder: Path) -> str:
    """Return the text of a sweep's page."""
    return read_page(write_sweep_report(folder)).text


class TestReading:
    def test_sweep_is_read_as_written(self, tmp_path: Path) -> None:
        trials = made_up(20)
        sweep = read_sweep(write_sweep(tmp_path / "sweep", trials, objectives=OBJECTIVES))
        assert [(t.point, t.repeat, t.status, t.error, t.folder) for t in sweep.trials] == [
            (t.point, t.repeat, t.status, t.error, t.folder) for t in trials
        ]
        assert {status: sweep.count(status) for status in ("done", "failed", "stopped")} == {
            status: sum(t.status == status for t in trials) for status in ("done", "failed", "stopped")
        }
        assert (sweep.name, sweep.repeats, dict(sweep.objectives)) == ("a sweep", 3, OBJECTIVES)
        for point in sweep.points:
            own = [t for t in trials if t.point == point.point]
            done = [t.measures["seconds"] for t in own if t.status == "done"]
            assert dict(point.settings) == dict(own[0].settings)
            assert point.repeats == len(done)
            assert point.means["seconds"] == pytest.approx(fmean(v for v in done if v is not None))
        assert any(None in point.settings.values() for point in sweep.points)
        assert sweep.front

    def test_unknown_measures_are_shown(self, tmp_path: Path) -> None:
        folder = write_sweep(tmp_path / "sweep", tried([{"seed": 1}], **{"leakage.guessed": 0.25}))
        assert "leakage.guessed" in read_sweep(folder).measures
        assert "leakage.guessed" in message(folder)

    def test_interrupted_sweep_is_refused(self, sweep: Path) -> None:
        with pytest.raises(OutputError, match="as 'incomplete' in its name says"):
            read_sweep(sweep.rename(sweep.with_name("sweep.incomplete-1")))

    def test_path_that_is_no_folder_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(OutputError, match="is not a folder"):
            read_sweep(tmp_path / "nowhere")


def columns(file: str, **changes: Any) -> Callable[[Path], None]:
    """Replace columns of a Parquet file; None removes a column."""

    def spoil(folder: Path) -> None:
        table = pq.read_table(folder / file)
        for name, values in changes.items():
            name = name.replace("__", ".")
            if name in table.column_names:
                table = table.drop_columns([name])
            if values is not None:
                values = values(table.num_rows) if callable(values) else values
                table = table.append_column(name, pa.array(values))
        pq.write_table(table, folder / file)

    return spoil


def rows(file: str, choose: Callable[[int], list[int]]) -> Callable[[Path], None]:
    """Keep some rows of a Parquet file in an order."""

    def spoil(folder: Path) -> None:
        table = pq.read_table(folder / file)
        pq.write_table(table.take(pa.array(choose(table.num_rows), pa.int64())), folder / file)

    return spoil


def asked(**changes: Any) -> Callable[[Path], None]:
    """Change keys of sweep.yaml; None removes a key."""

    def spoil(folder: Path) -> None:
        content = yaml.safe_load((folder / "sweep.yaml").read_text()) | changes
        content = {key: value for key, value in content.items() if value is not None}
        (folder / "sweep.yaml").write_text(yaml.safe_dump(content))

    return spoil


def places(place: str) -> Callable[[int], list[str]]:
    return lambda count: [place] * count


def gone(file: str) -> Callable[[Path], None]:
    return lambda folder: (folder / file).unlink()


def replaced(file: str, content: bytes) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / file).write_bytes(content)

    return spoil


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    **{f"{file} is gone": (gone(file), f"{file} is missing") for file in FILES},
    **{
        f"{file} is no table": (replaced(file, b"PAR1"), f"{file} is not a parquet file")
        for file in FILES
        if file.endswith(".parquet")
    },
    "an empty sweep.yaml": (replaced("sweep.yaml", b""), "sweep.yaml has no keys"),
    "an alias": (replaced("sweep.yaml", b"a: &a []\nb: *a"), "*a is an alias"),
    "no name": (asked(name=None), "sweep.yaml lacks the key 'name'"),
    "a base that is none": (asked(base="digits"), "sweep.yaml has an invalid type for 'base': str"),
    "repeats in words": (asked(repeats=True), "sweep.yaml has an invalid type for 'repeats': bool"),
    "no repeats": (asked(repeats=0), "sweep.yaml asks for 0 repeats"),
    "objectives without a way": (asked(objectives={"seconds": "less"}), "sweep.yaml has objectives"),
    "no status": (columns("trials.parquet", status=None), "trials.parquet lacks the column 'status'"),
    "a status of its own": (
        columns("trials.parquet", status=places("lost")),
        "has the unknown status 'lost'",
    ),
    "no folder": (columns("trials.parquet", folder=lambda n: [None] * n), "has no folder for trial"),
    "a folder elsewhere": (
        columns("trials.parquet", folder=places("../other")),
        "not inside the sweep folder",
    ),
    "a folder at the root": (columns("trials.parquet", folder=places("/etc")), "not inside the sweep folder"),
    "an address": (columns("trials.parquet", folder=places("javascript:x/y")), "not inside the sweep folder"),
    "points in words": (
        columns("trials.parquet", point=places("a")),
        "values that are not whole numbers in the column 'point'",
    ),
    "repeats twice": (columns("trials.parquet", repeat=lambda n: [0] * n), "not sorted by point and repeat"),
    "points upside down": (rows("points.parquet", lambda n: list(range(n))[::-1]), "not sorted by point"),
    "errors that are numbers": (columns("trials.parquet", error=lambda n: [1.0] * n), "instead of text"),
    "an endless error": (
        columns("trials.parquet", error=places("x" * 100_001)),
        "a text of 100001 characters",
    ),
    "no trials": (rows("trials.parquet", lambda n: []), "trials.parquet has no rows"),
    "a point less": (
        rows("points.parquet", lambda n: list(range(n - 1))),
        "does not hold the points of trials",
    ),
    "a measure less": (columns("points.parquet", seconds=None), "points.parquet lacks the column 'seconds'"),
    "no deviation": (columns("points.parquet", seconds__sd=None), "lacks the column 'seconds.sd'"),
    "a deviation below 0": (
        columns("points.parquet", seconds__sd=lambda n: [-1.0] * n),
        "a deviation below 0",
    ),
    "means of nothing": (
        columns("points.parquet", seconds=lambda n: [1e9] * n),
        "has a mean of seconds outside the values of",
    ),
    "repeats miscounted": (
        columns("points.parquet", repeats=lambda n: [7] * n),
        "counts 7 finished repeats of point",
    ),
    "other settings": (
        columns("points.parquet", set__clients__count=lambda n: [99] * n),
        "has another value of clients.count",
    ),
    "settings that are lists": (
        columns("trials.parquet", set__clients__count=lambda n: [[1]] * n),
        "instead of text",
    ),
    "a front of nowhere": (
        columns("pareto.parquet", point=lambda n: [99] * n),
        "pareto.parquet holds points",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_file_is_named(sweep: Path, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    spoil, expected = BROKEN[case]
    spoil(sweep)
    assert is_sweep(sweep)
    code, err = outcome(["report", str(sweep)], capsys)
    assert code == 2
    assert expected in err
    assert "is not a complete sweep folder" in err


@pytest.mark.parametrize("name", FILES)
def test_damaged_file_is_shown_or_refused(sweep: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    content = (sweep / name).read_bytes()
    codes = set()
    for damage in damages(content, random.Random(name), 25):
        (sweep / name).write_bytes(damage)
        codes.add(outcome(["report", str(sweep)], capsys)[0])
    assert 2 in codes


class TestAxes:
    def test_mixed_values_are_shown_as_written(self, tmp_path: Path) -> None:
        noise = {"on": "gradient", "level": 0.1}
        settings = [
            {"runtime.actors": "auto", "privacy.noise": None, "data.scale": True},
            {"runtime.actors": 4, "privacy.noise": noise, "data.scale": False},
            {"runtime.actors": "per-client", "privacy.noise": noise | {"level": 1.0}, "data.scale": True},
        ]
        actors, noises, scale, _ = axes(read_sweep(write_sweep(tmp_path / "sweep", tried(settings))))
        assert actors.categories == ("auto", "4", "per-client")
        assert noises.values == (None, 0, 1)
        assert [noises.text(place) for place in range(3)] == [
            "does not apply", "on: gradient, level: 0.1", "on: gradient, level: 1.0",
        ]  # fmt: skip
        assert scale.categories == ("true", "false")

    def test_numbers_of_two_types_are_numbers(self, tmp_path: Path) -> None:
        settings: list[dict[str, Any]] = [{"level": 1}, {"level": 0.5}, {"level": None}]
        level, _ = axes(read_sweep(write_sweep(tmp_path / "sweep", tried(settings))))
        assert (level.kind, level.values) == ("number", (1, 0.5, None))

    @pytest.mark.parametrize(
        ("values", "logarithmic"),
        [
            ([1.0, 100.0], True), ([0.0, 0.01, 1.0], True), ([1.0, 99.0], False), ([-1.0, 1000.0], False),
            ([0.0, 5.0], False), ([None, 1.0], False),
        ],
    )  # fmt: skip
    def test_axis_of_positive_values_over_decades_is_logarithmic(
        self, tmp_path: Path, values: list[float | None], logarithmic: bool
    ) -> None:
        folder = write_sweep(tmp_path / "sweep", tried([{"level": value} for value in values]))
        assert axes(read_sweep(folder))[0].logarithmic is logarithmic

    @pytest.mark.parametrize("value", [math.inf, -math.inf, 1e300])
    def test_non_finite_value_is_a_category(self, tmp_path: Path, value: float) -> None:
        folder = write_sweep(tmp_path / "sweep", tried([{"level": value}, {"level": 1.5}]))
        assert axes(read_sweep(folder))[0].kind == "category"
        write_sweep_report(folder)

    def test_points_are_ranked_by_the_first_measured_objective(self, tmp_path: Path) -> None:
        trials = [
            Tried(place, 0, {}, {"seconds": value}) for place, value in enumerate([3.0, None, 1.0, 2.0])
        ]
        for way, expected in (("min", [2, 3, 0, 1]), ("max", [0, 3, 2, 1])):
            objectives = {"federated.npa_10": "max", "seconds": way}
            folder = write_sweep(tmp_path / way, trials, objectives=dict(list(objectives.items())[1:]))
            asked(objectives=objectives)(folder)
            sweep = read_sweep(folder)
            found = measures_of_interest(sweep, axes(sweep))
            assert [axis.name for axis in found] == ["seconds"]
            assert ranking(found[0], 4) == expected

    def test_default_ranking_is_faithfulness_leakage_costs(self, tmp_path: Path) -> None:
        sweep = read_sweep(write_sweep(tmp_path / "sweep", made_up(8)))
        assert [axis.name for axis in measures_of_interest(sweep, axes(sweep))] == [
            "federated.npa_10", "bytes_exposed", "epsilon", "bytes_up", "seconds",
        ]  # fmt: skip


ODD: dict[str, list[Tried]] = {
    "a single trial": [Tried(0, 0, {"method.landmarks": 20}, {"federated.npa_10": 0.25})],
    "one axis": [Tried(place, 0, {"seed": place}, {"seconds": 1.0}) for place in range(3)],
    "no axis": [Tried(0, 0, {}, {"seconds": 1.0}), Tried(1, 0, {}, {"seconds": 2.0})],
    "no axis applies": [Tried(0, 0, {"method.anchors": None}, {"seconds": 1.0})],
    "no measure": [Tried(0, 0, {"method.anchors": 3}), Tried(1, 0, {"method.anchors": 4})],
    "no measure has a value": [Tried(0, 0, {"method.anchors": 3}, {"seconds": None})],
    "nothing at all": [Tried(0, 0, {}, {})],
    "all failed": [Tried(p, 0, {"seed": p}, {"seconds": None}, "failed", "no", None) for p in range(3)],
    "points without a done trial": [
        Tried(0, 0, {"seed": 1}, {"seconds": 1.0}), Tried(7, 3, {"seed": 2}, {}, "stopped", None, None),
    ],
    "the ends of integers": [Tried(2**62, 0, {"seed": 2**63 - 1}, {"seconds": 5e-324})],
    "numbers without bounds": [
        Tried(0, 0, {"level": math.nan}, {"seconds": math.inf}), Tried(1, 0, {"level": 1e99}, {"seconds": 1e99}),
    ],
}  # fmt: skip


class TestPage:
    def test_page_shows_keys_outcome_and_best_point(self, tmp_path: Path) -> None:
        trials = [
            Tried(0, 0, {"method.landmarks": 20}, {"federated.npa_10": 0.25, "bytes_up": 1e6}),
            Tried(0, 1, {"method.landmarks": 20}, {"federated.npa_10": 0.75, "bytes_up": 1e6}),
            Tried(1, 0, {"method.landmarks": 50}, {"federated.npa_10": 0.625, "bytes_up": 2e6}),
            Tried(1, 1, {"method.landmarks": 50}, {}, "failed", "RunError: nobody answered", None),
        ]
        text = message(write_sweep(tmp_path / "sweep", trials, objectives={"federated.npa_10": "max"}))
        for part in (
            "2 points over method.landmarks, 2 repeats each: 3 of 4 trials done, 1 failed.",
            "Best by Neighbour preservation, k = 10: point 1 (method.landmarks 50), with the highest value, 0.6250.",
            "0.5000 ± 0.3536",
            "1, repeat 1 failed RunError: nobody answered",
            "The run folder of 3 trials is missing",
        ):
            assert part in text.replace("\u202f", " "), part

    @pytest.mark.parametrize("case", ODD)
    def test_unusual_sweeps_are_shown(self, tmp_path: Path, case: str) -> None:
        text = message(write_sweep(tmp_path / "sweep", ODD[case]))
        done = sum(trial.status == "done" for trial in ODD[case])
        assert f"{done} of {len(ODD[case])} trial" in text
        assert ("Best by" in text) is (case in ("a single trial", "one axis", "no axis", "no axis applies",
            "points without a done trial", "the ends of integers", "numbers without bounds"))  # fmt: skip

    def test_page_opens_offline_with_a_strict_policy(self, sweep: Path) -> None:
        page = read_page(write_sweep_report(sweep))
        links = [load for load in external_loads(page) if not load.startswith("a href=")]
        assert links == []
        (policy,) = [
            attributes["content"]
            for tag, attributes in page.tags
            if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
        ]
        assert policy is not None
        assert policy.startswith("default-src 'none';")
        assert "unsafe" not in policy
        for tag in ("style", "script"):
            (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", page.raw, flags=re.S)
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert f"{tag}-src 'sha256-{digest}'" in policy
        # Content that the policy forbids must be absent.
        assert not any(name == "style" or name.startswith("on") for _, tags in page.tags for name in tags)
        assert "innerHTML" not in page.raw

    @pytest.mark.parametrize(
        "place", ["name", "key", "value", "section", "error", "measure", "label", "base"]
    )
    def test_foreign_text_is_escaped(self, tmp_path: Path, place: str) -> None:
        folder = tmp_path / "sweep"
        hostile = {place: SCRIPT}
        settings: dict[str, Setting | dict[str, str]] = {
            hostile.get("key", "a.key"): {SCRIPT: SCRIPT} if place == "section" else hostile.get("value", "x")
        }
        trials = [
            Tried(0, 0, settings, {hostile.get("measure", "seconds"): 1.0}, folder="trials/0000-0"),
            Tried(0, 1, settings, {}, "failed", hostile.get("error", "why"), None),
        ]
        write_run(folder / "trials" / "0000-0", labels=[SCRIPT] * ROWS if place == "label" else None)
        write_sweep(folder, trials, name=hostile.get("name", "a sweep"))
        if place == "base":
            asked(base={"name": SCRIPT})(folder)
        raw = write_sweep_report(folder).read_text(encoding="utf-8")
        assert SCRIPT not in raw
        assert "alert(1)" in raw  # shown, as text

    def test_links_lead_to_existing_reports(self, tmp_path: Path) -> None:
        folder = tmp_path / "sweep"
        trials = [
            Tried(0, 0, {}, {"seconds": 1.0}, folder="trials/a #1?"),
            Tried(0, 1, {}, {"seconds": 1.0}, folder="trials/gone"),
        ]
        write_run(folder / "trials" / "a #1?")
        (folder / "trials" / "a #1?" / "report.html").write_text("a report")
        page = read_page(write_sweep_report(write_sweep(folder, trials)))
        links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
        assert links == ["trials/a%20%231%3F/report.html"]

    def test_page_of_a_thousand_trials_is_small(self, tmp_path: Path) -> None:
        page = write_sweep_report(write_sweep(tmp_path / "sweep", made_up(1000, 1), objectives=OBJECTIVES))
        assert page.stat().st_size < 3_000_000

    def test_report_command_recreates_the_page(self, sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
        first = write_sweep_report(sweep).read_bytes()
        (sweep / "sweep.html").unlink()
        assert outcome(["report", str(sweep)], capsys)[0] == 0
        assert (sweep / "sweep.html").read_bytes() == first


def turned(points: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return reflected, rotated, doubled and shifted points."""
    angle = 2 * math.pi / 3
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    return points * [-1.0, 1.0] @ turn * 2.0 + 5.0


class TestMaps:
    def write(self, folder: Path, points: int = 3) -> Path:
        """Write a sweep of maps equal up to a similarity; the last is of another table."""
        own = np.random.default_rng(1).normal(size=(ROWS, 2))
        for point in range(points):
            where = write_run(folder / "trials" / f"{point:04d}-1", points=turned(own) if point % 2 else own)
            if point == points - 1:
                scenario = yaml.safe_load((where / "scenario.yaml").read_text())
                scenario["data"] = {"source": "iris"}
                (where / "scenario.yaml").write_text(yaml.safe_dump(scenario))
        trials = [
            trial
            for point in range(points)
            for trial in (
                Tried(point, 0, {"seed": point}, {}, "failed", None, None),
                Tried(
                    point,
                    1,
                    {"seed": point},
                    {"federated.npa_10": float(point)},
                    folder=f"trials/{point:04d}-1",
                ),
            )
        ]
        return write_sweep(folder, trials)

    def test_maps_of_equal_rows_are_aligned_to_the_first(self, tmp_path: Path) -> None:
        folder = self.write(tmp_path / "sweep")
        first, second, other = (read_run(folder / "trials" / f"{point:04d}-1") for point in range(3))
        np.testing.assert_allclose(align(second, first)[0], first.federated, atol=1e-9)
        assert np.abs(second.federated - first.federated).max() > 1.0
        points, is_turned = align(other, first)
        assert not is_turned
        np.testing.assert_array_equal(points, other.federated)

    def test_maps_show_the_first_repeat_of_each_point(self, tmp_path: Path) -> None:
        folder = self.write(tmp_path / "sweep")
        shown = thumbnails(read_sweep(folder), [1, 0, 2])
        assert shown is not None
        assert [(map_.place, map_.repeat) for map_ in shown.maps] == [(1, 1), (0, 1), (2, 1)]
        assert (shown.unturned, shown.left_out) == (1, 0)
        page = read_page(write_sweep_report(folder))
        figures = [attributes["data-place"] for tag, attributes in page.tags if tag == "figure"]
        assert figures == ["2", "1", "0"]

    def test_number_of_maps_is_limited(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("raydr.report.sweep.thumbnails.MOST_MAPS", 2)
        assert "1 more are left out" in message(self.write(tmp_path / "sweep"))

    def test_broken_run_folder_is_named(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        folder = self.write(tmp_path / "sweep")
        (folder / "trials" / "0001-1" / "rounds.jsonl").write_text("{}")
        code, err = outcome(["report", str(folder)], capsys)
        assert code == 2
        assert "0001-1 is not a complete run folder: rounds.jsonl is broken" in err


class TestCourses:
    def test_curves_are_means_and_deviations_over_repeats(self, tmp_path: Path) -> None:
        folder = tmp_path / "sweep"
        lines = {0: [4.0, 2.0, 1.0], 1: [2.0, 1.0]}
        for repeat, values in lines.items():
            self.run(folder / f"trials/{repeat}", dict(enumerate(values, 1)))
        trials = [Tried(0, repeat, {}, {"seconds": 1.0}, folder=f"trials/{repeat}") for repeat in lines]
        (course,) = courses(read_sweep(write_sweep(folder, trials)))
        (band,) = course.bands
        assert (course.name, band.rounds) == ("objective", (1, 2, 3))
        assert band.means == (3.0, 1.5, 1.0)
        assert band.deviations == (stdev([4.0, 2.0]), stdev([2.0, 1.0]), None)

    def test_metric_curves_end_with_the_final_map(self, tmp_path: Path) -> None:
        folder = tmp_path / "sweep"
        self.run(folder / "trials/0", {1: 1.0, 2: 0.5, 3: 0.25})
        progress = {"0": {"npa_10": 0.1, "lost": None}, "2": {"npa_10": 0.3, "lost": 1.0}}
        (folder / "trials/0/progress.json").write_text(json.dumps(progress))
        trials = [Tried(0, 0, {}, {"federated.npa_10": 0.4}, folder="trials/0")]
        _, metric = courses(read_sweep(write_sweep(folder, trials)))
        assert (metric.name, metric.arrow) == ("npa_10", "↑")
        assert (metric.bands[0].rounds, metric.bands[0].means) == ((0, 2, 3), (0.1, 0.3, 0.4))

    def test_long_curves_keep_first_last_and_some_rounds(self, tmp_path: Path) -> None:
        folder = tmp_path / "sweep"
        self.run(folder / "trials/0", {round: float(round) for round in range(1, 5001)})
        (course,) = courses(
            read_sweep(write_sweep(folder, [Tried(0, 0, {}, {"seconds": 1.0}, folder="trials/0")]))
        )
        rounds = course.bands[0].rounds
        assert (len(rounds), rounds[0], rounds[-1]) == (MOST_PLACES, 1, 5000)

    @staticmethod
    def run(folder: Path, objectives: dict[int, float | None]) -> None:
        folder.mkdir(parents=True)
        line = {"seconds": 0.1, "bytes_up": 1, "bytes_down": 1, "asked": 1, "answered": 1, "failed": 0}
        (folder / "rounds.jsonl").write_text(
            "\n".join(json.dumps(line | {"round": r, "objective": value}) for r, value in objectives.items())
        )


def opened(browser: Any, page: Path, fragment: str = "") -> str:
    """Return a page's HTML after its scripts ran in a browser."""
    return content_after(browser, page.as_uri() + fragment, "[data-ready=true]")


class TestInABrowser:
    @pytest.mark.parametrize(
        "objectives",
        [
            {"federated.npa_10": "max", "bytes_up": "min"},
            {"bytes_up": "max", "seconds": "min"},  # with ties upwards
        ],
        ids="-".join,
    )
    def test_front_has_only_undominated_points(
        self, browser: Any, tmp_path: Path, objectives: dict[str, str]
    ) -> None:
        """The first objective is on the vertical axis, the second on the horizontal one."""
        trials = made_up(60, 2)
        folder = write_sweep(tmp_path / "sweep", trials, objectives=objectives)
        content = opened(browser, write_sweep_report(folder))
        assert 'data-ready="true"' in content
        points = read_sweep(folder).points
        costs = [
            [
                math.inf if value is None else float(f"{value:.6g}") * (1 if way == "min" else -1)
                for name, way in objectives.items()
                for value in [point.means.get(name)]
            ]
            for point in points
        ]
        (front,) = re.findall(r'data-front="([^"]*)"', content)
        assert front == " ".join(str(points[place].point) for place in best_of(costs))
        assert len(front.split()) > 1

    def test_point_in_the_address_is_marked_everywhere(self, browser: Any, tmp_path: Path) -> None:
        folder = TestMaps().write(tmp_path / "sweep")
        content = opened(browser, write_sweep_report(folder), "#point=1")
        assert re.search(r'<aside id="chosen" aria-label', content)  # not hidden
        assert content.count('class="chosen"') == 2  # its row and its map
        assert html.unescape(re.findall(r'id="chosen-settings">([^<]*)', content)[0]) == "seed 1"

    def test_point_details_match_the_table(self, browser: Any, tmp_path: Path) -> None:
        trials = [
            Tried(point, repeat, {"seed": point}, {"federated.npa_10": 0.5, "seconds": seconds + repeat})
            for point, seconds in enumerate((185.0, 7500.0))
            for repeat in range(2)
        ]
        content = opened(browser, write_sweep_report(write_sweep(tmp_path / "sweep", trials)), "#point=0")
        message = html.unescape(re.findall(r'id="chosen-measures"[^>]*>([^<]*)', content)[0]).split(" · ")
        spelt = f"{wording.duration(185.5)} ± {wording.duration(2**-0.5)}"
        assert message[1] == f"Time {spelt}"
        assert f">{spelt}<" in html.unescape(content)

    @pytest.mark.parametrize("case", ODD)
    @pytest.mark.slow
    def test_unusual_sweeps_are_drawn(self, browser: Any, tmp_path: Path, case: str) -> None:
        folder = write_sweep(tmp_path / "sweep", ODD[case])
        assert 'data-ready="true"' in opened(browser, write_sweep_report(folder))
