"""Sites whose tables have gaps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

SENSE = {"kind": "sense", "anchors": 5, "embedder": {"kind": "tsne", "early_iterations": 5, "iterations": 5}}


def patients(path: Path, rows: int = 60) -> Path:
    """Three hospitals; a tenth of all values is missing, north has measured no insulin, east lacks an age."""
    random = np.random.default_rng(0)
    lines = ["hospital,age,bmi,insulin,pulse,diagnosis"]
    for row in range(rows):
        hospital = ("north", "east", "west")[row // (rows // 3)]
        cells = [f"{value:.3f}" if random.random() > 0.1 else "" for value in random.normal(50, 9, 4)]
        if hospital == "north":
            cells[2] = ""
        lines.append(",".join([hospital, *cells, ("yes", "no")[row % 2]]))
    path.write_text("\n".join(lines) + "\n")
    return path


def settings(table: Path, missing: str = "median", **data: Any) -> dict[str, Any]:
    return {
        "data": {"path": str(table), "label": "diagnosis", "missing": missing, "scale": "standard", **data},
        "clients": {"partition": {"kind": "by-column", "column": "hospital"}},
        "method": SENSE | {"anchor_source": "random"},
    }


def write_sites(folder: Path, table: Path) -> list[dict[str, str]]:
    """A file for each hospital, in columns of another order; north's has no column insulin at all."""
    import csv

    rows = list(csv.DictReader(table.open()))
    sites = []
    for name in ("east", "north", "west"):
        own = [row for row in rows if row["hospital"] == name]
        columns = ["age", "bmi", "insulin", "pulse", "diagnosis"]
        columns = (
            columns[::-1] if name == "west" else [c for c in columns if (name, c) != ("north", "insulin")]
        )
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(own)
        sites.append({"path": str(folder / f"{name}.csv")})
    return sites
