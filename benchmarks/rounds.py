"""Cost of a federated round: raydr against Flower's Ray simulation, a bare Ray pool and serial numpy.

Every client returns x + 1 and the server averages. The result of every round is checked. Each run has its own
process, its own Ray and all cores. Runs of the systems take turns, ``--repeats`` times. Run ``python -m
benchmarks.rounds``: about 20 minutes. With ``--quick``: without Flower, once, within a minute.

The protocol is clients {20, 100, 1000} x payload {1 KB, 1 MB, 10 MB} x work {0, 50 ms}. It omits what one
machine cannot do: 1000 x 10 MB and 1000 x 1 MB (Flower's server holds all replies of a round, several times),
100 x 10 MB (as much as 1000 x 1 MB), and 50 ms of work above 100 clients (25 s a round on two cores, for any
system).

Figures, in seconds and megabytes: ``SYSTEM.SETTING.round_s`` is the median round and ``.p95_s`` the 95th
percentile, both without each run's first round, which is ``.first_s``. ``.startup_s`` is the time from the
start of the simulation to the result of the first round, and ``.peak_mb`` is the peak memory of all processes
together. Ratios are medians, the other system's over raydr's.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.increment import Setting, Timing
from benchmarks.processes import printed_lines
from raydr.threads import cores

SETTINGS = (
    *("20x1KB", "100x1KB", "1000x1KB", "20x1MB", "100x1MB", "20x10MB"),
    *("20x1KB+50ms", "100x1KB+50ms", "20x1MB+50ms"),
)
QUICK = ("20x1KB", "100x1KB", "1000x1KB", "20x10MB")
MODULES = {
    "raydr": "benchmarks.round_systems",
    "flower": "benchmarks.flower_rounds",
    "bare-ray": "benchmarks.round_systems",
    "serial": "benchmarks.round_systems",
}
_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Figures:
    """Results of all runs of one system and setting."""

    round_s: float
    p95_s: float
    first_s: float
    startup_s: float
    peak_mb: float

    @classmethod
    def of(cls, runs: Sequence[tuple[Timing, float]]) -> Figures:
        """Combine runs and their peak memory: percentiles of all later rounds, medians of single values."""
        timings = [timing for timing, _ in runs]
        later = [seconds for timing in timings for seconds in timing.rounds_s[1:]]
        return cls(
            statistics.median(later),
            float(np.percentile(later, 95)),
            statistics.median(timing.rounds_s[0] for timing in timings),
            statistics.median(timing.startup_s + timing.rounds_s[0] for timing in timings),
            statistics.median(peak_mb for _, peak_mb in runs),
        )


def rounds_of(setting: Setting) -> int:
    """Return the number of rounds of a run: the first, and enough others for a 95th percentile over three runs."""
    return 21 if setting.clients * (setting.size / 1e6 + setting.work_s) < 1 and setting.clients < 1000 else 8


def measure(
    systems: Sequence[str], settings: Sequence[Setting], repeats: int
) -> dict[tuple[str, str], Figures]:
    """Run every system in every setting, in turns, with a process for each run."""
    runs: dict[tuple[str, str], list[tuple[Timing, float]]] = defaultdict(list)
    for repeat in range(repeats):
        for setting in settings:
            for system in systems:
                arguments = (system, str(rounds_of(setting)), setting.name)
                try:
                    for line, peak_mb in printed_lines(MODULES[system], *arguments, timeout_s=_TIMEOUT_S):
                        runs[system, setting.name].append((Timing(**json.loads(line)), peak_mb))
                except RuntimeError as error:
                    if system != "flower":
                        raise
                    # Flower waits forever if its Ray has died. Its other runs count.
                    print(f"lost a run: {error}", flush=True)
            print(f"run {repeat + 1} of {repeats}: {setting.name}", flush=True)
    return {key: Figures.of(found) for key, found in runs.items()}


def measure_quickly(systems: Sequence[str], settings: Sequence[Setting]) -> dict[tuple[str, str], Figures]:
    """Run every system once, all settings in one process. Start-up includes Ray only for the first setting."""
    runs = {}
    for system in systems:
        names = [setting.name for setting in settings]
        for line, peak_mb in printed_lines(MODULES[system], system, "11", *names, timeout_s=_TIMEOUT_S):
            timing = Timing(**json.loads(line))
            runs[system, timing.setting] = Figures.of([(timing, peak_mb)])
    return runs


def ratios_of(found: dict[tuple[str, str], Figures]) -> dict[str, float]:
    """Return the median round of each other system over raydr's, for each setting that both ran."""
    return {
        f"{system}/raydr.{setting}": figures.round_s / found["raydr", setting].round_s
        for (system, setting), figures in found.items()
        if system != "raydr" and ("raydr", setting) in found
    }


def main() -> None:
    """Print the table and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rounds", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="raydr and the controls, once: within a minute")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each system (default: %(default)s)")
    parser.add_argument(
        "--only", nargs="+", metavar="SETTING", help="only these settings, such as 20x1KB+50ms"
    )
    parser.add_argument("--json", type=Path, help="also write figures and ratios to this file")
    arguments = parser.parse_args()
    try:
        settings = [
            Setting.named(name) for name in arguments.only or (QUICK if arguments.quick else SETTINGS)
        ]
    except ValueError as error:
        parser.error(str(error))
    systems = [system for system in MODULES if not (system == "flower" and arguments.quick)]
    if "flower" in systems and importlib.util.find_spec("flwr") is None:
        print(
            "Flower is not installed, so its rows are omitted. To install it: pip install 'flwr[simulation]==1.41'"
        )
        systems.remove("flower")

    print(f"{cores()} cores, {1 if arguments.quick else arguments.repeats} runs each")
    found = (
        measure_quickly(systems, settings)
        if arguments.quick
        else measure(systems, settings, arguments.repeats)
    )
    ratios = ratios_of(found)
    print(f"{'':<24}{'round':>11}{'p95':>11}{'first':>11}{'start-up':>11}{'peak':>10}{'/ raydr':>10}")
    for setting in settings:
        for system in systems:
            one = found.get((system, setting.name))
            if one is None:
                continue
            ratio = ratios.get(f"{system}/raydr.{setting.name}", 1.0)
            print(
                f"{setting.name:<14}{system:<10}{one.round_s * 1e3:>8.2f} ms{one.p95_s * 1e3:>8.2f} ms"
                f"{one.first_s:>9.2f} s{one.startup_s:>9.2f} s{one.peak_mb:>7.0f} MB{ratio:>10.2f}"
            )
    if arguments.json is not None:
        figures = {
            f"{system}.{setting}.{name}": round(value, 6)
            for (system, setting), one in found.items()
            for name, value in asdict(one).items()
        }
        rounded = {name: round(ratio, 3) for name, ratio in ratios.items()}
        arguments.json.write_text(json.dumps({"figures": figures, "ratios": rounded}, indent=2) + "\n")


if __name__ == "__main__":
    main()
