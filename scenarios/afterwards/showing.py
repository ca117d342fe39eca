"""Picture and report of a run folder, written after everything else."""

from __future__ import annotations

from pathlib import Path

from raydr.errors import RunError
from raydr.journal import Journal, Listener
from raydr.report import write_picture, write_report
from raydr.runfolder import records


def load_drawing() -> None:
    """Import what draws pictures, which takes most of a second."""
    import matplotlib.figure  # noqa: F401


def shown(folder: Path, listener: Listener) -> Path:
    """Write the picture and the report of a complete run folder; a failure here loses no result.

    Raises
    ------
    RunError
        If one of them cannot be written.
    """
    failed: dict[str, Exception] = {}
    try:
        with Journal(listener).stage("report"):
            for name, write in ((records.PICTURE, write_picture), (records.REPORT, write_report)):
                if name == records.PICTURE and not (folder / records.EMBEDDING).exists():
                    continue  # the places of a deployed run are at its sites
                try:
                    write(folder)
                except Exception as error:
                    failed[name] = error
    except BaseException as error:
        error.add_note(
            f"The run in {folder} is complete: to write its picture and report, run `raydr report {folder}`."
        )
        raise
    if failed:
        reasons = "; ".join(
            f"{name} could not be written: {' '.join(str(error).split())}" for name, error in failed.items()
        )
        raise RunError(
            f"The run is complete in {folder}, except for picture or report ({reasons.rstrip('.')}). Fix that, then run"
            f" `raydr report {folder}`."
        ) from next(iter(failed.values()))
    return folder
