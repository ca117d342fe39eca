"""The first map of a session: seconds from the start of Python, and of a second map, next to umap-learn and openTSNE.

    python -m benchmarks.first_map [--quick] [--rounds N] [--json FILE]

``first`` is the time of a new Python process that imports a library and maps the digits: what a user waits for.
``second`` is that of another map with another seed in the same process. raydr's estimators deal the rows to ten
clients, score the map and write a page; ``map alone`` leaves out the scores. ``raydr map`` is the whole command on
heart disease (``heart_disease.csv`` in the folder ``RAYDR_DATA``), with pooled-data map, metrics and page: inline,
and on a Ray that it starts. ``cpu`` is the processor time of the process, without Ray's other processes.

A round before the first fills the caches of Python and numba. Cases take turns, and each figure is the median of
``--rounds``, 5. With ``--quick``: one round of two cases.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

DIGITS = """
import time
from sklearn.datasets import load_digits
rows = load_digits().data
{setting}
def fit(seed):
    {fit}
fit(0)
began = time.perf_counter()
fit(1)
print("second", time.perf_counter() - began)
"""
ESTIMATOR = "import raydr, tempfile; folder = tempfile.mkdtemp()"
CASES: dict[str, tuple[str, str]] = {
    "FedUMAP": (ESTIMATOR, "raydr.FedUMAP(random_state=seed, out=f'{folder}/{seed}').fit(rows)"),
    "FedUMAP, map alone": (
        ESTIMATOR,
        "raydr.FedUMAP(random_state=seed, out=f'{folder}/{seed}', metrics=()).fit(rows)",
    ),
    "umap-learn": ("import umap", "umap.UMAP(random_state=seed).fit(rows)"),
    "FedTSNE": (ESTIMATOR, "raydr.FedTSNE(random_state=seed, out=f'{folder}/{seed}').fit(rows)"),
    "FedTSNE, map alone": (
        ESTIMATOR,
        "raydr.FedTSNE(random_state=seed, out=f'{folder}/{seed}', metrics=()).fit(rows)",
    ),
    "openTSNE": ("import openTSNE", "openTSNE.TSNE(random_state=seed, n_jobs=-1).fit(rows)"),
}
COMMANDS = {"raydr map, inline": ["--inline"], "raydr map, Ray": []}
AS_USERS_HAVE_IT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Python compiles each module once, and not in each process."""
PEERS = {"FedUMAP": "umap-learn", "FedTSNE": "openTSNE"}


def in_process(command: list[str]) -> dict[str, float]:
    """Run a command; return its wall and processor seconds, and the figures that it prints."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=AS_USERS_HAVE_IT)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{command[-1]} failed: {done.stderr[-600:]}")
    found = {"first": seconds, "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}
    for line in done.stdout.splitlines():
        if line.startswith("second "):
            found["second"] = float(line.split()[1])
    return found


def command_of(case: str, folder: Path) -> list[str]:
    """Return the command of a case; its files go into a folder."""
    if case in CASES:
        setting, fit = CASES[case]
        return [sys.executable, "-c", DIGITS.format(setting=setting, fit=fit)]
    table = Path(os.environ["RAYDR_DATA"]) / "heart_disease.csv"
    named = ["--site", "hospital", "--label", "disease", "--out", str(folder / "map")]
    return [sys.executable, "-m", "raydr", "map", str(table), *named, *COMMANDS[case]]


def main() -> None:
    """Print the table and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_map", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of two cases")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of all cases")
    parser.add_argument("--json", type=Path, help="also write figures and ratios to this file")
    options = parser.parse_args()
    commands = [*COMMANDS] if "RAYDR_DATA" in os.environ else []
    cases = [*commands, *CASES]
    if options.quick:
        cases = [case for case in cases if case in ("FedUMAP", "umap-learn")]
    found: dict[str, dict[str, list[float]]] = {case: defaultdict(list) for case in cases}
    for number in range(2 if options.quick else 1 + options.rounds):
        for case in cases:
            if not number and case in PEERS.values():
                continue
            with tempfile.TemporaryDirectory() as folder:
                for name, value in in_process(command_of(case, Path(folder))).items():
                    found[case][name] += [value] if number else []
    figures = {
        f"{case}.{name}": statistics.median(values)
        for case, each in found.items()
        for name, values in each.items()
    }
    print("| case | first, s | of it cpu | second, s |")
    print("| --- | ---: | ---: | ---: |")
    for case in cases:
        second = figures.get(f"{case}.second")
        shown = "" if second is None else f"{second:.1f}"
        print(f"| {case} | {figures[f'{case}.first']:.1f} | {figures[f'{case}.cpu']:.1f} | {shown} |")
    ratios = {
        f"{name} of {peer}": figures[f"{case}.{name}"] / figures[f"{peer}.{name}"]
        for case, peer in PEERS.items()
        if case in cases
        for name in ("first", "second")
    }
    if options.json is not None:
        options.json.write_text(json.dumps({"figures": figures, "ratios": ratios}, indent=2) + "\n")


if __name__ == "__main__":
    main()
