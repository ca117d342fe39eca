"""All benchmarks in sequence, with their results stored by commit and a guard over the ratios to peer systems.

    python -m benchmarks --quick [--only NAME ...] [--repeats N] [--history DIR] [--json FILE] [--unguarded]

Each benchmark runs in its own process. With ``--quick``, the short forms take about a quarter of an hour in
all. Figures and ratios go into ``benchmarks/history/COMMIT.json``, and ``benchmarks/history/index.html``
draws each ratio over all stored commits. ``--repeats`` stores the median of several runs, and their noise.

The command ends with status 1 if a benchmark fails, or if a ratio is worse than in the newest other entry
that has it: by more than a quarter on the same machine, by more than half of it or double on another, and by
more than the noise of both entries. ``--unguarded`` skips this. Each ratio compares two systems in one run,
so a slow day slows both, and the entries that come with raydr guard the first run on any machine.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from raydr.report.charts import line_chart
from raydr.report.templates import part, templates
from raydr.threads import cores

ROOT = Path(__file__).parent.parent
HISTORY = ROOT / "benchmarks" / "history"
SUITE: Mapping[str, str | None] = {
    "attacks": None,
    "completion": "closed-form/gemm",
    "curves": "off",
    "density": None,
    "determinism": "",
    "fed_plus": None,
    "fed_tsne": "",
    "fedne": "round_s",
    "fedne_noise": None,
    "fedne_widths": None,
    "fidelity": None,
    "first_map": "",
    "fractures": None,
    "gower": None,
    "gpu": None,
    "harmonizing": None,
    "islands": None,
    "large_sense": None,
    "masking": "",
    "message_bytes": None,
    "million": "",
    "neighbors": "",
    "network": "",
    "new_rows": None,
    "omnifc": None,
    "page": None,
    "periods": None,
    "placing": "",
    "pointwise": None,
    "private_map": None,
    "reliability": None,
    "redraw": None,
    "rounds": None,
    "runtimes": "",
    "scale": None,
    "secure_rounds": "",
    "sense": None,
    "simple_maps": None,
    "sites": None,
    "spectral": "error",
    "stability": None,
    "steering": None,
    "sweep": "",
    "synthetic_rows": None,
    "wide": None,
}
"""Every benchmark without extra requirements, and a pattern for its ratios where less is better."""
WORSE, ELSEWHERE = 1.25, 2.0
"""Maximum factor by which a ratio can get worse than on the same machine, and than on another."""


@dataclass(frozen=True)
class Entry:
    """Results of the suite at a commit.

    ``found`` has the ``figures``, ``ratios`` and ``seconds`` of each benchmark. If it was repeated, also the
    ``noise``: each ratio's largest value divided by its smallest.
    """

    commit: str
    date: str
    machine: str
    quick: bool
    found: Mapping[str, Mapping[str, Any]]

    @property
    def ratios(self) -> dict[tuple[str, str], float]:
        """Every ratio by its benchmark and name."""
        return {
            (name, ratio): value
            for name, found in self.found.items()
            for ratio, value in found["ratios"].items()
            if math.isfinite(value) and value > 0
        }

    def noise(self, place: tuple[str, str]) -> float:
        """Return the noise of a ratio, 1 if it was measured once."""
        return float(self.found[place[0]].get("noise", {}).get(place[1], 1.0))

    @classmethod
    def read(cls, file: Path) -> Entry:
        """Read an entry from a file."""
        return cls(**json.loads(file.read_text(encoding="utf-8")))


def less_is_better(benchmark: str, ratio: str) -> bool:
    """Whether a lower value of a ratio is better."""
    pattern = SUITE.get(benchmark)
    return pattern is not None and re.search(pattern, ratio) is not None


def worsened(history: Sequence[Entry], after: Entry) -> Iterator[str]:
    """Yield a sentence for each ratio that is worse than the newest one before by more than its noise.

    Ratios of the same machine go before ratios of other machines. Entries of the other form are left out.
    """
    others = [entry for entry in history if entry.quick == after.quick and entry.commit != after.commit]
    others.sort(key=lambda entry: entry.machine == after.machine)  # stable: the newest stays last
    for place, now in after.ratios.items():
        before = next((entry for entry in reversed(others) if place in entry.ratios), None)
        if before is None:
            continue
        allowed = max(
            WORSE if before.machine == after.machine else ELSEWHERE, before.noise(place), after.noise(place)
        )
        then = before.ratios[place]
        if (now / then if less_is_better(*place) else then / now) > allowed:
            yield f"{place[0]}: {place[1]} was {then:.3g} at {before.commit}, but is {now:.3g}"


def entries(history: Path) -> list[Entry]:
    """Return all entries of a history, oldest first."""
    return sorted((Entry.read(file) for file in history.glob("*.json")), key=lambda entry: entry.date)


def extended(before: Entry, after: Entry) -> Entry:
    """Return an entry with the benchmarks of an earlier one of the same commit, machine and form too.

    A name that ends with a plus stands for several states of the files, so such an entry is returned as it is.
    """
    if (before.machine, before.quick) != (after.machine, after.quick) or after.commit.endswith("+"):
        return after
    return replace(after, found={**before.found, **after.found})


def run(name: str, quick: bool) -> dict[str, Any]:
    """Run one benchmark and return its results.

    Raises
    ------
    RuntimeError
        If it ends with a status other than 0.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        command = [sys.executable, "-m", f"benchmarks.{name}", "--json", str(file)]
        began = time.perf_counter()
        done = subprocess.run(
            [*command, *(["--quick"] if quick else [])], cwd=ROOT, capture_output=True, text=True, check=False
        )
        seconds = round(time.perf_counter() - began, 1)
        if done.returncode:
            raise RuntimeError(f"{name} ended with {done.returncode}: {done.stderr.strip()[-600:]}")
        return {"seconds": seconds, **json.loads(file.read_text(encoding="utf-8"))}


def repeated(name: str, quick: bool, repeats: int) -> dict[str, Any]:
    """Run a benchmark several times; return its last results, with medians and noise of the ratios."""
    runs = [run(name, quick) for _ in range(repeats)]
    if repeats == 1:
        return runs[0]
    values = {ratio: [each["ratios"][ratio] for each in runs] for ratio in runs[0]["ratios"]}
    noise = {ratio: round(max(each) / min(each), 3) for ratio, each in values.items() if min(each) > 0}
    return {**runs[-1], "ratios": {ratio: median(each) for ratio, each in values.items()}, "noise": noise}


def measured(names: Sequence[str], quick: bool, repeats: int) -> tuple[dict[str, Any], list[str]]:
    """Run benchmarks, print their results, and return the results and the errors."""
    found, failed = {}, []
    for name in names:
        try:
            found[name] = repeated(name, quick, repeats)
        except RuntimeError as error:
            failed.append(str(error))
            print(f"{name:<14}failed", flush=True)
            continue
        print(f"{name:<14}{found[name]['seconds']:>7.1f} s", flush=True)
        for ratio, value in found[name]["ratios"].items():
            print(f"  {ratio:<70}{value:>9.3g}", flush=True)
    return found, failed


def write_page(history: Path) -> Path:
    """Write a page with a chart for each ratio that several entries have, and the newest value of every ratio."""
    every = entries(history)
    last = every[-1]
    series = {
        place: [(number, entry.ratios[place]) for number, entry in enumerate(every) if place in entry.ratios]
        for place in sorted({place for entry in every for place in entry.ratios})
    }
    page = templates().from_string((ROOT / "benchmarks" / "history.html").read_text(encoding="utf-8"))
    file = history / "index.html"
    file.write_text(
        page.render(
            style=part("report.css"),
            entries=every,
            rows=[
                {
                    "benchmark": place[0],
                    "ratio": place[1],
                    "better": "less" if less_is_better(*place) else "more",
                    "value": f"{values[-1][1]:.3g}",
                    "chart": line_chart(
                        [number for number, _ in values],
                        [value for _, value in values],
                        place[1],
                        1.0,
                        "entry",
                    ),
                }
                for place, values in series.items()
                if place in last.ratios
            ],
        ),
        encoding="utf-8",
    )
    return file


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite, store the results, and report what is worse."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="run each benchmark in its quick form")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=SUITE, help="only these benchmarks")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each benchmark (default: 1)")
    parser.add_argument("--history", type=Path, default=HISTORY, help="folder of entries")
    parser.add_argument("--json", type=Path, help="also write the entry to this file")
    parser.add_argument("--unguarded", action="store_true", help="do not compare with earlier entries")
    given = parser.parse_args(arguments)
    found, failed = measured(given.only or list(SUITE), given.quick, given.repeats)
    now = Entry(_commit(), datetime.now(UTC).isoformat(timespec="seconds"), _machine(), given.quick, found)
    history = entries(given.history) if given.history.is_dir() and not given.unguarded else []
    worse = list(worsened(history, now))
    given.history.mkdir(parents=True, exist_ok=True)
    stored = given.history / f"{now.commit}.json"
    if stored.exists():
        now = extended(Entry.read(stored), now)
    for file in (stored, given.json):
        if file is not None:
            file.write_text(json.dumps(vars(now), indent=1) + "\n", encoding="utf-8")
    print(write_page(given.history))
    for line in (*failed, *worse):
        print(line, file=sys.stderr)
    return 1 if failed or worse else 0


def _commit() -> str:
    """Return the short name of the current commit, with a plus if files differ from it."""
    git = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--exclude=*"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return git.stdout.strip() or "unknown"


def _machine() -> str:
    """Describe this machine. Entries of different machines are not compared."""
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.+)", info.read_text()) if info.exists() else []
    return f"{names[0] if names else platform.processor() or platform.machine()}, {cores()} cores"


if __name__ == "__main__":
    sys.exit(main())
