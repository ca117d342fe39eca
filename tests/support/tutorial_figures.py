"""Pictures and figures of the tutorials, and of the choice among methods, from their own lines.

``python tests/support/tutorial_figures.py`` runs the blocks of each page of docs/tutorials/, and of docs/choosing.md,
in full. It puts the pictures of the runs that they leave into docs/pictures/, what these measured into
docs/tutorials/figures/. With names of pages it runs those alone. It runs all in this process, to the same bits as on
Ray. Heart disease is read from heart_disease.csv in ``$RAYDR_DATA``.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pages import ROOT, blocks, run_blocks, write_files
from PIL import Image
from sweeps import inline

from raydr.metrics import METRICS
from raydr.report import write_picture
from raydr.report.run.privacy_summary import points
from raydr.report.wording import size
from raydr.runfolder.reading import read_run
from raydr.scenarios.schema import reading
from raydr.tune import running

TUTORIALS, CHOICE = ROOT / "docs" / "tutorials", ROOT / "docs" / "choosing.md"
FIGURES, PICTURES = TUTORIALS / "figures", ROOT / "docs" / "pictures"
PATIENTS = "heart_disease.csv"
SHOWN = ("npa_10", "ca_10", "trustworthiness")
WIDTH, COLOURS = 1000, 96
"""Of a picture, in pixels, and how many colours it has: some tens of kilobytes."""


def renew(page: Path) -> None:
    """Run a page, and keep what came of it."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        os.chdir(folder)
        write_files(page, folder)
        if any(PATIENTS in block.text for block in blocks(page, "sh")):
            shutil.copy(Path(os.environ["RAYDR_DATA"]) / PATIENTS, folder)
        deque(run_blocks(page), maxlen=0)
        text = page.read_text(encoding="utf-8")
        if page == CHOICE:
            (FIGURES / page.name).write_text(_choice(folder / "methods" / "trials.parquet"), encoding="utf-8")
            os.chdir(ROOT)
            return
        runs = [path.parent for path in sorted(folder.glob("*/embedding.parquet"))]
        for run in runs:
            if f"pictures/{run.name}.png" in text:
                _picture(write_picture(run), PICTURES / f"{run.name}.png")
        (FIGURES / page.name).write_text(_figures(page.stem, runs), encoding="utf-8")
        os.chdir(ROOT)


def _picture(source: Path, target: Path) -> None:
    with Image.open(source) as picture:
        height = round(picture.height * WIDTH / picture.width)
        small = picture.convert("RGB").resize((WIDTH, height), Image.Resampling.LANCZOS)
        small.quantize(COLOURS, dither=Image.Dither.NONE).save(target, optimize=True)


def _figures(name: str, folders: list[Path]) -> str:
    """A table of the runs' metrics, and what the page of the run of this name says first."""
    lines = ["| run | map | " + " | ".join(METRICS[metric].title for metric in SHOWN) + " |"]
    lines += ["| --- | --- |" + " ---: |" * len(SHOWN)]
    for folder in folders:
        metrics = json.loads((folder / "metrics.json").read_text())
        for side, title in (("federated", "federated"), ("central", "pooled rows")):
            if side in metrics:
                cells = [
                    f"{metrics[side][metric]:.3f}" if metric in metrics[side] else "" for metric in SHOWN
                ]
                lines.append(f"| `{folder.name}` | {title} | " + " | ".join(cells) + " |")
    told = [folder for folder in folders if folder.name == name]
    said = (
        [f"- **{point.title}: {point.figure}.** {point.text}" for point in points(read_run(told[0]))]
        if told
        else []
    )
    return "\n".join([*lines, "", *said]) + "\n"


def _choice(trials: Path) -> str:
    """A line for each method: what its map keeps, what attacks recovered, what left the sites."""
    lines = ["| method | NPA-10 | pooled | trustworthiness | leakage | epsilon | sent by all sites |"]
    lines += ["| --- |" + " ---: |" * 6]
    for trial in pq.read_table(trials).to_pylist():
        epsilon = trial.get("epsilon")
        cells = [
            f"`{trial['set.method.kind']}`",
            *(
                f"{trial[name]:.3f}"
                for name in ("federated.npa_10", "central.npa_10", "federated.trustworthiness")
            ),
            f"{trial['leakage']:.2f}",
            "∞" if epsilon is None or not math.isfinite(epsilon) else f"{epsilon:g}",
            size(trial["bytes_up"]),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _inline(scenario: Any, overrides: Mapping[str, Any] | None = None) -> Any:
    """Read a scenario that is to run in this process."""
    return READ(scenario, {**(overrides or {}), "runtime.federation": "inline"})


READ = reading.read

if __name__ == "__main__":
    FIGURES.mkdir(exist_ok=True)
    PICTURES.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "read", _inline)
        patch.setattr(running, "read", _inline)
        inline(patch)
        for tutorial in [*sorted(TUTORIALS.glob("*.md")), CHOICE]:
            if tutorial.stem != "index" and (tutorial.stem in sys.argv[1:] or len(sys.argv) == 1):
                renew(tutorial)
