"""Entry point of a job on the cluster: run a scenario or a sweep, log events, keep the folder for the client."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from raydr.actors.job_log import Failed, JobMessage, Kept, line_of
from raydr.errors import RaydrError
from raydr.front import process
from raydr.front.streams import BestEffortStream
from raydr.front.submission import DATA, SCENARIO, SUBMISSION, SWEEP, localised
from raydr.journal import Event, IncidentEvent, Progress
from raydr.portable import NotPortableError

_PACE_S = 0.5
"""Minimum seconds between two logged progress events, of which there may be a million."""


def main() -> NoReturn:
    """Run ``submission.json`` of the current folder, and end the process with its exit status."""
    process.main(_status)


def _status() -> int:
    """Run the job, log an error if there is one, and return the exit status; the log may be full."""
    try:
        _work(sys.argv[1], json.loads(Path(SUBMISSION).read_text(encoding="utf-8")))
    except NotPortableError:  # process.main starts the job again
        raise
    except RaydrError as error:
        _log(Failed(" ".join([str(error), *getattr(error, "__notes__", [])]), error.exit_code))
        return error.exit_code
    except KeyboardInterrupt:
        raise
    except Exception:
        traceback.print_exc()
        _log(Failed("This is a bug in raydr. Please report it with the lines above.", 3))
        return 3
    return 0


def _work(job: str, submission: dict[str, Any]) -> None:
    from raydr.actors.job_artifacts import keep
    from raydr.scenarios.running.environment import versions

    ours = {"python": sys.version.split()[0], **versions()}
    others = [
        f"{name} is {ours.get(name, 'missing')} there and {theirs} here"
        for name, theirs in submission["versions"].items()
        if ours.get(name) != theirs
    ]
    if others:
        _log(
            IncidentEvent(
                f"the cluster has other versions, so results may differ in rounding: {', '.join(others)}"
            )
        )
    place = Path(tempfile.mkdtemp(prefix="raydr-"))
    try:
        folder = _done(submission, place / submission["name"])
        here = {os.path.realpath(name): path for name, path in submission["paths"].items()}
        localised(folder, here)
        _log(Kept(keep(folder, job).size))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _done(submission: dict[str, Any], out: Path) -> Path:
    data_dir = Path(DATA).absolute() if submission["data"] else None
    if submission["kind"] == "sweep":
        from raydr.tune.reading import read_sweep
        from raydr.tune.sweeping import sweep

        return sweep(read_sweep(SWEEP), out=out, data_dir=data_dir, listener=_Paced().hear)
    from raydr.scenarios import runner
    from raydr.scenarios.schema.reading import read

    return runner.run(read(SCENARIO), out=out, data_dir=data_dir, listener=_Paced().hear)


class _Paced:
    """Logs events, and progress at most every ``_PACE_S`` seconds."""

    def __init__(self) -> None:
        self._logged_at = 0.0

    def hear(self, event: Event) -> None:
        if isinstance(event, Progress) and event.done < event.total:
            if time.monotonic() - self._logged_at < _PACE_S:
                return
            self._logged_at = time.monotonic()
        _log(event)


def _log(event: JobMessage) -> None:
    line = line_of(event)
    if line is not None:
        log = BestEffortStream(sys.stdout)
        log.write(f"{line}\n")
        log.flush()


if __name__ == "__main__":
    main()
