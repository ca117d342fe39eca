"""The maps of a page in a browser: drawing, search, selection, colours and links, offline."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from run_pages import ROWS, in_ball, in_space, write_run

from raydr.arrays import BoolArray, Float64Array, Int64Array
from raydr.data.provenance import Provenance
from raydr.plain import as_cell
from raydr.privacy.accounting import Budget
from raydr.privacy.ledger import Ledger
from raydr.privacy.statement import statement
from raydr.report import write_comparison, write_report
from raydr.report.colouring import CATEGORIES, GREY, RAMP, colouring, extended
from raydr.report.map import atlas as maps
from raydr.report.map.aligned import map_of_runs
from raydr.report.map.atlas import MOST_LEVELS, MapColumn, Panel, atlas, map_of_run
from raydr.report.map.later import later_rows
from raydr.report.map.packing import PackedCoordinates, as_text, by_place, codes
from raydr.report.projections import frame, panels
from raydr.report.templates import part, templates
from raydr.runfolder import read_run
from raydr.runfolder.joined import Joined
from raydr.runfolder.manifest import edits_accepted
from raydr.runfolder.records import Joining

pytestmark = pytest.mark.usefixtures("edits_accepted")

PIXEL = """([key, x, y]) => {
  const canvas = document.querySelector(`#map-${key} .points`), ratio = canvas.width / canvas.clientWidth;
  return [...canvas.getContext("2d").getImageData(x * ratio, y * ratio, 1, 1).data].slice(0, 3);
}"""


PANES = """(names) => Object.fromEntries(names.flatMap((name) => {
  const { x, y, width, height } = document.querySelector(`#map-${name} .over`).getBoundingClientRect();
  return width > 0 ? [[name, { x, y, width, height }]] : [];
}))"""
"""Return the places of the visible maps on the screen, by name."""

COUNT = """(canvas, colours) => {
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  return colours.map((colour) => {
    let found = 0;
    for (let i = 0; i < pixels.length; i += 4) {
      if (colour.every((channel, k) => Math.abs(pixels[i + k] - channel) < 30)) found++;
    }
    return found;
  });
}"""
"""Count the pixels of a canvas that have nearly each colour."""


class Tab:
    """A page in an offline browser, with the map coordinates of the run folder."""

    def __init__(self, browser: Any, page: Path, run: Path | None = None, **options: Any) -> None:
        settings: dict[str, Any] = {"viewport": {"width": 1280, "height": 900}, "offline": True} | options
        self.context = browser.new_context(**settings)
        self.page = self.context.new_page()
        self.logged: list[str] = []
        self.page.on("console", lambda message: self.logged.append(message.text))
        self.page.on("pageerror", lambda error: self.logged.append(str(error)))
        self.page.on("dialog", lambda dialog: self.logged.append(dialog.message))
        self.asked: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(page.as_uri())
        if settings.get("java_script_enabled", True):
            self.page.wait_for_function("document.documentElement.dataset.ready === 'true'")
            self.page.evaluate("document.querySelector('.atlas').scrollIntoView()")
        self.points: dict[str, Float64Array] = {}
        if run is not None:
            read = read_run(run)
            shown = panels(read)
            around = frame(np.concatenate(list(shown.values())), in_disk=read.in_disk)
            low, high = np.array(around).T
            self.points = {key: (points - low) / (high - low) for key, points in shown.items()}

    def __enter__(self) -> Tab:
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        self.context.close()
        ours = [line for line in self.logged if "getImageData" not in line]  # only the tests call it
        assert failed or ours == []

    def drawn(self) -> None:
        """Wait until the page has drawn the last change."""
        self.page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def at(self, row: int, key: str = "federated") -> tuple[float, float]:
        """Return the place of a row on the screen, if the whole map is shown."""
        panes = self.page.evaluate(PANES, list(self.points))
        seen = np.concatenate([self.points[name][:, :2] for name in panes])
        low, high = seen.min(axis=0), seen.max(axis=0)
        across, along = high - low + 2 * 0.03 * (high - low).max()
        side = min(min(box["width"] / across, box["height"] / along) for box in panes.values())
        x, y = (self.points[key][row][:2] - (low + high) / 2) * side
        box = panes[key]
        return box["x"] + box["width"] / 2 + x, box["y"] + box["height"] / 2 - y

    def colour(self, row: int, key: str = "federated") -> list[int]:
        """Return the pixel in the middle of a row's point."""
        box = self.page.evaluate(PANES, [key])[key]
        x, y = self.at(row, key)
        found: list[int] = self.page.evaluate(PIXEL, [key, x - box["x"], y - box["y"]])
        return found

    def hover(self, row: int, key: str = "federated") -> dict[str, str]:
        """Return what the page shows about the row under the mouse."""
        x, y = self.at(row, key)
        self.page.mouse.move(x + 1, y)
        self.page.mouse.move(x, y)
        tip = self.page.locator(f"#map-{key} .tip")
        return dict(
            zip(tip.locator("dt").all_text_contents(), tip.locator("dd").all_text_contents(), strict=True)
        )

    def draw_around(self, corners: list[tuple[float, float]]) -> None:
        """Draw a line with the mouse through places on the screen."""
        mouse = self.page.mouse
        mouse.move(*corners[0])
        mouse.down()
        for corner in corners[1:]:
            mouse.move(*corner, steps=3)
        mouse.up()
        self.drawn()

    @property
    def status(self) -> str:
        """Return the page's sentence about the selected rows."""
        return str(self.page.locator(".status [role=status]").text_content())

    def table(self) -> list[list[str]]:
        """Return the selected rows as the page shows them."""
        lines = self.page.locator(".chosen tbody tr").all()
        return [line.locator("td").all_text_contents() for line in lines]


def on_a_lattice(columns: int = 10) -> Float64Array:
    """Return rows on a lattice, so that the mouse can point at each."""
    number = np.arange(ROWS)
    return np.stack([number % columns, number // columns], axis=1).astype(np.float64)


def with_faithfulness(folder: Path) -> Path:
    """Add row faithfulness of 0 to 10 kept neighbours, and 10 to 0 on the pooled map."""
    for file, sign in (("embedding", 1), ("central", -1)):
        table = pq.read_table(folder / f"{file}.parquet")
        shares = (np.arange(ROWS) % 11)[::sign] / 10
        pq.write_table(table.append_column("npa_10", pa.array(shares)), folder / f"{file}.parquet")
    return folder


def lattice_run(folder: Path) -> Path:
    """Write a run with rows on a lattice, 4 labels by row and 3 clients."""
    labels = ["a", "b", "c", "d"] * (ROWS // 4)
    return with_faithfulness(write_run(folder, points=on_a_lattice(), labels=labels))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return lattice_run(tmp_path / "run")


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the same run once with its report, for tests that only open the page."""
    with edits_accepted():
        return write_report(lattice_run(tmp_path_factory.mktemp("reported") / "run")).parent


def rgb(colour: str) -> Float64Array:
    return np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)], dtype=np.float64)


def is_colour(found: list[int], colour: str) -> bool:
    """Return whether a pixel has a colour, drawn slightly transparent on a light background."""
    return bool(np.abs(np.array(found) - rgb(colour)).max() < 60)


class TestReport:
    def test_page_opens_offline_and_draws_rows_at_their_places(self, browser: Any, reported: Path) -> None:
        with Tab(browser, reported / "report.html", reported) as tab:
            assert tab.logged == []
            assert [url for url in tab.asked if not url.startswith(("file:", "blob:", "data:"))] == []
            for row in range(0, ROWS, 7):
                assert is_colour(tab.colour(row), CATEGORIES[row % 4]), row
            assert not any(is_colour(tab.colour(0), colour) for colour in CATEGORIES[1:4])

    def test_hover_shows_the_values_of_a_row(self, browser: Any, reported: Path) -> None:
        with Tab(browser, reported / "report.html", reported) as tab:
            for row in (0, 17, 59):
                recorded = {"row": str(row), "label": "abcd"[row % 4], "client": f"site {row % 3}"}
                assert tab.hover(row) == recorded | {"10 nearest kept": f"{row % 11 * 10} %"}
            tab.page.click("[data-panel=central]")
            tab.page.wait_for_function("document.querySelector('#map-central .points').width > 300")
            tab.drawn()
            assert tab.hover(17, "central")["10 nearest kept: pooled-data map"] == f"{(59 - 17) % 11 * 10} %"
            assert "10 nearest kept" not in tab.hover(17, "central")

    def test_lasso_selects_rows_on_both_maps(self, browser: Any, reported: Path) -> None:
        with Tab(browser, reported / "report.html", reported) as tab:
            tab.page.click("[data-panel=central]")
            tab.page.wait_for_function("document.querySelector('#map-central .points').width > 300")
            tab.drawn()
            # A notch in the line leaves out row 11, in the middle of rows 0 to 2, 10 to 12 and 20 to 22.
            (left, low), (right, high) = tab.at(0), tab.at(22)
            half = (right - left) / 10
            x, y = tab.at(11)
            outer = [(left - half, low + half), (left - half, high - half)]
            outer += [(right + half, high - half), (right + half, low + half)]
            line = [
                *outer,
                (x + half, low + half),
                (x + half, y - half),
                (x - half, y - half),
                (x - half, low + half),
            ]
            tab.draw_around(line)
            chosen = [0, 2, 10, 12, 20, 21, 22]  # and not row 1, below row 11
            assert [cells[:3] for cells in tab.table()] == [
                [str(row), "abcd"[row % 4], f"site {row % 3}"] for row in chosen
            ]
            assert tab.status == "7 of 60 rows selected: a (3), c (3), b (1)"
            for key in ("federated", "central"):
                assert is_colour(tab.colour(22, key), CATEGORIES[22 % 4])
                assert min(tab.colour(11, key)) > 200  # faded
            # Ctrl adds rows to the selection; a click on the background clears it.
            tab.page.keyboard.down("Control")
            tab.page.mouse.click(*tab.at(59))
            tab.page.keyboard.up("Control")
            assert tab.status.startswith("8 of 60 rows selected")
            box = tab.page.locator("#map-federated .over").bounding_box()
            tab.page.mouse.click(box["x"] + 3, box["y"] + 3)
            assert tab.status == "No rows selected"
            assert tab.page.locator(".chosen").is_hidden()

    def test_selection_is_sorted_and_saved_as_csv(self, browser: Any, reported: Path) -> None:
        with Tab(browser, reported / "report.html", reported) as tab:
            tab.page.locator(".key button").nth(1).click()
            assert tab.status == "15 of 60 rows selected: b (15)"
            header = tab.page.locator(".chosen th button")
            header.nth(3).click()
            shares = [float(cells[3].removesuffix(" %")) for cells in tab.table()]
            assert shares == sorted(shares)
            header.nth(3).click()
            assert [float(cells[3].removesuffix(" %")) for cells in tab.table()] == shares[::-1]
            with tab.page.expect_download() as saved:
                tab.page.click(".export")
            lines = list(csv.reader(io.StringIO(Path(saved.value.path()).read_bytes().decode())))
            assert lines[0] == [
                "row",
                "label",
                "client",
                "10 nearest kept",
                "10 nearest kept: pooled-data map",
            ]
            assert sorted(int(line[0]) for line in lines[1:]) == list(range(1, ROWS, 4))
            assert all(float(line[3]) == int(line[0]) % 11 / 10 for line in lines[1:])

    def test_exported_csv_keeps_every_name_and_number(self, browser: Any, tmp_path: Path) -> None:
        """Python's CSV reader finds the names, titles and numbers of the run folder, without formulas."""
        odd = [
            '"',
            'a "b", c',
            "comma, there",
            "line\nend",
            "\r",
            "\r\n",
            " before",
            "after ",
            " ",
            ";",
            '""',
        ]
        odd += ["", "\t", "-", "é", "'", '"whole"', '",', "0", "1e3", "=1+2", "@SUM(1)", "+1", "-2e3", "-1-1"]
        labels = [odd[row % len(odd)] for row in range(ROWS)]
        clients = [odd[row // 20] + "x" for row in range(ROWS)]
        rows = [f"{odd[row % len(odd)]}{row // len(odd)}{odd[(row + 7) % len(odd)]}" for row in range(ROWS)]
        numbers = np.random.default_rng(0).normal(size=ROWS) * 10.0 ** np.arange(-30, 30)
        numbers[:5] = [np.nan, 0.1 + 0.2, -1e21, 5e-324, 1.7e308]
        shown = ' dose, "mg"\nper day '
        folder = write_run(
            tmp_path / "run", points=on_a_lattice(), labels=labels, clients=clients, rows=rows, central=False
        )
        name_columns(folder, label='dia"gnosis', client="ward,\nbed")
        pq.write_table(pa.table({"row": rows, f"column.{shown}": numbers}), folder / "shown.parquet")
        with Tab(browser, write_report(folder), folder) as tab:
            tab.page.evaluate("document.querySelectorAll('.key button').forEach((button) => button.click())")
            assert tab.status.startswith("60 of 60 rows selected")
            with tab.page.expect_download() as saved:
                tab.page.click(".export")
            content = Path(saved.value.path()).read_bytes().decode()
        header, *lines = csv.reader(io.StringIO(content, newline=""), strict=True)
        assert header == ["row", 'dia"gnosis', "ward,\nbed", shown]
        expected = zip(rows, labels, clients, strict=True)
        assert [tuple(line[:3]) for line in lines] == [tuple(map(as_cell, names)) for names in expected]
        assert {"'=1+2", "'@SUM(1)", "+1", "-2e3", "'-1-1"} <= {line[1] for line in lines}
        assert lines[0][3] == ""
        assert [float(line[3]) for line in lines[1:]] == numbers[1:].tolist()

    def test_search_finds_a_row_or_a_value(self, browser: Any, reported: Path) -> None:
        with Tab(browser, reported / "report.html", reported) as tab:
            field = tab.page.locator(".search input")
            field.fill("17")
            field.press("Enter")
            assert [cells[0] for cells in tab.table()] == ["17"]
            field.fill("SITE 2")
            assert tab.page.locator(".offers button").all_text_contents() == ["client: site 220 rows"]
            field.press("Enter")
            assert [int(cells[0]) for cells in tab.table()] == list(range(2, ROWS, 3))
            field.fill("30 %")
            tab.page.locator(".offers button").first.click()
            assert [int(cells[0]) for cells in tab.table()] == list(range(3, ROWS, 11))
            field.fill("nothing of the sort")
            assert tab.page.locator(".offers").text_content() == "No match"

    def test_colours_show_client_or_faithfulness(self, browser: Any, reported: Path) -> None:
        with Tab(browser, reported / "report.html", reported) as tab:
            assert tab.page.locator("[name=colour] option").all_text_contents() == [
                "label",
                "client",
                "faithfulness",
            ]
            tab.page.select_option("[name=colour]", label="client")
            tab.drawn()
            assert all(is_colour(tab.colour(row), CATEGORIES[row % 3]) for row in range(9))
            tab.page.select_option("[name=colour]", label="faithfulness")
            tab.drawn()
            assert is_colour(tab.colour(11), RAMP[0])
            assert is_colour(tab.colour(4), RAMP[2])
            assert is_colour(tab.colour(32), RAMP[-1])
            assert tab.page.locator(".key .ticks span").first.text_content() == "0 %"
            assert tab.page.locator(".key .ticks span").last.text_content() == "100 %"
            assert tab.page.locator(".naming").is_hidden()

    def test_keyboard_moves_zooms_and_clears(self, browser: Any, reported: Path) -> None:
        with Tab(browser, reported / "report.html", reported) as tab:
            tab.page.locator(".key button").first.click()
            tab.page.focus(".save")
            tab.page.keyboard.press("Tab")
            assert tab.page.evaluate("document.activeElement.id") == "map-federated"
            assert tab.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
            assert tab.page.locator("#map-federated").get_attribute("aria-label") == "Federated map, 60 rows"
            tab.page.keyboard.press("Escape")
            assert tab.status == "No rows selected"
            tab.drawn()
            rows = range(0, ROWS, 20)
            before = [tab.colour(row) for row in rows]
            for key in ("ArrowRight", "ArrowUp", "+"):
                tab.page.keyboard.press(key)
                tab.drawn()
                assert [tab.colour(row) for row in rows] != before
            tab.page.keyboard.press("0")
            tab.drawn()
            assert [tab.colour(row) for row in rows] == before

    def test_zoom_is_linked_between_the_maps(self, browser: Any, reported: Path) -> None:
        with Tab(browser, reported / "report.html", reported) as tab:
            tab.page.click("[data-panel=central]")
            tab.page.wait_for_function("document.querySelector('#map-central .points').width > 300")
            tab.drawn()
            before = tab.colour(0, "central")
            assert is_colour(before, CATEGORIES[0])
            tab.page.focus("#map-federated")
            for _ in range(3):
                tab.page.keyboard.press("+")
            tab.drawn()
            assert not is_colour(tab.colour(0, "central"), CATEGORIES[0])
            # Shift and drag moves the map and selects nothing.
            x, y = tab.at(25)
            tab.page.keyboard.down("Shift")
            tab.draw_around([(x, y), (x + 60, y + 30)])
            tab.page.keyboard.up("Shift")
            assert tab.status == "No rows selected"

    @pytest.mark.parametrize("kinds", [10, 11])
    def test_names_are_on_the_map_above_ten_or_on_request(
        self, browser: Any, tmp_path: Path, kinds: int
    ) -> None:
        labels = [f"kind {row % kinds}" for row in range(ROWS)]
        folder = write_run(tmp_path / "run", points=on_a_lattice(kinds), labels=labels)
        with Tab(browser, write_report(folder), folder) as tab:
            tags = tab.page.locator("#map-federated .names span")
            assert tab.page.locator("#map-federated .names").is_visible() is (kinds > 10)
            tab.page.click(".naming")
            tab.drawn()
            assert tab.page.locator("#map-federated .names").is_visible() is (kinds <= 10)
            if kinds <= 10:
                shown = {tag.text_content() for tag in tags.all() if tag.is_visible()}
                assert shown
                assert shown <= set(labels)

    def test_run_without_faithfulness_offers_no_such_colour(self, browser: Any, tmp_path: Path) -> None:
        folder = write_run(tmp_path / "run", points=on_a_lattice(), labels=["a"] * ROWS)
        with Tab(browser, write_report(folder), folder) as tab:
            assert tab.page.locator("[name=colour] option").all_text_contents() == ["label", "client"]
            assert set(tab.hover(3)) == {"row", "label", "client"}

    def test_foreign_text_stays_text(self, browser: Any, tmp_path: Path) -> None:
        hostile = "<img src=x onerror=alert(1)></script><b>"
        folder = write_run(
            tmp_path / "run",
            points=on_a_lattice(),
            labels=[hostile] * ROWS,
            clients=[hostile] * ROWS,
            rows=[f"{row} {hostile}" for row in range(ROWS)],
        )
        with Tab(browser, write_report(folder), folder) as tab:
            recorded = tab.hover(7)
            assert (recorded["row"], recorded["label"]) == (f"7 {hostile}", hostile)
            tab.page.click(".naming")
            tab.page.locator(".search input").fill("onerror")
            tab.page.locator(".offers button").first.click()
            assert tab.table()[0][:2] == [f"0 {hostile}", hostile]
            assert tab.logged == []

    def test_axes_of_a_three_dimensional_map_can_be_switched(self, browser: Any, tmp_path: Path) -> None:
        folder = write_run(tmp_path / "run", points=in_space(), labels=["a"] * ROWS)
        with Tab(browser, write_report(folder), folder) as tab:
            first = tab.hover(int(tab.points["federated"][:, 0].argmax()))["row"]
            assert first == str(tab.points["federated"][:, 0].argmax())
            tab.page.check("[name=axes][value='1,2']", force=True)
            tab.drawn()
            tab.points = {key: points[:, [1, 2]] for key, points in tab.points.items()}
            row = int(tab.points["federated"][:, 0].argmax())
            assert tab.hover(row)["row"] == str(row)

    def test_a_three_dimensional_map_turns(self, browser: Any, tmp_path: Path) -> None:
        """A drag turns it, a pair of axes brings it back, and rows are found where they are drawn."""
        folder = write_run(tmp_path / "run", points=in_space(), labels=["a"] * ROWS)
        with Tab(browser, write_report(folder), folder) as tab:
            pane = tab.page.locator("#map-federated")
            box = pane.bounding_box()
            assert box is not None
            middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
            before = tab.page.screenshot()
            tab.page.mouse.move(*middle)
            tab.page.mouse.down()
            tab.page.mouse.move(middle[0] + 90, middle[1] + 40, steps=3)
            tab.page.mouse.up()
            tab.drawn()
            assert tab.page.screenshot() != before
            assert tab.page.locator("[name=axes]:checked").count() == 0
            assert tab.page.locator(".status [role=status]").text_content() == "No rows selected"
            tab.page.mouse.click(*middle)
            pane.press("ArrowLeft")
            tab.page.check("[name=axes][value='0,1']", force=True)
            tab.drawn()
            row = int(tab.points["federated"][:, 0].argmax())
            assert tab.hover(row)["row"] == str(row)
            assert tab.logged == []

    def test_disk_has_a_boundary(self, browser: Any, tmp_path: Path) -> None:
        method = {"kind": "sense", "embedder": "cosne", "anchors": 63}
        folder = write_run(tmp_path / "run", points=in_ball(2), method=method)
        with Tab(browser, write_report(folder), folder) as tab:
            half = tab.points["federated"].std()  # in a frame that includes the circle
            assert half < 0.5
            box = tab.page.locator("#map-federated .over").bounding_box()
            radius = map_of_run(read_run(folder)).header["panels"][0]["disk"]["radius"] * min(
                box["width"], box["height"]
            )
            over = PIXEL.replace(".points", ".over")
            drawn = [
                tab.page.evaluate(over, ["federated", box["width"] / 2 + away, box["height"] / 2])
                != [0, 0, 0]
                for away in (radius, radius - 8, radius + 8)
            ]
            assert drawn == [True, False, False]

    def test_picture_is_shown_without_javascript(self, browser: Any, reported: Path) -> None:
        with Tab(browser, reported / "report.html", reported, java_script_enabled=False) as tab:
            assert tab.page.locator("#map-federated img").is_visible()
            assert tab.page.locator("#map-federated img").evaluate("image => image.naturalWidth") >= 500

    def test_picture_is_shown_by_old_browsers(self, browser: Any, reported: Path) -> None:
        context = browser.new_context(offline=True)
        tab = context.new_page()
        tab.add_init_script("delete window.DecompressionStream")
        tab.goto((reported / "report.html").as_uri())
        tab.wait_for_selector(".failed:not([hidden])")
        assert tab.locator("#map-federated img").is_visible()
        context.close()

    def test_dark_page_has_a_dark_map_and_prints_the_picture(self, browser: Any, reported: Path) -> None:
        with Tab(browser, reported / "report.html", reported, color_scheme="dark") as tab:
            corner = tab.page.evaluate(PIXEL, ["federated", 2, 2])
            assert max(corner) < 50
            assert is_colour(tab.colour(0), CATEGORIES[0])
            tab.page.emulate_media(media="print", color_scheme="dark")
            tab.page.evaluate("dispatchEvent(new Event('beforeprint'))")
            assert tab.page.locator(".on-paper img").first.is_visible()
            assert tab.page.locator(".stage").is_hidden()
            tab.page.emulate_media(media="screen", color_scheme="dark")
            tab.page.evaluate("dispatchEvent(new Event('afterprint'))")
            tab.drawn()
            assert tab.page.evaluate(PIXEL, ["federated", 2, 2]) == corner

    def test_touch_shows_a_row_and_the_page_fits_a_phone(self, browser: Any, reported: Path) -> None:
        phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
        with Tab(browser, reported / "report.html", reported, device_scale_factor=2, **phone) as tab:
            tab.page.touchscreen.tap(*tab.at(33))
            assert tab.page.locator("#map-federated .tip dd").first.text_content() == "33"
            assert [cells[0] for cells in tab.table()] == ["33"]
            assert tab.page.evaluate("document.documentElement.scrollWidth") <= 390
            assert tab.page.locator("[name=drag]:checked").get_attribute("value") == ""

    def test_saved_picture_is_a_png(self, browser: Any, reported: Path) -> None:
        with Tab(browser, reported / "report.html", reported) as tab:
            with tab.page.expect_download() as saved:
                tab.page.click(".save")
            assert saved.value.suggested_filename == "digits-fed-tsne.png"
            assert Path(saved.value.path()).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"

    def test_rows_of_a_reduced_page_are_at_their_places(
        self, browser: Any, run: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for budget in range(640, 0, -40):
            monkeypatch.setattr(maps, "BUDGET", budget)
            found = map_of_run(read_run(run))
            if found.header["bits"] < 16:
                break
        assert 10 <= found.header["bits"] < 16
        assert len(found.panels) == 2
        with Tab(browser, write_report(run), run) as tab:
            rows = range(0, ROWS, 13)
            assert [tab.hover(row)["row"] for row in rows] == [str(row) for row in rows]
            tab.page.click("[data-panel=central]")
            tab.page.wait_for_function("document.querySelector('#map-central .points').width > 300")
            tab.drawn()
            assert [tab.hover(row, "central")["row"] for row in rows] == [str(row) for row in rows]


class TestComparison:
    def test_shared_rows_of_runs_are_linked(self, browser: Any, tmp_path: Path) -> None:
        points = on_a_lattice()
        labels = ["a", "b", "c", "d"] * (ROWS // 4)
        one = write_run(tmp_path / "one", points=points, labels=labels, central=False)
        turned = points @ np.array([[0.0, 3.0], [-3.0, 0.0]]) + 5.0
        rows = range(30, 30 + ROWS)  # 30 to 59 are in the first run, too
        other = write_run(
            tmp_path / "two",
            points=np.roll(turned, -30, axis=0),
            labels=labels[2:] + labels[:2],
            rows=rows,
            central=False,
        )
        page = write_comparison([one, other], tmp_path / "comparison.html")
        with Tab(browser, page) as tab:
            assert tab.logged == []
            for key in ("0", "1"):
                assert tab.page.locator(f"#map-{key}").is_visible()
            tab.page.locator(".search input").fill("40")
            tab.page.locator(".search input").press("Enter")
            assert len(tab.table()) == 1
            tab.page.locator(".search input").fill("b")
            tab.page.locator(".offers button").first.click()
            assert "of 90 rows selected" in tab.status
            header = tab.page.locator(".chosen th").all_text_contents()
            assert header == ["row", "label", "client: one", "client: two"]
            tab.page.locator(".search input").fill("70")
            tab.page.locator(".search input").press("Enter")
            assert tab.table()[0][2] == "not in this run"

    def test_printed_comparison_is_a_white_picture(self, browser: Any, tmp_path: Path) -> None:
        labels = ["a", "b", "c", "d"] * (ROWS // 4)
        runs = [
            write_run(tmp_path / name, points=on_a_lattice(), labels=labels, central=False)
            for name in ("one", "two")
        ]
        page = write_comparison(runs, tmp_path / "comparison.html")
        with Tab(browser, page, color_scheme="dark") as tab:
            corner = tab.page.evaluate(PIXEL, ["0", 2, 2])
            assert max(corner) < 50
            tab.page.emulate_media(media="print", color_scheme="dark")
            tab.page.evaluate("dispatchEvent(new Event('beforeprint'))")
            paper = tab.page.locator(".printed canvas")
            assert paper.is_visible()
            drawn = paper.evaluate(
                COUNT, [list(map(int, rgb(colour))) for colour in ("#ffffff", *CATEGORIES[:4])]
            )
            assert drawn[0] > 100_000
            assert min(drawn[1:]) > 100
            assert tab.page.locator(".stage").is_hidden()
            tab.page.emulate_media(media="screen", color_scheme="dark")
            tab.page.evaluate("dispatchEvent(new Event('afterprint'))")
            tab.drawn()
            assert tab.page.evaluate(PIXEL, ["0", 2, 2]) == corner


@pytest.fixture(scope="module")
def scripted(browser: Any) -> Iterator[Any]:
    """Open an empty page with the map scripts that read columns and look up rows."""
    context = browser.new_context(offline=True)
    page = context.new_page()
    add_scripts(page)
    yield page
    context.close()


def add_scripts(page: Any) -> None:
    """Add the functions of these scripts, which a report hides."""
    for name in ("columns", "lookup"):
        page.add_script_tag(content=part(f"map/{name}.js"))


def written_columns() -> dict[str, Float64Array]:
    """Return columns of 5,000 rows of few and many different numbers, small and large, some missing."""
    random = np.random.default_rng(4)
    rows = 5_000
    draw = random.normal(size=rows)

    def levels(*values: float) -> Float64Array:
        return random.permutation(np.resize(values, rows))

    return {
        "many": draw,
        "many, some missing": np.where(np.arange(rows) % 11 == 3, np.nan, draw),
        "at the limit": levels(*draw[:MOST_LEVELS]),
        "past the limit": levels(*draw[: MOST_LEVELS + 1]),
        "at the limit, with missing ones": levels(np.nan, *draw[: MOST_LEVELS - 1]),
        "past the limit by missing ones": levels(np.nan, *draw[:MOST_LEVELS]),
        "whole numbers": random.permutation(np.arange(rows) - 2_500.0),
        "large whole numbers": random.permutation(2.0**24 - np.arange(rows)),
        "tiny": draw * 1e-38,
        "subnormal": random.permutation((np.arange(rows) - 2_500) * 2.0**-149),
        "huge": draw * 5e37,
        "of every size": draw * 10.0 ** random.uniform(-44, 37, rows),
        "few, of every size": levels(1.7e308, -1.7e308, 5e-324, -0.1, np.nan, 0.0, 2.0**53 - 1.0),
        "few negative whole numbers": levels(*np.arange(-300.0, 1.0)),
        "none": np.full(rows, np.nan),
    }


class TestColumnsThatThePageReads:
    def test_page_reads_every_packed_number(self, browser: Any, tmp_path: Path) -> None:
        """Up to 4,096 different numbers (a missing one counts too) come back as they are, more in single precision."""
        written = written_columns()
        points = np.random.default_rng(0).random((5_000, 2))
        made = atlas(
            "columns",
            np.arange(5_000),
            [Panel(key="federated", title="Map", points=points, frame=((0.0, 1.0), (0.0, 1.0)))],
            [MapColumn(title, values) for title, values in written.items()],
            [],
            ((0, 1),),
            "",
        )
        page = tmp_path / "columns.html"
        macro = templates().from_string(
            "<meta charset='utf-8'>{% import 'map/map.html' as map %}{{ map.content(atlas) }}"
        )
        page.write_text(macro.render(atlas=made), encoding="utf-8")
        context = browser.new_context(offline=True)
        tab = context.new_page()
        tab.goto(page.as_uri())
        add_scripts(tab)
        found = tab.evaluate("""async () => {
          const { rows, columns } = JSON.parse(document.getElementById("map-header").textContent);
          const order = drawingOrder(rows), places = [...order.keys()], read = [];
          for (const told of columns) {
            const { title, value, text, rank } = await readColumn(told, rows, order);
            read.push([title, places.map(value), places.map(text), places.map(rank)]);
          }
          return JSON.stringify([[...order], read]);  // missing numbers become null
        }""")
        context.close()
        order, columns = json.loads(found)
        order = np.array(order)
        assert sorted(order) == list(range(5_000))
        assert [title for title, *_ in columns] == list(written)
        for title, values, texts, ranks in columns:
            expected = written[title]
            assert len(np.unique(expected)) == MOST_LEVELS or "at the limit" not in title
            assert len(np.unique(expected)) == MOST_LEVELS + 1 or "past the limit" not in title
            if len(np.unique(expected)) > MOST_LEVELS:
                expected = expected.astype(np.float32).astype(np.float64)
            np.testing.assert_array_equal(np.array(values, np.float64), expected[order], err_msg=title)
            missing = np.isnan(expected[order])
            assert np.array_equal(np.array(texts) == "–", missing), title
            recorded = np.array([float(text) for text in texts if text != "–"])
            np.testing.assert_allclose(recorded, expected[order][~missing], rtol=1e-6, atol=0, err_msg=title)
            lowest = -np.finfo(np.float64).max
            assert np.array_equal(np.array(ranks, np.float64), np.where(missing, lowest, expected[order])), (
                title
            )

    @pytest.mark.parametrize("most", [0, 1, 255, 256, 4_095, 65_535, 65_536, 2**24, 2**31, 2**32 - 1])
    def test_page_reads_every_packed_code(self, scripted: Any, most: int) -> None:
        """Codes have one, two or four bytes, and the cases use every byte."""
        wanted = np.random.default_rng(most).integers(0, most, 300, endpoint=True)
        wanted[[0, -1]] = 0, most
        width, content = codes(wanted)
        found = scripted.evaluate(
            "async ([text, width, rows]) => [...codesOf(await inflated(bytesOf(text)), width, rows)]",
            [as_text(content), width, len(wanted)],
        )
        assert found == wanted.tolist()


GRAIN = 1024
"""Corners and points have integer coordinates from 0 to this number; some corners are beyond."""


def corners_of(kind: str, random: np.random.Generator) -> Int64Array:
    """Return the corners (corners, 2) of a closed line of a kind."""
    count = int(random.integers(3, 40))
    if kind == "random":  # crosses itself
        return random.integers(0, GRAIN, (count, 2), endpoint=True)
    if kind == "beyond the map":
        return random.integers(-GRAIN, 2 * GRAIN, (count, 2), endpoint=True)
    if kind == "low":  # many bands between two heights of points
        low = int(random.integers(0, 1000))
        return random.integers([0, low], [GRAIN, low + 12], (count, 2), endpoint=True)
    if kind == "star":  # winds around its middle twice, or more often
        turns = np.arange(11) * int(random.integers(2, 5)) / 11 + random.random()
        tips = np.stack([np.cos(2 * np.pi * turns), np.sin(2 * np.pi * turns)], axis=1)
        return np.rint(GRAIN / 2 * (1 + tips)).astype(np.int64)
    if kind == "stairs":  # every second edge is horizontal, the others are vertical
        across, along = random.integers(0, GRAIN // 4, (2, count), endpoint=True) * 4
        return np.stack([np.repeat(across, 2), np.roll(np.repeat(along, 2), 1)], axis=1)
    if kind == "horizontal edges":  # with other edges, and repeated corners
        line = random.integers(0, GRAIN, (count, 2), endpoint=True)
        line[1::2, 1] = line[: 2 * (count // 2) : 2, 1]
        return np.repeat(line, random.integers(1, 3, count), axis=0)
    if kind == "band edges":  # each of the 256 bands is one or four steps high
        high = int(random.choice([256, 1024]))
        bands = random.integers(0, [GRAIN, 256], (count, 2), endpoint=True) * np.array([1, high // 256])
        bands[:2, 1] = 0, high
        return np.asarray(bands, np.int64)
    by_hand = random.integers(-3, 4, (150, 2)).cumsum(axis=0) + GRAIN // 2  # steps of about a pixel
    return np.asarray(by_hand, np.int64)


def inside_of(corners: Int64Array, points: Int64Array) -> tuple[BoolArray, BoolArray]:
    """Say of points (points, 2) whether a ray to the right crosses the line an odd number of times, in whole numbers.

    An edge has its lower end and not its upper one. The second array tells which points lie on a slanting edge: by
    which side of it they are counted is left to rounding.
    """
    inside, on_edge = np.zeros((2, len(points)), np.bool_)
    px, py = points.T
    for one, other in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        (x1, y1), (x2, y2) = sorted((tuple(one), tuple(other)), key=lambda corner: corner[1])
        reached = (py >= y1) & (py < y2)
        ahead = (py - y1) * (x2 - x1) - (px - x1) * (y2 - y1)
        inside ^= reached & (ahead > 0)
        on_edge |= reached & (ahead == 0) & (x1 != x2)
    return inside, on_edge


KINDS_OF_LINES = (
    "random",
    "beyond the map",
    "low",
    "star",
    "stairs",
    "horizontal edges",
    "band edges",
    "by hand",
)


class TestLinesThatChoose:
    @pytest.mark.parametrize(
        ("kind", "grain"),
        [(kind, GRAIN) for kind in KINDS_OF_LINES]
        + [
            pytest.param(kind, 64 * GRAIN, marks=() if kind == "by hand" else pytest.mark.slow)
            for kind in KINDS_OF_LINES
        ],
    )
    def test_lasso_follows_the_even_odd_rule(self, scripted: Any, kind: str, grain: int) -> None:
        """The test checks every row, also zoomed in, with lines 64 times smaller than the map."""
        random = np.random.default_rng(KINDS_OF_LINES.index(kind))
        lines = [corners_of(kind, random) for _ in range(4)]
        # Points are also at the heights of corners: left of them, right of them and on them.
        drawn = random.integers(0, GRAIN, (1_000, 2), endpoint=True)
        near = [line + np.array(step) for line in lines for step in ((0, 0), (1, 0), (-7, 0), (0, 1))]
        points = np.concatenate([drawn, *near])
        scale = 1.0 / grain
        found = scripted.evaluate(
            """(sent) => {
              const [lines, x, y] = JSON.parse(sent);
              return JSON.stringify(lines.map((line) => {
                const marks = new Uint8Array(x.length);
                return [markInside(line, Float32Array.from(x), Float32Array.from(y), x.length, marks), [...marks]];
              }));
            }""",
            json.dumps([[(line * scale).tolist() for line in lines], *(points * scale).T.tolist()]),
        )
        chosen = 0
        for line, (more, marks) in zip(lines, json.loads(found), strict=True):
            expected, on_edge = inside_of(line, points)
            np.testing.assert_array_equal(np.array(marks)[~on_edge], expected[~on_edge])
            assert more == sum(marks)
            chosen += more
        assert chosen > 100

    def test_selected_rows_are_not_counted_again(self, scripted: Any) -> None:
        """Rows that are not on this map, or outside an empty line, are not selected."""
        square = [[0.25, 0.25], [0.75, 0.25], [0.75, 0.75], [0.25, 0.75]]
        mark = """([line, x, y, marks]) => {
          const marked = Uint8Array.from(marks);
          return [markInside(line, Float32Array.from(x), Float32Array.from(y), x.length, marked), [...marked]];
        }"""
        x, y = [0.5, 0.5, 0.9, float("nan"), 0.5, 0.9], [0.5, 0.3, 0.5, float("nan"), 0.25, 0.9]
        assert scripted.evaluate(mark, [square, x, y, [0, 1, 0, 0, 0, 1]]) == [2, [1, 1, 0, 0, 1, 1]]
        for flat in (square[:1], square[:2]):
            assert scripted.evaluate(mark, [flat, x, y, [0] * 6]) == [0, [0] * 6]


class TestPacking:
    @pytest.mark.parametrize("length", [1, 2, 6, 7, 8, 1000])
    def test_packed_bytes_are_recovered(self, length: int) -> None:
        content = np.random.default_rng(length).integers(0, 256, length, dtype=np.uint8).tobytes()
        text = as_text(content)
        assert not set(text) & {"\0", "\r", "<"}
        bits = "".join(f"{ord(letter) & 127:07b}" for letter in text)
        assert bytes(int(bits[at : at + 8], 2) for at in range(0, 8 * length, 8)) == content

    @pytest.mark.parametrize(("most", "width"), [(255, 1), (256, 2), (65_535, 2), (65_536, 4)])
    def test_codes_use_as_few_bytes_as_possible(self, most: int, width: int) -> None:
        assert codes(np.array([0, most]))[0] == width

    def test_coordinates_round_down_to_the_available_bits(self) -> None:
        along = np.array([0.0, 0.5, 1.0, np.nan, -1.0])
        places = PackedCoordinates.of(along, np.arange(5))
        np.testing.assert_array_equal(places.values, [0, 2**15, 2**16 - 1, 0, 0])
        assert len(places.rounded(16)) - len(places.rounded(8)) == 5
        assert len(places.rounded(9)) - len(places.rounded(8)) == 1

    def test_near_rows_are_stored_together(self) -> None:
        random = np.random.default_rng(0)
        places = random.random((20_000, 2))
        order = by_place(*places.T)
        assert sorted(order) == list(range(20_000))
        steps = np.linalg.norm(np.diff(places[order], axis=0), axis=1)
        assert np.median(steps) < 0.02
        assert len(PackedCoordinates.of(places[:, 0], order).coarse) < 0.75 * len(
            PackedCoordinates.of(places[:, 0], np.arange(20_000)).coarse
        )


class TestWhatFits:
    def test_page_over_budget_omits_content_with_a_notice(
        self, run: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read = read_run(run)
        whole = map_of_run(read)
        assert whole.notices == []
        assert whole.header["bits"] == 16
        lost = []
        for budget in range(1200, 0, -60):
            monkeypatch.setattr(maps, "BUDGET", budget)
            found = map_of_run(read)
            assert found.header["bits"] >= 10 or len(found.panels) == 1
            lost.append((len(found.panels), len(found.header["columns"])))
        assert lost == sorted(lost, reverse=True)
        assert len(set(lost)) > 3
        assert lost[-1] == (1, 1)
        assert "Pooled-data map" in " ".join(found.notices)
        assert "faithfulness" not in [way.by for way in found.ways]

    def test_consecutive_row_ids_take_no_bytes(self, tmp_path: Path) -> None:
        counted = write_run(tmp_path / "counted", rows=range(100, 100 + ROWS))
        assert map_of_run(read_run(counted)).header["ids"] == {"kind": "range", "first": 100}
        named = write_run(tmp_path / "named", rows=[f"patient {row}" for row in range(ROWS)])
        assert map_of_run(read_run(named)).header["ids"]["kind"] == "names"
        far = write_run(tmp_path / "far", rows=[2**60 + 3 * row for row in range(ROWS)])
        assert map_of_run(read_run(far)).header["ids"]["kind"] == "names"

    def test_columns_have_the_names_of_the_table(self, tmp_path: Path) -> None:
        folder = write_run(tmp_path / "run", labels=["a", "b"] * (ROWS // 2))
        assert [way.by for way in map_of_run(read_run(folder)).ways] == ["label", "client"]
        name_columns(folder, label="diagnosis", client="hospital")
        found = map_of_run(read_run(folder))
        assert [way.by for way in found.ways] == ["diagnosis", "hospital"]
        assert [column["title"] for column in found.header["columns"]] == ["diagnosis", "hospital"]
        assert "Coloured by diagnosis" in write_report(folder).read_text(encoding="utf-8")
        other = write_run(tmp_path / "other", labels=["a", "b"] * (ROWS // 2))
        name_columns(other, label="diagnosis", client="ward")
        both = map_of_runs([read_run(folder), read_run(other)], ["one", "two"], ["", ""])
        assert [way.by for way in both.ways] == ["diagnosis", "client"]


class TestSitesThatJoined:
    def test_joined_rows_follow_in_their_own_colour(self, tmp_path: Path) -> None:
        run = read_run(write_run(tmp_path / "run", labels=["a", "b"] * (ROWS // 2)))
        late = later_rows(run, [joined("late", [7, 8], ("b", "new"))])
        found = map_of_run(run, late)
        assert found.header["rows"] == ROWS + 2
        labels, clients = (column for column in found.header["columns"][:2])
        assert labels["names"] == ("a", "b", "new")
        assert clients["names"] == ("site 0", "site 1", "site 2", "late")
        colours = {way["by"]: way["colours"] for way in found.header["ways"]}
        alone = {way["by"]: way["colours"] for way in map_of_run(run).header["ways"]}
        for by, before in alone.items():
            assert colours[by][: len(before)] == before  # colours of others do not change
            assert colours[by][-1] not in before
        federated, central = found.panels
        assert np.isfinite(federated.points).all()
        assert np.isnan(central.points[ROWS:]).all()  # joined rows are not on it
        assert late.rows[ROWS:] == ["late: 7", "late: 8"]  # 7 and 8 are ids of the run

    def test_unique_row_names_are_unchanged(self, tmp_path: Path) -> None:
        run = read_run(write_run(tmp_path / "run"))
        late = later_rows(run, [joined("late", [100, 101], None), joined("later", [102], None)])
        assert late.rows.tolist() == [*range(ROWS), 100, 101, 102]
        again = later_rows(run, [joined("late", [100], None), joined("later", [100], None)])
        assert again.rows[ROWS:] == ["100", "later: 100"]

    def test_maps_are_coloured_by_the_novelty_of_joined_rows(self, tmp_path: Path) -> None:
        run = read_run(write_run(tmp_path / "run"))
        sites = [joined("late", [100, 101], None), joined("later", [102], None)]
        assert "novelty" not in [way.by for way in map_of_run(run, later_rows(run, sites)).ways]
        sites[0] = replace(sites[0], novelty=np.array([0.25, 0.75]))
        late = later_rows(run, sites)
        np.testing.assert_array_equal(late.novelty, [0.25, 0.75, np.nan])
        found = map_of_run(run, late)
        (way,) = (way for way in found.ways if way.by == "novelty")
        column = found.header["columns"][way.columns[0]]
        assert (column["title"], column["levels"]) == ("novelty", [0.25, 0.75, None])

    def test_too_many_names_are_coloured_on_a_ramp(self) -> None:
        few = colouring("client", [f"site {number}" for number in range(len(CATEGORIES))])
        assert few.kind == "categories"
        many = extended(few, ["one more"])
        assert many.kind == "order"
        assert len(many.names) == len(CATEGORIES) + 1
        assert [many.names[code] for code in many.codes] == [*few.names, "one more"]

    def test_rows_without_a_label_stay_grey(self) -> None:
        way = extended(colouring("label", ["a", "b"]), ["no label", "b"])
        assert dict(zip(way.names, way.colours, strict=True))["no label"] == GREY
        assert way.codes.tolist() == [0, 1, 2, 1]


def name_columns(folder: Path, *, label: str, client: str) -> None:
    """Set the column names in the scenario of a run."""
    scenario = yaml.safe_load((folder / "scenario.yaml").read_text())
    scenario["data"]["label"] = label
    scenario["clients"] = {"partition": {"kind": "by-column", "column": client}}
    (folder / "scenario.yaml").write_text(yaml.safe_dump(scenario))


def joined(site: str, rows: list[int], labels: tuple[str, ...] | None) -> Joined:
    """Return a joined site with the fields that a map shows."""
    return Joined(
        path=Path(site),
        site=site,
        rows=np.array(rows, np.int64),
        labels=labels,
        clusters=None,
        points=np.arange(2.0 * len(rows)).reshape(-1, 2),
        ledger=(),
        privacy=statement(Ledger(), Budget()),
        data=Provenance(columns=("a", "b"), named=True, scaling="none", sources=(), mapped=len(rows)),
        how=Joining(
            site=site,
            map="0" * 64,
            rows=len(rows),
            raydr="0.1.0",
            started="2026-02-03T10:22:31+00:00",
            seconds=0.1,
        ),
    )
