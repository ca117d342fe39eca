"""The report page: its bytes, seconds to the first picture, and milliseconds of a reader's actions on the map.

    python -m benchmarks.page [--quick] [--rows 100000 1000000] [--json FILE] [--table
    docs/tutorials/figures/page.md]

It makes a run folder with rows in 12 clouds at 8 clients, with and without the pooled map, and its report.
The page is opened in headless Chromium without a graphics card and without a network, at 1280 by 900 pixels.
Each action is a median: moving a lasso one step (until the page has processed and drawn the step), closing
one around a third of the rows, moving the map, pointing at rows, and changing the colours. A screen shows 60
pictures per second, and an action ends with the second one after it, so 33 ms is the minimum. ``--quick``
uses 10,000 rows, without the pooled map. ``--table`` writes the table of docs/commands.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CLOUDS, CLIENTS = 12, 8

SHOWN = {
    "mb": ("MB", "{:.2f}"),
    "first_picture": ("first picture", "{:,.0f} ms"),
    "pooled_shown": ("pooled map, once asked for", "{:,.0f} ms"),
    "hover": ("pointing at a row", "{:.1f} ms"),
    "lasso": ("lasso, a step", "{:.0f} ms"),
    "slowest_lasso": ("its slowest", "{:.0f} ms"),
    "close": ("lasso closed", "{:.0f} ms"),
    "move": ("map moved", "{:.0f} ms"),
    "colour": ("other colours", "{:.0f} ms"),
}
"""Columns of the table for the documentation: their titles and number formats."""

MEASURE = """async () => {
  const map = document.querySelector("#map-federated"), over = map.querySelector(".over");
  const box = over.getBoundingClientRect(), middle = [box.x + box.width / 2, box.y + box.height / 2];
  const frame = () => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
  const send = (type, x, y) => over.dispatchEvent(new PointerEvent(type, {
    clientX: middle[0] + x, clientY: middle[1] + y, pointerId: 1, pointerType: "mouse", bubbles: true,
  }));
  const took = async (act, drawn = true) => {
    const at = performance.now();
    act();
    if (drawn) await frame();
    return performance.now() - at;
  };
  const found = { hover: [], lasso: [], close: [], move: [], colour: [] };
  for (let k = 0; k < 20; k++) {
    found.hover.push(await took(() => send("pointermove", 15 * k - 150, 7 * k - 50), false));
  }
  for (let turn = 0; turn < 3; turn++) {
    send("pointerdown", 200, 0);
    for (let k = 1; k < 40; k++) {
      const angle = k / 40 * 2 * Math.PI;
      found.lasso.push(await took(() => send("pointermove", 200 * Math.cos(angle), 200 * Math.sin(angle))));
    }
    found.close.push(await took(() => send("pointerup", 200, 0)));
    document.querySelector(".clear").click();
    await frame();
  }
  for (let k = 0; k < 20; k++) {
    const key = new KeyboardEvent("keydown", { key: k % 2 ? "ArrowLeft" : "ArrowRight", bubbles: true });
    found.move.push(await took(() => map.dispatchEvent(key)));
  }
  await new Promise((rest) => setTimeout(rest, 400));
  const colour = document.querySelector("[name=colour]");
  for (let k = 0; k < 6; k++) {
    found.colour.push(await took(() => {
      colour.selectedIndex = (k + 1) % colour.options.length;
      colour.dispatchEvent(new Event("change"));
    }));
  }
  return found;
}"""


def made(folder: Path, rows: int, pooled: bool) -> Path:
    """Make a run folder with only what the page reads."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(0)
    labels, clients = random.integers(0, CLOUDS, rows), random.integers(0, CLIENTS, rows)
    kept = random.binomial(10, 0.45, rows) / 10
    folder.mkdir()
    for file, turn in (("embedding", 0.0), ("central", 0.3))[: 1 + pooled]:
        angle = 2 * np.pi * labels / CLOUDS + turn
        centre = 40 * np.stack([np.cos(angle), np.sin(angle)], axis=1) * (1 + labels[:, None] % 3) / 3
        x, y = (centre + 6 * random.standard_normal((rows, 2)) * random.random((rows, 1)) ** 0.5).T
        columns = {"row": np.arange(rows), "x": x, "y": y, "npa_10": kept}
        if file == "embedding":
            columns |= {"client": pa.array([f"site {client}" for client in clients.tolist()])}
            columns |= {"label": pa.array([f"kind {label}" for label in labels.tolist()])}
        pq.write_table(pa.table(columns), folder / f"{file}.parquet")
    source = {
        "name": "made", "sha256": "0" * 64, "hashed": "numbers", "rows": rows, "dropped": 0, "named": False,
    }  # fmt: skip
    values = {"npa_10": float(kept.mean())}
    files: dict[str, Any] = {
        "data.json": {"columns": ["a"], "named": False, "scaling": "none", "sources": [source], "mapped": rows},
        "metrics.json": {"federated": values, "central": values if pooled else {}, "not_computed": {}},
        "ledger.json": [],
        "environment.json": {
            "run": "made", "raydr": "0", "python": "3", "platform": "", "cpu": "", "cores": 2, "memory_bytes": 1,
            "packages": {}, "seconds": {}, "peak_memory_bytes": {}, "started": "", "federation": "inline", "actors": 0,
        },
    }  # fmt: skip
    from dataclasses import asdict

    from raydr.privacy.accounting import Budget
    from raydr.privacy.ledger import Ledger
    from raydr.privacy.statement import statement
    from raydr.runfolder.manifest import seal

    files["privacy.json"] = asdict(statement(Ledger(), Budget()))
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "rounds.jsonl").write_text("")
    (folder / "scenario.yaml").write_text("name: made\nmethod: {kind: fed-tsne}\n")
    seal(folder)
    return folder


def measured(page: Path, pooled: bool) -> dict[str, float]:
    """Measure the milliseconds of a page in its own browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
        tab = context.new_page()
        tab.goto(page.as_uri())
        tab.wait_for_function("document.documentElement.dataset.ready === 'true'", timeout=120_000)
        first = tab.evaluate("performance.getEntriesByName('first picture')[0].startTime")
        whole = tab.evaluate("performance.now()")
        shown = 0.0
        if pooled:
            started = time.perf_counter()
            tab.click("[data-panel=central]")
            tab.wait_for_function("document.querySelector('#map-central .points').width > 300")
            shown = 1000 * (time.perf_counter() - started)
        found = tab.evaluate(MEASURE)
        browser.close()
    medians = {name: statistics.median(times) for name, times in found.items()}
    slowest = {"slowest_lasso": max(found["lasso"])}
    return {"first_picture": first, "all_read": whole, "pooled_shown": shown} | medians | slowest


def once(folder: Path, rows: int, pooled: bool) -> dict[str, float]:
    """Measure the bytes, seconds to write, and milliseconds of one page."""
    from raydr.report import write_report

    started = time.perf_counter()
    page = write_report(made(folder / f"{rows}-{pooled}", rows, pooled))
    seconds = time.perf_counter() - started
    return {"rows": rows, "pooled": pooled, "mb": page.stat().st_size / 1e6, "written_s": seconds} | measured(
        page, pooled
    )


def name_of(line: dict[str, float]) -> str:
    """Return the name of a page: its number of rows, and whether it has the pooled map."""
    return f"{line['rows']:,}{', and pooled' if line['pooled'] else ''}"


def table(lines: list[dict[str, float]]) -> str:
    """Return the figures as a Markdown table, one line for each page."""
    rows = [["rows", *(title for title, _ in SHOWN.values())], ["---:"] * (1 + len(SHOWN))]
    for line in lines:
        rows.append(
            [
                name_of(line),
                *(written.format(line[key]) if line[key] else "" for key, (_, written) in SHOWN.items()),
            ]
        )
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path, help="write the figures to this file as Markdown")
    parser.add_argument("--keep", type=Path, help="keep the run folders in this new folder")
    arguments = parser.parse_args()
    if CHROMIUM is None:
        parser.exit(1, "There is no Chromium to open pages. Install it as `chromium`.\n")
    cases = (
        [(10_000, False)]
        if arguments.quick
        else [(rows, pooled) for rows in arguments.rows for pooled in (False, True)]
    )
    lines = []
    with tempfile.TemporaryDirectory() as place:
        folder = arguments.keep or Path(place)
        folder.mkdir(parents=True, exist_ok=True)
        for rows, pooled in cases:
            line = once(folder, rows, pooled)
            lines.append(line)
            print("  ".join(f"{name} {value:.4g}" for name, value in line.items()), flush=True)
    if arguments.json:
        figures = {name_of(line): line for line in lines}
        arguments.json.write_text(json.dumps({"figures": figures, "ratios": {}}, indent=2) + "\n")
    if arguments.table:
        arguments.table.write_text(table(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
