"""Comparison of results bit for bit, of two versions of raydr or of several processors: every shipped scenario.

Run ``python -m benchmarks.bits --before OTHER/.venv/bin/raydr``. It takes about ten minutes. Embedding,
pooled map, ledger, metrics, model and rounds must be equal, except for the seconds of the rounds. MNIST is
cut to ``--rows`` rows. With ``--keep DIR`` the runs stay in DIR, and existing runs are not repeated.
``--quick`` runs only the smallest scenarios.

With ``--processors``, this version runs on emulated processors, with and without ``runtime.portable``, inline
and without metrics and page. ``embedding.parquet`` must be equal with it. Every table is cut to ``--rows`` rows.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.emulated import PROCESSORS, emulating

SCENARIOS = Path(__file__).parent.parent / "scenarios" / "shipped"
SMALL = ("iris-sense-noisy-distances", "mnist-sense-noisy-data")
"""Scenarios with at most 150 rows."""
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


def processor_seconds(command: list[str], variables: Mapping[str, str]) -> float:
    """Run a command with these environment variables and return its seconds of processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **variables}
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def across_processors(raydr: Path, scenario: str, place: Path, rows: int) -> tuple[bool, bool, float]:
    """Run a scenario on each processor, with and without ``runtime.portable``.

    Returns
    -------
    default, portable : bool
        Whether the maps of all processors are equal without it, and with it.
    ratio : float
        Processor time with it, divided by that without it, on the processor that gives up most: each the
        faster of two runs, because the first one of a new version compiles.
    """
    command = [
        str(raydr),
        "run",
        scenario,
        "--inline",
        "--quiet",
        "--set",
        "metrics=[]",
        "--set",
        "compare=[]",
    ]
    # The noise of a run follows from this file.
    command += ["--set", f"privacy.secret={place / 'secret'}"]
    if scenario not in SMALL:
        command += ["--set", f"data.rows={rows}"]
    if "fedne" in scenario:
        command += ["--set", "method.rounds=20"]
    maps: dict[bool, set[bytes]] = {False: set(), True: set()}
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for processor in (*PROCESSORS, PROCESSORS[-1]):
        variables = emulating(processor, place)
        for portable in (False, True):
            out = place / "run"
            shutil.rmtree(out, ignore_errors=True)
            chosen = ["--out", str(out), "--set", f"runtime.portable={str(portable).lower()}"]
            used = processor_seconds([*command, *chosen], variables)
            if processor == PROCESSORS[-1]:
                seconds[portable].append(used)
            maps[portable].add((out / "embedding.parquet").read_bytes())
    return len(maps[False]) == 1, len(maps[True]) == 1, min(seconds[True]) / min(seconds[False])


def compare_processors(
    scenarios: Sequence[str], raydr: Path, place: Path, rows: int, json_file: Path | None
) -> int:
    """Print which scenarios have equal maps on all processors, and return the exit status."""
    figures: dict[str, Any] = {}
    ratios: dict[str, float] = {}
    place.mkdir(parents=True, exist_ok=True)
    (place / "secret").write_bytes(bytes(32))
    (place / "secret").chmod(0o600)
    print(f"{'':36} {'default':>10} {'portable':>10} {'time':>6}")
    for scenario in scenarios:
        default, portable, ratios[scenario] = across_processors(raydr, scenario, place, rows)
        figures |= {f"{scenario}: equal by default": default, f"{scenario}: equal if portable": portable}
        words = ["equal" if each else "differs" for each in (default, portable)]
        print(f"{scenario:36} {words[0]:>10} {words[1]:>10} {ratios[scenario]:6.2f}", flush=True)
    if json_file:
        rounded = {name: round(ratio, 3) for name, ratio in ratios.items()}
        json_file.write_text(json.dumps({"figures": figures, "ratios": rounded}, indent=2) + "\n")
    return int(not all(figures[f"{scenario}: equal if portable"] for scenario in scenarios))


def main() -> None:
    """Run every scenario on both sides, print a table, and end with status 1 if bits differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    sides = parser.add_mutually_exclusive_group(required=True)
    sides.add_argument("--before", type=Path, help="the raydr command to compare with")
    sides.add_argument("--processors", action="store_true", help="compare emulated processors")
    parser.add_argument("--after", type=Path, default=Path(sys.executable).with_name("raydr"))
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    place = arguments.keep or Path(tempfile.mkdtemp(prefix="raydr-bits-"))
    scenarios = QUICK if arguments.quick else sorted(path.stem for path in SCENARIOS.glob("*.yaml"))
    if arguments.processors:
        try:
            sys.exit(compare_processors(scenarios, arguments.after, place, arguments.rows, arguments.json))
        finally:
            if arguments.keep is None:
                shutil.rmtree(place, ignore_errors=True)
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
