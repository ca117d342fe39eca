"""Comparison of the results of two versions of raydr, bit for bit: every shipped scenario, file by file.

Run ``python -m benchmarks.bits --before OTHER/.venv/bin/raydr``. It takes about ten minutes. Embedding,
pooled map, ledger, metrics, model and rounds must be equal, except for the seconds of the rounds. MNIST is
cut to ``--rows`` rows. With ``--keep DIR`` the runs stay in DIR, and existing runs are not repeated.
``--quick`` runs only the smallest scenarios.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

SCENARIOS = Path(__file__).parent.parent / "scenarios" / "shipped"
QUICK = ("iris-sense-noisy-distances", "digits-sense-anchors")


def ran(raydr: Path, scenario: str, folder: Path, rows: int) -> Path:
    """Run a scenario with one version of raydr, unless its folder exists."""
    if not folder.exists():
        command = [str(raydr), "run", scenario, "--out", str(folder), "--quiet"]
        if scenario.startswith("mnist") and "noisy" not in scenario:
            command += ["--set", f"data.rows={rows}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return folder


def content(path: Path) -> Any:
    """Return the content of a file that must be equal, in a comparable form, or None if the file does not exist."""
    if not path.exists():
        return None
    match path.suffix:
        case ".jsonl":
            rounds = [json.loads(line) for line in path.read_text().splitlines()]
            return [{key: value for key, value in row.items() if key != "seconds"} for row in rounds]
        case ".json":
            return json.loads(path.read_text())
        case ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                return {name: (arrays[name].dtype.str, arrays[name].tobytes()) for name in arrays.files}
        case _:
            return path.read_bytes()


def differing(before: Path, after: Path) -> list[str]:
    """Return the names of the files that differ between two run folders."""
    names = [
        "embedding.parquet",
        "central.parquet",
        "ledger.json",
        "metrics.json",
        "rounds.jsonl",
        "stress.json",
        "data.json",
    ]
    arrays = {f"model/{path.name}" for folder in (before, after) for path in (folder / "model").glob("*.npz")}
    return [name for name in [*names, *sorted(arrays)] if content(before / name) != content(after / name)]


def main() -> None:
    """Run every scenario with both versions, print a table, and end with status 1 if bits differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="the raydr command to compare with")
    parser.add_argument("--after", type=Path, default=Path(sys.executable).with_name("raydr"))
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    place = arguments.keep or Path(tempfile.mkdtemp(prefix="raydr-bits-"))
    scenarios = QUICK if arguments.quick else sorted(path.stem for path in SCENARIOS.glob("*.yaml"))
    unequal: dict[str, list[str]] = {}
    seconds: dict[str, float] = {}
    try:
        for scenario in scenarios:
            began = time.perf_counter()
            before, after = (
                ran(raydr, scenario, place / side / scenario, arguments.rows)
                for side, raydr in (("before", arguments.before), ("after", arguments.after))
            )
            seconds[scenario] = round(time.perf_counter() - began, 1)
            unequal[scenario] = differing(before, after)
            print(
                f"{scenario:32} {'equal' if not unequal[scenario] else ', '.join(unequal[scenario])}",
                flush=True,
            )
    finally:
        if arguments.keep is None:
            shutil.rmtree(place, ignore_errors=True)
    different = sum(map(bool, unequal.values()))
    if arguments.json:
        ratios = {"equal": 1.0 - different / len(scenarios)}
        arguments.json.write_text(json.dumps({"figures": seconds, "ratios": ratios}, indent=2))
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
