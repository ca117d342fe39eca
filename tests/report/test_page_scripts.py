"""The scripts of pages: run by Node.js, compared with Python's packing, and checked by TypeScript."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import raydr.report
from raydr.plain import as_cell
from raydr.report import wording
from raydr.report.colouring import RAMP, ramp
from raydr.report.map.packing import FINEST, PackedCoordinates, as_text, by_place, codes, numbers, row_ids

REPORT = Path(raydr.report.__file__).parent
NODE, TSC = shutil.which("node"), shutil.which("tsc")
OLDEST = 20
"""Release of Node.js whose test runner and streams the tests need."""


def why_not() -> str:
    """Return the reason why Node.js cannot run the tests, or an empty text."""
    if NODE is None:
        return "there is no Node.js"
    version = subprocess.run([NODE, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    release = int(version.removeprefix("v").partition(".")[0])
    return "" if release >= OLDEST else f"Node.js {version} is older than {OLDEST}"


def packed() -> dict[str, Any]:
    """Return packed rows of a page with the expected values."""
    rng = np.random.default_rng(0)
    found = []
    for largest in (3, 255, 256, 70_000):
        values = rng.integers(0, largest + 1, 500)
        values[0] = largest
        width, content = codes(values)
        found.append({"width": width, "codes": values.tolist(), "text": as_text(content)})
    reals = rng.normal(0.0, 1e3, 300)
    reals[7] = np.nan
    ids = []
    for names in (
        np.arange(5, 105),
        np.cumsum(rng.integers(1, 9, 100)) - 40,
        [f"row {k}" for k in range(50)],
    ):
        reported = row_ids(names)
        kind, content = ("range", None) if isinstance(reported, dict) else reported
        ids.append(
            {
                "told": reported if isinstance(reported, dict) else {"kind": kind},
                "text": None if content is None else as_text(content),
                "ids": list(map(str, names)) if kind == "names" else np.asarray(names).tolist(),
            }
        )
    along, across = rng.integers(0, 2**12, (2, 400)) / 2**12
    order = by_place(along, across)
    places = PackedCoordinates.of(along, order)
    template = (REPORT / "map" / "map.html").read_text(encoding="utf-8")
    listed = re.search(r"for name in \(([^)]*)\)", template)
    assert listed is not None
    return {
        "scripts": [
            [f"map/{name}.js" for name in re.findall(r'"(\w+)"', listed[1])],
            ["sweep/scales.js", "sweep/sweep.js"],
            ["run/sections.js"],
        ],
        "codes": found,
        "numbers": {
            "values": [None if np.isnan(value) else value for value in reals.tolist()],
            "text": as_text(numbers(reals)),
        },
        "ids": ids,
        "places": {
            "along": along.tolist(),
            "order": order.tolist(),
            "rounded": [
                {"bits": bits, "text": as_text(places.rounded(bits))} for bits in range(8, FINEST + 1)
            ],
        },
        "morton": {"x": along.tolist(), "y": across.tolist(), "order": order.tolist()},
    }


def spelt() -> dict[str, Any]:
    """Return the texts, colours and files that a page must produce like Python."""
    cells = ("=1+2", "-1.5", "+3", "-", "+", "@me", "\tx", "north", "-north", "1e5", "-1e5", "", "=", "+1+1")
    return {
        "cells": [(text, as_cell(text)) for text in cells],
        "sizes": [(value, wording.size(value)) for k in range(14) for value in (10**k, 2 * 10**k, 5 * 10**k)],
        "ramps": [
            {"stops": list(RAMP), "colours": ramp(np.linspace(0.0, 1.0, count))} for count in (2, 7, 256)
        ],
    }


def test_page_scripts_pass_their_own_tests(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(reason)
    cases = tmp_path / "cases.json"
    cases.write_text(
        json.dumps({"report": str(REPORT), "packed": packed(), "spelt": spelt()}), encoding="utf-8"
    )
    done = subprocess.run(
        [str(NODE), "--test", str(Path(__file__).with_name("page_scripts.test.mjs"))],
        env={**os.environ, "CASES": str(cases)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout


def test_the_scripts_of_pages_use_types_that_fit(request: pytest.FixtureRequest) -> None:
    """As raydr/report/pages.d.ts declares them; no script is compiled."""
    if reason := why_not():
        pytest.skip(reason)
    if TSC is None:
        pytest.skip("there is no tsc: npm install --global typescript@5")
    done = subprocess.run(
        [
            *(TSC, "--project", str(REPORT), "--pretty", "false"),
            *("--incremental", "--tsBuildInfoFile", str(request.config.cache.mkdir("tsc") / "checked")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
