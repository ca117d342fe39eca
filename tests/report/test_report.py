"""The report: made from the run folder alone, safe to open, and complete about messages."""

from __future__ import annotations

import errno
import json
import os
import re
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from markupsafe import escape
from matplotlib.image import imread
from run_pages import ROWS, SCRIPT, Page, external_loads, in_ball, in_space, message, read_page, write_run

from raydr.errors import OutputError
from raydr.geometry.procrustes import procrustes, turn
from raydr.plain import short
from raydr.report import compare, write_comparison, write_picture, write_report
from raydr.report.charts import line_chart, round_numbers
from raydr.report.colouring import CATEGORIES, GREY, MOST_NUMBERS, RAMP, colouring, ramp
from raydr.report.picture import png
from raydr.report.projections import BOUNDARY, frame, panels, principal_axes
from raydr.report.run import privacy_summary
from raydr.report.templates import part
from raydr.report.wording import (
    by_revelation,
    duration,
    promise,
    size,
)
from raydr.runfolder import read_run
from raydr.runfolder.manifest import seal

pytestmark = pytest.mark.usefixtures("edits_accepted")


NOISE = {"kind": "gaussian-noise", "on": "distances", "level": 1e-12}


class TestPage:
    def test_page_opens_offline(self, tmp_path: Path) -> None:
        page = read_page(write_report(write_run(tmp_path / "run")))
        assert external_loads(page) == []
        assert (
            sum(tag == "script" for tag, _ in page.tags) >= 4
        )  # the map's columns and places, and the page's own

    def test_scripts_in_the_page_end_correctly(self, tmp_path: Path) -> None:
        page = read_page(write_report(write_run(tmp_path / "run", labels=[SCRIPT] * ROWS)))
        assert page.raw.count("<script>") + page.raw.count("<script type") == page.raw.count("</script>")

    def test_page_is_recreated_from_the_folder(self, tmp_path: Path) -> None:
        folder = write_run(tmp_path / "run")
        files = {path.name for path in folder.iterdir()}
        write_report(folder).unlink()
        assert {path.name for path in folder.iterdir()} == files
        assert write_report(folder) == folder / "report.html"

    def test_page_shows_metrics_costs_and_messages(self, tmp_path: Path) -> None:
        page = read_page(write_report(write_run(tmp_path / "run")))
        for sentence in (
            "Fed-tSNE with 50 landmarks: 60 rows at 3 clients;",
            "94.9\u202f%",  # 0.41234 / 0.43456
            "0.4123", "0.4346", "0.9877", "0.9912", "−0.0222",
            "Not computed: Steadiness", "Steadiness: needs an extra that is not installed",
            "Squared distances from every record to every landmark",
            "48\u202fkB", "16\u202fkB", "none claimed",
            "3 February 2026, 10:22 UTC", "400\u202fMB", "9.5\u202fs",
            "Procrustes",
        ):  # fmt: skip
            assert sentence.replace("\u202f", " ") in page.text.replace("\u202f", " "), sentence

    def test_metric_without_a_pooled_value_has_no_ratio(self, tmp_path: Path) -> None:
        page = read_page(write_report(write_run(tmp_path / "run")))
        table = page.raw[page.raw.index('<table class="metrics">') :]
        line = table[table.index(">0.0321<") :].split("</tr>")[0]
        assert "%" not in line
        assert "–" in line

    def test_without_labels_and_central_there_is_one_map_and_no_switch(self, tmp_path: Path) -> None:
        page = read_page(write_report(write_run(tmp_path / "run", central=False)))
        identifiers = {attributes.get("id") for _, attributes in page.tags}
        assert "map-federated" in identifiers
        assert "map-central" not in identifiers
        assert not any(attributes.get("name") == "colour" for _, attributes in page.tags)
        assert "Procrustes" not in page.text

    def test_both_maps_draw_the_same_rows_so_that_a_selection_links(self, tmp_path: Path) -> None:
        page = read_page(write_report(write_run(tmp_path / "run", labels=["a", "b"] * (ROWS // 2))))
        maps = _drawn(page)
        assert maps["columns"][0]["names"] == ["a", "b"]
        assert maps["ways"][0]["by"] == "label"
        assert maps["ways"][0]["colours"] == list(CATEGORIES[:2])
        assert maps["ways"][0]["columns"] == [0, 0]
        assert [panel["key"] for panel in maps["panels"]] == ["federated", "central"]
        assert maps["rows"] == ROWS
        assert {name for _, tag in page.tags if (name := tag.get("id"))} >= {
            f"part-{part}" for panel in maps["panels"] for part in panel["axes"]
        }

    @pytest.mark.parametrize(
        "place", ["label", "client", "row", "scenario", "message", "metric", "package", "note"]
    )
    def test_foreign_text_is_escaped(self, tmp_path: Path, place: str) -> None:
        hostile = [SCRIPT] * ROWS
        run = write_run(
            tmp_path / "run",
            labels=hostile if place == "label" else None,
            clients=hostile if place == "client" else None,
            rows=[f"{row}{SCRIPT}" for row in range(ROWS)] if place == "row" else range(ROWS),
            name=SCRIPT if place == "scenario" else "digits",
            ledger=[message(what=SCRIPT, seen_by=SCRIPT)] if place == "message" else None,
            metrics={"federated": {SCRIPT: 1.0}, "not_computed": {SCRIPT: SCRIPT}}
            if place == "metric"
            else None,
        )
        if place == "package":
            environment = json.loads((run / "environment.json").read_text())
            environment["packages"] = {SCRIPT: SCRIPT}
            (run / "environment.json").write_text(json.dumps(environment))
        if place == "note":
            write_notes(run, [{"title": SCRIPT, "text": SCRIPT}])
        assert SCRIPT not in write_report(run).read_text(encoding="utf-8")
        write_comparison([run], tmp_path / "comparison.html")
        assert SCRIPT not in (tmp_path / "comparison.html").read_text(encoding="utf-8")


def _drawn(page: Page) -> dict[str, Any]:
    """Return the data from which the page draws the maps."""
    data = re.search(r'<script type="application/json" id="map-header">(.*?)</script>', page.raw, flags=re.S)
    assert data is not None
    maps: dict[str, Any] = json.loads(data.group(1))
    return maps


def write_notes(folder: Path, notes: Any) -> None:
    (folder / "notes.json").write_text(json.dumps(notes))


class TestNotes:
    def test_notes_are_paragraphs_after_the_messages(self, tmp_path: Path) -> None:
        folder = write_run(tmp_path / "run")
        write_notes(
            folder,
            [{"title": "What is safe", "text": "One fact.\n\nAnd\nanother."}, {"title": "b", "text": "c"}],
        )
        raw = write_report(folder).read_text(encoding="utf-8")
        found = [
            raw.index(part) for part in ('id="left-title"', "What is safe", "<p>One fact.</p>", "<p>And")
        ]
        assert found == sorted(found)
        assert found[-1] < raw.index("<dt>b</dt>") < raw.index('id="took-title"')
        assert read_run(folder).notes[0].paragraphs == ("One fact.", "And\nanother.")

    @pytest.mark.parametrize("notes", [None, []])
    def test_run_without_notes_has_no_notes_section(self, tmp_path: Path, notes: Any) -> None:
        folder = write_run(tmp_path / "run")
        if notes is not None:
            write_notes(folder, notes)
        assert "In plain words" not in read_page(write_report(folder)).text


COSNE = {"kind": "sense", "embedder": "cosne", "anchors": 63}


class TestThreeDimensions:
    def test_page_has_three_columns_per_map_and_an_axis_switch(self, tmp_path: Path) -> None:
        page = read_page(write_report(write_run(tmp_path / "run", points=in_space())))
        switch = [tag["value"] for name, tag in page.tags if name == "input" and tag.get("name") == "axes"]
        assert switch == ["0,1", "0,2", "1,2"]
        maps = _drawn(page)
        assert [len(panel["axes"]) for panel in maps["panels"]] == [3, 3]
        assert "three dimensions" in page.text

    def test_two_dimensional_map_has_no_axis_switch(self, tmp_path: Path) -> None:
        page = read_page(write_report(write_run(tmp_path / "run")))
        assert not any(tag.get("name") == "axes" for _, tag in page.tags)
        assert "three dimensions" not in page.text

    def test_maps_are_aligned_along_principal_axes(self, tmp_path: Path) -> None:
        run = read_run(write_run(tmp_path / "run", points=in_space()))
        shown = panels(run)
        np.testing.assert_allclose(shown["central"], shown["federated"], atol=1e-9)
        spread = np.cov(shown["federated"].T)
        np.testing.assert_allclose(spread, np.diag(np.diag(spread)), atol=1e-9)
        assert np.all(np.diff(np.diag(spread)) < 0)
        before, after = (
            np.linalg.norm(points[:, None] - points[None], axis=2)
            for points in (run.federated, shown["federated"])
        )
        np.testing.assert_allclose(after, before, atol=1e-9)
        ranges = np.array(frame(shown["federated"], in_disk=False))
        np.testing.assert_allclose(ranges, np.tile([-1.0, 1.0], (3, 1)) * ranges[0, 1])  # so any pair fits

    def test_rotated_map_is_drawn_the_same_way(self) -> None:
        points = in_space()
        other = points @ np.linalg.qr(np.random.default_rng(8).normal(size=(3, 3)))[0]
        shown, turned = ((some - some.mean(axis=0)) @ principal_axes(some) for some in (points, other))
        np.testing.assert_allclose(turned, shown, atol=1e-9)

    @pytest.mark.parametrize("central", [True, False])
    def test_picture_shows_every_pair_of_axes(self, tmp_path: Path, central: bool) -> None:
        folder = write_run(tmp_path / "run", points=in_space(), central=central)
        width, height = struct.unpack(">II", write_picture(folder).read_bytes()[16:24])
        assert 1550 <= width <= 1650
        assert 0.35 * (1 + central) < height / width < 0.45 * (1 + central)

    def test_pooled_map_of_other_dimensions_is_refused(self, tmp_path: Path) -> None:
        folder = write_run(tmp_path / "run", points=in_space())
        table = pq.read_table(folder / "central.parquet").drop_columns(["z"])
        pq.write_table(table, folder / "central.parquet")
        with pytest.raises(OutputError, match="has 2 dimensions, but"):
            write_report(folder)


class TestDisk:
    @pytest.mark.parametrize("dimensions", [2, 3])
    def test_maps_keep_their_centre_and_their_scale(self, tmp_path: Path, dimensions: int) -> None:
        run = read_run(write_run(tmp_path / "run", points=in_ball(dimensions), method=COSNE))
        shown = panels(run)
        for panel, points in (("federated", run.federated), ("central", run.central)):
            assert points is not None
            np.testing.assert_allclose(np.linalg.norm(shown[panel], axis=1), np.linalg.norm(points, axis=1))
        np.testing.assert_allclose(shown["central"], 0.5 * shown["federated"], atol=1e-9)

    @pytest.mark.parametrize("dimensions", [2, 3])
    def test_page_draws_the_disk_boundary_and_axes(self, tmp_path: Path, dimensions: int) -> None:
        page = read_page(write_report(write_run(tmp_path / "run", points=in_ball(dimensions), method=COSNE)))
        for panel in _drawn(page)["panels"]:
            assert panel["disk"]["middle"] == pytest.approx(0.5)
            assert 1 / 2.2 < panel["disk"]["radius"] < 0.5  # in a frame from about -1.1 to 1.1
        assert "boundary of the Poincaré " + ("disk" if dimensions == 2 else "ball") in page.text
        assert "rotated and reflected onto" in page.text

    def test_other_maps_have_no_boundary(self, tmp_path: Path) -> None:
        page = read_page(write_report(write_run(tmp_path / "run")))
        assert all(panel["disk"] is None for panel in _drawn(page)["panels"])
        assert "Poincaré" not in page.text

    @pytest.mark.parametrize(("embedder", "drawn"), [("cosne", True), ("cne", False)])
    def test_picture_draws_the_disk_boundary(self, tmp_path: Path, embedder: str, drawn: bool) -> None:
        folder = write_run(tmp_path / "run", points=in_ball(2), method=COSNE | {"embedder": embedder})
        pixels = imread(write_picture(folder))[..., :3] * 255
        circle = [int(BOUNDARY[at : at + 2], 16) for at in (1, 3, 5)]
        assert bool((np.abs(pixels - circle).max(axis=2) < 2).sum() > 500) is drawn

    def test_alignment_of_disks_is_the_best_rotation(self) -> None:
        moving, fixed = np.random.default_rng(4).normal(size=(2, 30, 2))
        best = turn(moving, fixed)
        assert (best.scale, best.origin.any(), best.target.any()) == (1.0, False, False)
        np.testing.assert_allclose(best.rotation @ best.rotation.T, np.eye(2), atol=1e-12)
        for angle in np.linspace(0.0, 2.0 * np.pi, 73):
            rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
            for flip in (np.eye(2), np.diag([1.0, -1.0])):
                other = moving @ rotation @ flip
                assert ((other - fixed) ** 2).sum() >= ((best(moving) - fixed) ** 2).sum() - 1e-9

    def test_runs_of_every_kind_are_compared_in_one_page(self, tmp_path: Path) -> None:
        runs = [
            write_run(tmp_path / "plane"),
            write_run(tmp_path / "space", points=in_space()),
            write_run(tmp_path / "disk", points=in_ball(2), method=COSNE),
            write_run(tmp_path / "ball", points=in_ball(3), method=COSNE),
        ]
        page = read_page(write_comparison(runs[::-1], tmp_path / "comparison.html"))
        assert [panel["disk"] is None for panel in _drawn(page)["panels"]] == [False, False, True, True]
        assert (
            "Poincaré disk is only rotated and reflected; the circle is the boundary of the disk."
            in page.text
        )
        assert "two axes of largest spread" in page.text
        assert "SENSE with 63 anchors: " in page.text


class TestWhatLeft:
    @pytest.mark.parametrize(
        ("ledger", "warned"),
        [
            ([message()], True),
            ([message(granularity="aggregate"), message()], True),
            ([message(protection=NOISE, epsilon=1.0, delta=1e-5)], False),
            ([message(granularity="per-client")], False),
            ([message(granularity="aggregate")], False),
            ([message(direction="down")], False),
            ([message(direction="simulation-only")], False),
            ([], False),
        ],
    )
    def test_page_warns_only_of_unprotected_records(
        self, tmp_path: Path, ledger: list[dict[str, Any]], warned: bool
    ) -> None:
        folder = write_run(tmp_path / "run", ledger=ledger)
        sentence = read_page(write_report(folder)).text
        assert ("has separate data about each of 60 records" in sentence) is warned
        assert (privacy_summary.points(read_run(folder))[0].figure == "records") is warned

    def test_noise_without_a_claim_is_no_protection(self, tmp_path: Path) -> None:
        """Noise of a tenth of the clients without effect is no protection, and the table names it."""
        some = [message(count=1, protection=NOISE), message(count=9)]
        under = "60 records with Gaussian noise of level 1e-12 on distances, which gives no privacy guarantee"
        for ledger, blurred in ((some, False), (some[:1], True)):
            run = read_run(write_run(tmp_path / str(len(ledger)), ledger=ledger))
            sentence = read_page(write_report(run.path)).text
            assert "has separate data about each of 60 records" in sentence
            assert (under in sentence) is blurred
            assert privacy_summary.points(run)[0].figure == "records"
        assert "Gaussian noise of level 1e-12 on distances" in write_report(run.path).read_text(
            encoding="utf-8"
        )

    def test_most_revealing_message_comes_first(self, tmp_path: Path) -> None:
        kinds = [
            message(kind="sum", granularity="aggregate", bytes=10**9),
            message(kind="guarded", protection=NOISE, bytes=10**8),
            message(kind="sketch", granularity="per-client"),
            message(kind="bare", bytes=1),
        ]
        folder = write_run(tmp_path / "run", ledger=kinds)
        page = write_report(folder).read_text(encoding="utf-8")
        found = [
            page.index(f'<span class="small">{kind}</span>') for kind in ("bare", "guarded", "sketch", "sum")
        ]
        assert found == sorted(found)
        assert min(read_run(folder).ledger, key=by_revelation).kind == "bare"

    def test_privacy_claim_is_written_out(self, tmp_path: Path) -> None:
        run = read_run(write_run(tmp_path / "run", ledger=[message(epsilon=2.0, delta=1e-5), message()]))
        assert promise(run.ledger[0]).replace("\u00a0", " ") == "ε = 2, δ = 1e-5"
        assert promise(run.ledger[1]) == "none claimed"


def _remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _write(name: str, text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_text(text)

    return write


def _reorder(folder: Path) -> None:
    table = pq.read_table(folder / "central.parquet")
    pq.write_table(table.take(list(range(ROWS))[::-1]), folder / "central.parquet")


def _spoil(folder: Path) -> None:
    table = pq.read_table(folder / "embedding.parquet")
    places = [float("nan"), *table["x"].to_pylist()[1:]]
    pq.write_table(table.set_column(2, "x", pa.array(places)), folder / "embedding.parquet")


class TestBrokenFolders:
    @pytest.mark.parametrize(
        ("spoil", "file", "reason"),
        [
            (_remove("embedding.parquet"), "embedding.parquet", "missing"),
            (_remove("metrics.json"), "metrics.json", "missing"),
            (_remove("ledger.json"), "ledger.json", "missing"),
            (_remove("rounds.jsonl"), "rounds.jsonl", "missing"),
            (_remove("environment.json"), "environment.json", "missing"),
            (_remove("data.json"), "data.json", "missing"),
            (_remove("scenario.yaml"), "scenario.yaml", "missing"),
            (_write("metrics.json", '{"federated": {'), "metrics.json", "JSON"),
            (_write("ledger.json", json.dumps([{"kind": "x"}])), "ledger.json", "0.what"),
            (
                _write("ledger.json", json.dumps([message(granularity="atom")])),
                "ledger.json",
                "0.granularity",
            ),
            (_write("rounds.jsonl", '{"round": 1}\n'), "rounds.jsonl", "0.objective"),
            (_write("scenario.yaml", "a: ["), "scenario.yaml", "YAML"),
            (_write("scenario.yaml", ""), "scenario.yaml", "no keys"),
            (_write("embedding.parquet", "x,y"), "embedding.parquet", "parquet"),
            (_spoil, "embedding.parquet", "not finite"),
            (_reorder, "central.parquet", "same order"),
            (_write("notes.json", '[{"title": "a"}]'), "notes.json", "0.text"),
        ],
    )
    def test_broken_folder_error_names_file_and_remedy(
        self, tmp_path: Path, spoil: Callable[[Path], None], file: str, reason: str
    ) -> None:
        folder = write_run(tmp_path / "run")
        spoil(folder)
        for write in (write_report, write_picture):
            with pytest.raises(OutputError) as caught:
                write(folder)
            assert file in str(caught.value)
            assert reason in str(caught.value)
            assert "raydr run" in str(caught.value)
        assert not (folder / "report.html").exists()

    def test_report_refuses_an_interrupted_run(self, tmp_path: Path) -> None:
        folder = write_run(tmp_path / "digits.incomplete")
        for write in (write_report, write_picture):
            with pytest.raises(OutputError, match="incomplete"):
                write(folder)

    def test_report_refuses_a_path_that_is_no_folder(self, tmp_path: Path) -> None:
        with pytest.raises(OutputError, match="not a folder"):
            read_run(tmp_path / "nowhere")

    def test_unwritable_page_names_its_folder(self, tmp_path: Path) -> None:
        folder = write_run(tmp_path / "run")
        (tmp_path / "file").write_text("")
        with pytest.raises(OutputError, match="cannot be written"):
            write_comparison([folder], tmp_path / "file" / "comparison.html")

    @pytest.mark.parametrize(
        "number",
        [
            errno.ENOSPC,
            *(pytest.param(other, marks=pytest.mark.slow) for other in (errno.EROFS, errno.EACCES)),
        ],
    )
    def test_full_file_system_is_named_and_no_file_left(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        folder = write_run(tmp_path / "run")
        files = set(folder.iterdir())

        def refuse(self: Path, content: bytes) -> int:
            raise OSError(number, os.strerror(number), str(self))

        monkeypatch.setattr(Path, "write_bytes", refuse)
        for write in (write_report, write_picture):
            with pytest.raises(OutputError) as caught:
                write(folder)
            assert f"cannot be written ({os.strerror(number)}): free disk space there" in str(caught.value)
        with pytest.raises(OutputError, match="pass another with --out"):
            write_comparison([folder], tmp_path / "comparison.html")
        assert set(folder.iterdir()) == files

    @pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs an unwritable file system")
    def test_read_only_folder_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(OutputError, match=r"/proc/comparison\.html cannot be written"):
            write_comparison([write_run(tmp_path / "run")], Path("/proc/comparison.html"))

    def test_symlink_is_replaced_not_followed(self, tmp_path: Path) -> None:
        folder = write_run(tmp_path / "run")
        (tmp_path / "mine").write_text("mine")
        for name in ("report.html", ".report.html.incomplete", "embedding.png"):
            (folder / name).symlink_to(tmp_path / "mine")
        write_report(folder)
        write_picture(folder)
        assert (tmp_path / "mine").read_text() == "mine"


class TestProcrustes:
    def test_procrustes_undoes_a_similarity(self) -> None:
        rng = np.random.default_rng(0)
        points = rng.normal(size=(40, 2))
        mirror = np.array([[np.cos(2.0), np.sin(2.0)], [np.sin(2.0), -np.cos(2.0)]])
        moved = 0.2 * points @ mirror + [30.0, -5.0]
        np.testing.assert_allclose(procrustes(moved, points)(moved), points, atol=1e-12)

    def test_procrustes_scales_all_distances_alike(self) -> None:
        rng = np.random.default_rng(1)
        moving, fixed = rng.normal(size=(2, 30, 2))
        found = procrustes(moving, fixed)
        np.testing.assert_allclose(found.rotation @ found.rotation.T, np.eye(2), atol=1e-12)
        before = np.linalg.norm(moving[:, None] - moving[None], axis=2)
        after = np.linalg.norm(found(moving)[:, None] - found(moving)[None], axis=2)
        np.testing.assert_allclose(after, found.scale * before, atol=1e-12)

    def test_procrustes_is_the_best_similarity(self) -> None:
        rng = np.random.default_rng(2)
        moving, fixed = rng.normal(size=(2, 30, 2))
        found = procrustes(moving, fixed)
        best = ((found(moving) - fixed) ** 2).sum()
        centred = (moving - moving.mean(axis=0), fixed.mean(axis=0))
        for angle in np.linspace(0.0, 2.0 * np.pi, 73):
            turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
            for flip in (np.eye(2), np.diag([1.0, -1.0])):
                for scale in (0.5 * found.scale, found.scale, 2.0 * found.scale):
                    other = scale * centred[0] @ turn @ flip + centred[1]
                    assert ((other - fixed) ** 2).sum() >= best - 1e-9

    def test_report_aligns_the_pooled_map(self, tmp_path: Path) -> None:
        run = read_run(write_run(tmp_path / "run"))  # its pooled-data map is mirrored, larger and shifted
        assert run.central is not None
        assert not np.allclose(run.central, run.federated)
        np.testing.assert_allclose(panels(run)["central"], run.federated, atol=1e-12)

    def test_map_of_one_place_is_only_shifted(self) -> None:
        place = np.full((4, 2), 3.0)
        target = np.random.default_rng(3).normal(size=(4, 2))
        np.testing.assert_allclose(procrustes(place, target)(place), np.tile(target.mean(axis=0), (4, 1)))


def luminance(colour: str) -> float:
    """Relative, as WCAG 2 defines it."""
    channels = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it, 1 to 21."""
    darker, lighter = sorted([luminance(one), luminance(other)])
    return (lighter + 0.05) / (darker + 0.05)


class TestColours:
    def test_colours_have_contrast_three_on_every_background(self) -> None:
        style = part("report.css")
        grounds = re.findall(r"--(?:ground|panel): (#[0-9a-f]{6})", style)
        assert len(grounds) == 4
        shades = [*CATEGORIES, GREY, BOUNDARY, *ramp(np.linspace(0.0, 1.0, 256))]
        assert min(contrast(shade, ground) for shade in shades for ground in grounds) >= 3.0
        assert contrast("#000000", "#ffffff") == pytest.approx(21.0)

    def test_colours_are_distinguishable(self) -> None:
        """In OKLab (Ottosson 2020)."""
        channels = (
            np.array([[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in CATEGORIES]) / 255
        )
        linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
        cones = np.array(
            [[0.41222, 0.53633, 0.05145], [0.21190, 0.68070, 0.10740], [0.08830, 0.28172, 0.62998]]
        )
        lab = np.array(
            [[0.21045, 0.79362, -0.00407], [1.97800, -2.42859, 0.45059], [0.02590, 0.78277, -0.80868]]
        )
        places = np.cbrt(linear @ cones.T) @ lab.T
        apart = np.linalg.norm(places[:, None] - places[None], axis=2) + np.eye(len(places))
        assert len(CATEGORIES) == 48
        assert apart[:10, :10].min() > 0.1
        assert apart[:24, :24].min() > 0.07
        assert apart.min() > 0.06

    def test_up_to_48_names_have_a_colour_each(self) -> None:
        names = [f"site {number}" for number in range(48)]
        found = colouring("client", names[::-1] * 2)
        assert found.kind == "categories"
        assert found.names == tuple(names)  # 2 before 10
        assert len(set(found.colours)) == 48
        assert found.counts == (2,) * 48
        assert [found.names[code] for code in found.codes] == names[::-1] * 2

    def test_thousand_names_are_on_an_ordered_ramp(self) -> None:
        found = colouring("client", [f"site {number}" for number in range(1000)])
        assert found.kind == "order"
        assert (found.colours[0], found.colours[-1]) == (RAMP[0], RAMP[-1])
        assert found.last_coloured == "site 999"

    def test_many_numbers_are_on_the_ramp_and_missing_labels_grey(self) -> None:
        numbers = [str(number) for number in [*range(MOST_NUMBERS), 100]]
        found = colouring("label", [*numbers, "no label"])
        assert found.kind == "values"
        assert found.colours[:-1] == tuple(ramp(np.array([float(number) / 100.0 for number in numbers])))
        assert found.colours[-1] == GREY
        assert found.last_coloured == "100"


class TestPicture:
    def test_picture_is_a_png_about_1600_pixels_wide(self, tmp_path: Path) -> None:
        header = write_picture(
            write_run(tmp_path / "run", labels=["a", "b", None] * (ROWS // 3))
        ).read_bytes()[:24]
        assert header[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", header[16:24])
        assert 1550 <= width <= 1650
        assert 0.5 < height / width < 0.65

    def test_picture_is_bit_identical_when_recreated(self, tmp_path: Path) -> None:
        folder = write_run(tmp_path / "run", clients=[f"site {row}" for row in range(ROWS)])
        assert write_picture(folder).read_bytes() == write_picture(folder).read_bytes()

    @pytest.mark.parametrize(
        "labels",
        [
            [
                "$25k_to_$50k",
                r"$\frac{1}{$",
                "_hidden",
                "long " * 2000,
                "",
                "\t",
                "two\r\nlines",
                "\x1b[2J",
                "\u202egnol",
            ],
            pytest.param(["$25k_to_$50k", "$x_$", "$$", r"$\frac{1}{$"], marks=pytest.mark.slow),
            pytest.param(["_hidden", "__init__", "_"], marks=pytest.mark.slow),
            pytest.param(["", " ", "\t"], marks=pytest.mark.slow),
            pytest.param(["two\nlines", "two\r\nlines", "\x1b[2J", "\u2028"], marks=pytest.mark.slow),
            pytest.param(["long " * 2000, "longer " * 2000], marks=pytest.mark.slow),
            pytest.param(
                ["🙂", "名前", "\u062b\u0645\u0646", "\u202egnol", "e\u0301"], marks=pytest.mark.slow
            ),
            pytest.param(["7" * 5000, "8" * 5000, "site " + "9" * 5000], marks=pytest.mark.slow),
            [*(str(10.0**power) for power in range(-300, 300, 20)), "1e308", "-1e308"],
            [f"$_{number}$" for number in range(50)],
        ],
        ids=[
            "mixed",
            "dollars",
            "underscores",
            "blanks",
            "controls",
            "long",
            "scripts",
            "digits",
            "magnitudes",
            "ramp",
        ],
    )
    def test_every_label_is_under_the_maps(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labels: list[str]
    ) -> None:
        drawn: list[Any] = []

        def keep(figure: Any) -> bytes:
            drawn.append(figure)
            return png(figure)

        each = (labels * ROWS)[:ROWS]
        folder = write_run(tmp_path / "run", labels=each, name="costs $1_ and $2_")
        with warnings.catch_warnings(), monkeypatch.context() as patched:
            patched.setattr("raydr.report.picture.png", keep)
            warnings.simplefilter("error")
            assert write_picture(folder).read_bytes()[:4] == b"\x89PNG"
        assert read_page(write_report(folder)).tags
        write_comparison([folder], tmp_path / "comparison.html")
        (figure,) = drawn
        way = colouring("label", each)
        (heading,) = [text for text in figure.texts if text.get_text()]
        shown = [heading]
        assert heading.get_text() == "costs $1_ and $2_: Fed-tSNE"
        if way.kind == "categories":
            shown += figure.legends[0].get_texts()
            assert [text.get_text() for text in shown[1:]] == [short(name, 40) for name in way.names]
        else:
            shown += figure.axes[-1].get_xticklabels()
            assert [text.get_text() for text in shown[1:]] == [way.names[0], way.last_coloured]
        assert not any(text.get_parse_math() for text in shown)


class TestComparison:
    def runs(self, root: Path) -> list[Path]:
        other = {"federated": {"npa_10": 0.5, "f_score": 0.9}, "central": {}, "not_computed": {}}
        return [
            write_run(root / "one", labels=["a", "b"] * (ROWS // 2)),
            write_run(root / "two", labels=["b", "c"] * (ROWS // 2), central=False, metrics=other, ledger=[]),
        ]

    def test_metrics_of_either_run_have_a_row(self, tmp_path: Path) -> None:
        table = compare(self.runs(tmp_path))
        values = {row.name: row.values for row in table.rows}
        assert table.runs == ("one", "two")
        assert values["federated.npa_10"] == (0.41234, 0.5)
        assert values["federated.f_score"] == (None, 0.9)
        assert values["federated.trustworthiness"] == (0.98765, None)
        assert values["central.npa_10"] == (0.43456, None)
        assert values["seconds"] == (9.5, 9.5)
        assert values["bytes_up"] == (48_000, 0)
        assert values["bytes_exposed"] == (48_000, 0)
        assert values["peak_memory_bytes"] == (400_000_000, 400_000_000)

    def test_ratios_to_the_pooled_map_come_first(self, tmp_path: Path) -> None:
        table = compare(self.runs(tmp_path))
        ratios = [row for row in table.rows if row.name.startswith("ratio.")]
        assert list(table.rows[: len(ratios)]) == ratios
        # no ratio for errors, where 0 is best, or without a pooled-data map
        assert [row.name for row in ratios] == ["ratio.npa_10", "ratio.trustworthiness"]
        assert ratios[0].values == (pytest.approx(0.41234 / 0.43456), None)
        assert ratios[0].texts == ("94.9\u202f%", "–")

    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            ({"sources": {"name": "iris"}, "sha256": "1" * 64}, "it mapped iris, not digits"),
            ({"sha256": "1" * 64}, "the SHA-256 of its data differs"),
            ({"columns": ["a", "c"]}, "it mapped c as well and no b"),
            ({"scaling": "standard"}, "its columns were scaled by standard, not by none"),
            ({"metric": "cosine"}, "its rows were compared by cosine, not by euclidean"),
            ({"label": "stage"}, "its classes are from stage, not from an unnamed column"),
            ({"rows": True}, "it mapped other rows"),
        ],
        ids=["source", "sha256", "columns", "scaling", "metric", "label", "rows"],
    )
    def test_runs_of_different_tables_are_marked_without_a_best(
        self, tmp_path: Path, change: dict[str, Any], sentence: str
    ) -> None:
        rows = range(1, ROWS + 1) if "rows" in change else range(ROWS)
        folders = [write_run(tmp_path / "one"), write_run(tmp_path / "two", rows=rows)]
        metrics = json.loads((folders[1] / "metrics.json").read_text())
        metrics["federated"]["npa_10"] = 0.2
        (folders[1] / "metrics.json").write_text(json.dumps(metrics))
        data = json.loads((folders[1] / "data.json").read_text())
        data["sources"][0] |= change.get("sources", {})
        data |= {key: change[key] for key in ("columns", "scaling", "metric") if key in change}
        (folders[1] / "data.json").write_text(json.dumps(data))
        known = {
            "name": data["sources"][0]["name"],
            "sha256": change.get("sha256", "0" * 64),
            "hashed": "file",
        }
        (folders[1] / "fingerprints.json").write_text(json.dumps([known]))
        if "label" in change:
            scenario = yaml.safe_load((folders[1] / "scenario.yaml").read_text())
            scenario["data"]["label"] = change["label"]
            (folders[1] / "scenario.yaml").write_text(yaml.safe_dump(scenario))
        seal(folders[1])
        table = compare(folders)
        assert table.headings == ("one", "two *")
        (remark,) = table.remarks
        assert remark.startswith(f"* two did not map the same data as one: {sentence}.")
        rows = {row.name: row for row in table.rows}
        assert not any(rows["federated.npa_10"].best)
        assert rows["ratio.npa_10"].best == (True, False), "each is judged by its own pooled map"
        assert escape(remark) in read_page(write_comparison(folders, tmp_path / "page.html")).raw

    def test_runs_of_one_table_are_not_marked(self, tmp_path: Path) -> None:
        order = [*range(1, ROWS), 0]
        folders = [write_run(tmp_path / "one"), write_run(tmp_path / "two", rows=order)]
        table = compare(folders)
        assert (table.headings, table.remarks) == (("one", "two"), ())

    def test_best_run_follows_the_direction_of_the_metric(self, tmp_path: Path) -> None:
        rows = {row.name: row for row in compare(self.runs(tmp_path)).rows}
        assert rows["federated.npa_10"].best == (False, True)
        assert rows["bytes_up"].best == (False, True)
        assert rows["seconds"].best == (False, False)
        assert rows["federated.f_score"].texts == ("–", "0.9000")

    def test_runs_with_equal_names_are_distinguished_by_path(self, tmp_path: Path) -> None:
        folders = [write_run(tmp_path / place / "run") for place in ("a", "b")]
        assert compare(folders).runs == tuple(map(str, folders))

    def test_comparison_page_has_every_map(self, tmp_path: Path) -> None:
        page = read_page(write_comparison(self.runs(tmp_path), tmp_path / "new" / "comparison.html"))
        assert external_loads(page) == []
        assert [panel["title"] for panel in _drawn(page)["panels"]] == ["one", "two"]
        for sentence in ("one", "two", "0.4123", "0.5000", "48\u202fkB"):
            assert sentence in page.raw

    def test_nothing_to_compare_is_an_error(self) -> None:
        with pytest.raises(OutputError, match="nothing to compare"):
            compare([])


class TestWords:
    @pytest.mark.parametrize(
        ("value", "sentence"),
        [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1 kB"),
            (999_999, "1 MB"),
            (25_600_000, "25.6 MB"),
            (3e12, "3 TB"),
        ],
    )
    def test_sizes(self, value: float, sentence: str) -> None:
        assert size(value).replace("\u202f", " ") == sentence

    @pytest.mark.parametrize(
        ("seconds", "sentence"),
        [
            (0.0, "0 s"),
            (0.001, "< 0.01 s"),
            (8.71, "8.7 s"),
            (59.96, "1 min 00 s"),
            (185, "3 min 05 s"),
            (7620, "2 h 07 min"),
        ],
    )
    def test_durations(self, seconds: float, sentence: str) -> None:
        assert duration(seconds).replace("\u202f", " ") == sentence

    @pytest.mark.parametrize(
        ("low", "high"), [(0.0, 1.0), (-3.2, 17.0), (1e-7, 3e-7), (5.0, 5.0), (0.0, 0.0)]
    )
    def test_axis_numbers_cover_the_values_evenly(self, low: float, high: float) -> None:
        marks = round_numbers(low, high, 4)
        assert marks[0] <= low
        assert marks[-1] >= high
        np.testing.assert_allclose(np.diff(marks, 2), 0.0, atol=1e-9 * max(abs(low), abs(high), 1e-9))
        assert 1 <= len(marks) <= 6

    @pytest.mark.parametrize("wanted", [4, 5])
    def test_axis_numbers_have_the_smallest_possible_round_step(self, wanted: int) -> None:
        """The test compares with a search over 1, 2 and 5 times powers of ten."""
        for high in np.random.default_rng(0).uniform(0.05, 50.0, 100):
            steps = [m * 10.0**power for power in range(-4, 4) for m in (1, 2, 5)]
            expected = min(step for step in steps if step * wanted >= high)
            marks = round_numbers(0.0, float(high), wanted)
            np.testing.assert_allclose(np.diff(marks), expected)

    def test_non_finite_values_are_omitted_from_axes(self) -> None:
        chart = line_chart([1, 2, 3, 1e150], [1.0, 1e150, 2.0, 3.0], "objective")
        assert chart is not None
        assert [text for *_, text in chart.points] == [
            "objective 1 in round 1",
            "objective 2 in round 3",
        ]

    def test_chart_needs_two_finite_values(self) -> None:
        assert line_chart([1, 2], [1.0, float("nan")], "objective") is None
        chart = line_chart([1, 2, 3], [1.0, 3.0, 2.0], "objective")
        assert chart is not None
        assert chart.points[1][1] < chart.points[2][1] < chart.points[0][1]  # larger values are drawn higher
