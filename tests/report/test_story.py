"""The sections of a page after its map: content, accessibility, printing, copying and phones."""

from __future__ import annotations

import html
import re
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from browsers import CHROMIUM, FLAGS, content_after
from places import ROOT
from run_pages import ROWS, message, read_page, write_run
from tiny import tiny_run, tiny_run_with_report

from raydr.report import write_report
from raydr.report.charts import line_chart
from raydr.report.run.comparison import compare
from raydr.report.run.metric_rows import figures, main_metrics, not_computed, reference
from raydr.report.wording import brief
from raydr.runfolder.reading import read_run

pytestmark = pytest.mark.usefixtures("edits_accepted")

needs_browser = pytest.mark.usefixtures("chromium")
STYLE = ROOT / "raydr" / "report" / "report.css"
SCREENS = ["faithful", "left", "attacked", "took", "scenario"]


def chromium(page: Path, *flags: str) -> str:
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            CHROMIUM, "--headless", *FLAGS,
            f"--user-data-dir={page.parent / 'profile'}", "--virtual-time-budget=5000", "--enable-logging=stderr",
            "--allow-file-access-from-files", *flags, page.as_uri(),
        ],
        capture_output=True, text=True, timeout=200, check=True,
    )  # fmt: skip
    assert "Uncaught" not in done.stderr, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an audited run with report, pooled-data map and rounds."""
    folder = tmp_path_factory.mktemp("story") / "run"
    return tiny_run_with_report(folder, audit=True, compare=["central"], metrics="default")


# --- what it says -----------------------------------------------------------------------------------------------------


def test_five_sections_follow_the_map_in_order(audited: Path) -> None:
    raw = (audited / "report.html").read_text(encoding="utf-8")
    places = [raw.index('class="maps"'), *(raw.index(f'<section id="{screen}"') for screen in SCREENS)]
    assert places == sorted(places)


def test_three_main_metrics_come_first_and_the_table_is_folded(
    audited: Path,
) -> None:
    run = read_run(audited)
    shown = figures(run)
    assert [line.title for line in shown] == [
        "Neighbour preservation, k = 10",
        "Classification accuracy, k = 10",
        "Trustworthiness",
    ]
    raw = (audited / "report.html").read_text(encoding="utf-8")
    screen = raw[raw.index('id="faithful"') : raw.index('id="left"')]
    first = screen[: screen.index("<details>")]
    for line in shown:
        assert line.federated in first
        assert line.ratio
        assert f"{line.ratio} of the pooled-data map's {line.central}" in first
    assert '<table class="metrics">' not in first
    assert '<table class="metrics">' in screen


@pytest.mark.parametrize(
    ("metrics", "first"),
    [
        (["continuity", "npa_10"], ["Continuity", "Neighbour preservation, k = 10"]),
        ("default", ["Clustering NMI", "Clustering ARI", "Neighbour preservation, k = 10"]),
        (["default", "reliable"], ["Clustering NMI", "Clustering ARI", "Neighbour preservation, k = 10"]),
    ],
)
def test_main_metrics_depend_on_the_run(tmp_path: Path, metrics: list[str] | str, first: list[str]) -> None:
    embedder = {"kind": "tsne", "early_iterations": 5, "iterations": 5}
    method = {"kind": "fed-spectral", "clusters": 3, "landmarks": 12, "rounds": 2, "embedder": embedder}
    run = read_run(tiny_run(tmp_path / "run", metrics=metrics, method=method))
    titles = [line.title for line in figures(run)]
    assert len(titles) == len(first)
    assert titles == first or "default" in metrics
    if "default" in metrics:
        assert [name for name in run.measures.federated if name.startswith("clustering")]
        assert "cluster" in titles[0].lower()
        assert ("reliable" in main_metrics(run)) == ("reliable" in metrics)


def test_pooled_map_is_described_as_a_reference(tmp_path: Path) -> None:
    def reported(federated: dict[str, float]) -> str:
        central = {"npa_10": 0.5, "trustworthiness": 0.9, "distance_error": 0.2}
        measures = {"federated": federated, "central": central, "not_computed": {}}
        return reference(read_run(write_run(tmp_path / str(len(list(tmp_path.iterdir()))), metrics=measures)))

    below = reported({"npa_10": 0.4, "trustworthiness": 0.8, "distance_error": 0.3})
    assert "a reference, not a bound" in below
    assert "federated map is better by" not in below
    above = reported({"npa_10": 0.565, "trustworthiness": 0.8, "distance_error": 0.1})
    assert (
        "The federated map is better by 2 metrics (neighbour preservation, k = 10; relative distance error)"
        in above
    )
    page = write_report(tmp_path / "1").read_text(encoding="utf-8")
    assert "upper bound" not in page
    assert "1.13 times as many true neighbours as the pooled-data map" in page


def test_sampled_metrics_show_their_standard_error(tmp_path: Path) -> None:
    measures = {
        "federated": {"npa_10": 0.4117, "trustworthiness": 0.91, "nmi": 0.5},
        "central": {"npa_10": 0.4098, "trustworthiness": 0.88},
        "not_computed": {},
        "standard_errors": {
            "federated": {"npa_10": 0.0031, "trustworthiness": 0.00024},
            "central": {"npa_10": 0.0029, "trustworthiness": 0.0003},
        },
        "sampled_rows": 5000,
    }
    folder = write_run(tmp_path / "run", metrics=measures)
    run = read_run(folder)
    assert [line.federated for line in figures(run)] == ["0.412 ± 0.003", "0.9100 ± 0.0002"]
    # Values that differ by less than their standard error have no best.
    assert "The federated map is better by 1 metric (trustworthiness)" in reference(run)
    page = write_report(folder).read_text(encoding="utf-8")
    assert page.count("0.412 ± 0.003") == 2  # in a figure and in the table
    assert (
        "Values are estimates from a sample of 5,000 rows, the same for every map; ± is their standard error."
        in page
    )
    assert "0.5000" in page
    comparison = compare([folder, write_run(tmp_path / "other")])
    texts = {row.name: row.texts for row in comparison.rows}
    assert texts["federated.npa_10"][0] == "0.412 ± 0.003"
    assert "±" not in texts["federated.npa_10"][1]
    assert texts["federated.nmi"][0] == "0.5000"
    assert any("a sample of 5,000 rows" in remark for remark in comparison.remarks)


def test_metrics_not_computed_are_one_line(tmp_path: Path) -> None:
    measures = {
        "federated": {"npa_10": 0.4},
        "central": {},
        "not_computed": {"frobenius": "no geometry", "cosine": "no geometry", "steadiness": "not installed"},
    }
    run = read_run(write_run(tmp_path / "run", metrics=measures))
    assert [(one.titles, one.reason) for one in not_computed(run)] == [
        ("Relative coordinate error, Cosine of coordinates", "no geometry"),
        ("Steadiness", "not installed"),
    ]
    raw = write_report(run.path).read_text(encoding="utf-8")
    assert raw.count("Not computed: Relative coordinate error, Cosine of coordinates, Steadiness") == 1


def test_perfect_error_is_explained(tmp_path: Path) -> None:
    measures = {"federated": {"frobenius": 0.0}, "central": {}, "not_computed": {}}
    raw = write_report(write_run(tmp_path / "run", metrics=measures)).read_text(encoding="utf-8")
    sentence = "the server recovered the geometry from the messages. 0 means that it has every record exactly"
    assert raw.count(sentence) == raw.count("0.0000") == 2  # in a figure and in the table
    assert "no metric of the map was computed" in raw


def test_page_without_rounds_mentions_no_requests(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    assert "15 requests to clients" in read_page(write_report(run)).text
    (run / "rounds.jsonl").write_text("")
    assert "requests to clients" not in read_page(write_report(run)).text


def test_page_without_an_audit_shows_the_audit_command(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a run")
    page = read_page(write_report(run))
    assert "raydr audit 'a run'" in page.text  # without the author's path
    assert "not audited" in page.text


def test_rising_objective_is_explained(tmp_path: Path) -> None:
    sentence = "no two rounds measure the same function"
    for kind, falls, reported in (("fedne", False, True), ("fedne", True, False), ("fed-tsne", False, False)):
        run = write_run(tmp_path / f"{kind}{falls}", method={"kind": kind})
        lines = (run / "rounds.jsonl").read_text().splitlines()
        if not falls:
            lines = [line.replace('"objective": 0.2', '"objective": 2.0') for line in lines]
        (run / "rounds.jsonl").write_text("\n".join(lines))
        assert (sentence in write_report(run).read_text(encoding="utf-8")) is reported


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("-2.4671310147587926", "−2.467"),
        ("0.1234567891", "0.1235"),
        ("12345678", "12345678"),
        ("site 12.3456789", "site 12.3456789"),
        ("2.5", "2.5"),
        ("nan" * 4, "nan" * 4),
    ],
)
def test_long_numbers_are_shortened(name: str, shown: str) -> None:
    assert brief(name) == shown


# --- how it reads -----------------------------------------------------------------------------------------------------


def test_page_is_accessible_to_screen_readers(audited: Path) -> None:
    page = read_page(audited / "report.html")
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    identifiers = {attributes.get("id") for _, attributes in page.tags}
    for tag, attributes in page.tags:
        match tag:
            case "section":
                label = attributes.get("aria-labelledby")
                assert attributes.get("aria-label") or label in identifiers
            case "img":
                assert attributes.get("alt")
            case "svg":
                assert attributes.get("role") == "img"
                assert re.search(r": .*\d", attributes.get("aria-label") or "")
            case "a":
                assert (attributes.get("href") or "#")[1:] in identifiers
    assert all(attributes.get("lang") == "en" for tag, attributes in page.tags if tag == "html")


def test_chart_has_a_text_description() -> None:
    chart = line_chart([1, 2, 3, 4], [2.0, 0.5, 3.0, 1.0], "objective", 0.25)
    assert chart is not None
    assert chart.description == (
        "from 2 in round 1 to 1 in round 4, lowest 0.5 in round 2, highest 3 in round 3; the dashed line is at 0.25"
    )
    falling = line_chart([1, 2, 3], [3.0, 2.0, 1.0], "stress", step="iteration")
    assert falling is not None
    assert falling.description == "from 3 in iteration 1 to 1 in iteration 3"


def _variables(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})\b", block))


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    low, high = sorted(map(_luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", ["light", "dark", "paper"])
def test_text_and_figure_colours_have_enough_contrast(mode: str) -> None:
    """WCAG 2 requires a contrast of 4.5 for text and 3 for lines and bars on every background."""
    style = STYLE.read_text(encoding="utf-8")
    roots = re.findall(r":root \{(.*?)\}", style, flags=re.S)
    assert len(roots) == 3
    colours = _variables(roots[["light", "dark", "paper"].index(mode)])
    assert _contrast("#fff", "#000") == pytest.approx(21.0)
    for ground in ("ground", "panel", "warn-ground"):
        for text in ("text", "quiet", "accent", "warn"):
            assert _contrast(colours[text], colours[ground]) >= 4.5, (text, ground)


# --- in a browser -----------------------------------------------------------------------------------------------------


def pages(report: Path) -> int:
    out = report.parent / "printed.pdf"
    chromium(report, f"--print-to-pdf={out}")
    return len(re.findall(rb"/Type\s*/Page\b(?!s)", out.read_bytes()))


@needs_browser
@pytest.mark.parametrize("case", ["audited", pytest.param("plain", marks=pytest.mark.slow), "long"])
def test_page_prints_on_two_sheets(tmp_path: Path, audited: Path, case: str) -> None:
    if case == "audited":
        report = audited / "report.html"
    else:
        labels = (
            [f"class {row % 20} of a rather long name" for row in range(ROWS)] if case == "long" else None
        )
        kinds = [message(kind=f"kind {number}", what="what it says " * 9) for number in range(30)]
        run = write_run(
            tmp_path / "run",
            labels=labels,
            ledger=kinds if case == "long" else None,
            name="a long name of a run " * 5 if case == "long" else "run",
            central=case == "long",
        )
        report = write_report(run)
    assert pages(report) == 2


def test_printed_page_has_a_picture_and_no_folded_parts(browser: Any, audited: Path) -> None:
    """The test shows the print styles on the screen."""
    asked = "body:has(.on-paper) :is(.maps, details)"
    page = audited / "asked.html"
    raw = (audited / "report.html").read_text(encoding="utf-8")
    raw = raw.replace("@media print", "@media screen")  # print styles on the screen
    script = """<script>addEventListener("load", () => {
      const there = (one) => getComputedStyle(one).display !== "none";
      const shown = (selector) => [...document.querySelectorAll(selector)].filter(there).length;
      document.body.dataset.shown =
        [".maps", "details", ".on-paper img", "nav.sections", ".screen"].map(shown).join(" ");
    });</script></body>"""
    page.write_text(raw.replace("</body>", script), encoding="utf-8")
    assert asked in raw
    assert 'data-shown="0 0 2 0 0"' in content_after(browser, page.as_uri(), "[data-shown]")


@pytest.mark.parametrize("allowed", [True, False])
def test_scenario_is_copied_with_and_without_permission(browser: Any, audited: Path, allowed: bool) -> None:
    page = audited / f"copied-{allowed}.html"
    stub = f"""<script>
      const write = async (text) => {{
        if (!{str(allowed).lower()}) throw new Error("no");
        document.body.dataset.copied = text;
      }};
      Object.defineProperty(navigator, "clipboard", {{ value: {{ writeText: write }} }});
      document.execCommand = () => {{ document.body.dataset.copied = getSelection().toString(); return true; }};
      const button = document.querySelector("[data-copies=scenario-text]");
      button.click();
      setTimeout(() => {{ document.body.dataset.said = button.textContent; }}, 100);
    </script></body>"""
    raw = (audited / "report.html").read_text(encoding="utf-8")
    page.write_text(raw.replace("</body>", stub), encoding="utf-8")
    found = content_after(browser, page.as_uri(), "[data-said]")
    assert 'data-said="Copied"' in found
    copied = re.search(r'data-copied="([^"]*)"', found)
    assert copied is not None
    kept = yaml.safe_load((audited / "scenario.yaml").read_text(encoding="utf-8"))
    assert yaml.safe_load(html.unescape(copied.group(1))) == kept


@pytest.mark.parametrize(("width", "folded"), [(390, True), (1280, False)])
def test_phone_page_is_folded_and_fits_the_width(
    browser: Any, audited: Path, width: int, folded: bool
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 844}, offline=True)
    page = context.new_page()
    page.goto((audited / "report.html").as_uri())
    found = page.evaluate("""() => {
      const top = document.getElementById("faithful").getBoundingClientRect().top;
      return {
        open: document.querySelectorAll("details[open]").length,
        overflow: document.documentElement.scrollWidth - innerWidth,
        height: Math.round(document.querySelector("footer").getBoundingClientRect().bottom - top),
      };
    }""")
    context.close()
    assert (found["open"] == 0) is folded
    assert found["overflow"] <= 0
    assert found["height"] < 3600 or not folded
