"""Sweeps that run in seconds, and trials without Tune: for tests of the code around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from tiny import tiny

from raydr.tune.folder import Packed, SweepWork
from raydr.tune.reading import read_sweep
from raydr.tune.running import run_trial
from raydr.tune.schema import Sweep
from raydr.tune.trials import Trial

SPACE = {"method.landmarks": [12, 24], "clients.count": [3, 200]}
"""The points with 200 clients fail: iris has 150 rows."""
TIMED = ("seconds", "peak_memory_bytes")
"""Measures that differ between equal runs."""


def tiny_sweep(**more: Any) -> Sweep:
    """Four points, two of which fail, with two repeats."""
    content = {"name": "swept", "base": tiny(), "space": SPACE, "repeats": 2, "trial": {"report": False}}
    return read_sweep(content | more)


class Interrupted(KeyboardInterrupt):
    """The driver was interrupted."""


def inline(
    monkeypatch: pytest.MonkeyPatch, *, dies_after: int | None = None, reports: bool = True
) -> list[str]:
    """Run trials of sweeps here, without Ray, one after the other; return the names of those that ran.

    After ``dies_after`` trials the driver dies, before the last one is recorded. Without ``reports`` no trial gets
    its page.
    """
    import raydr.actors.cluster as cluster
    import raydr.tune.execution as execution

    ran: list[str] = []

    def execute(
        trials: Any, work: SweepWork, size: Any, stopping: Any, *, retries: int, data_dir: Path | None
    ) -> None:
        while trials.require_time() or (trial := trials.next()) is not None:
            ran.append(trial.name)
            trials.started(trial)
            report = run_trial(
                execution.dump_json(trial.scenario),
                data_dir=data_dir,
                report=reports and size.report,
                by_round=None,
                deliver=_to(work, trial),
            )
            if dies_after is not None and len(ran) == dies_after:
                raise Interrupted
            trials.ended(trial, report, 1.0)

    monkeypatch.setattr(cluster, "connected", lambda address=None: nullcontext())
    monkeypatch.setattr(execution, "execute", execute)
    monkeypatch.setattr(execution, "trials_at_once", lambda size: 1)
    return ran


def _to(work: SweepWork, trial: Trial) -> Callable[[Packed], None]:
    return lambda content: work.take(trial.name, content)


def table(folder: Path, name: str = "trials.parquet") -> list[Mapping[str, Any]]:
    """Return the rows of a table of a sweep, without the measures that differ between equal runs.

    A sweep under way may replace the file between two times that it is opened.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = pq.read_table(pa.BufferReader((folder / name).read_bytes())).to_pylist()
    return [
        {key: value for key, value in row.items() if key.removesuffix(".sd") not in TIMED} for row in found
    ]


def left_behind(folder: Path) -> Path:
    """Return the incomplete folder of a sweep into ``folder``."""
    (found,) = folder.parent.glob(f"{folder.name}.incomplete-*")
    return found


def files_of(folder: Path, *names: str) -> list[bytes]:
    return [(folder / name).read_bytes() for name in names]
