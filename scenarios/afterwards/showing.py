"""The picture and the page of a run folder, drawn once all else in it is there."""

from __future__ import annotations

from pathlib import Path

from raydr.errors import RunError
from raydr.journal import Journal, Listener
from raydr.report import write_picture, write_report
from raydr.runfolder import records


def shown(folder: Path, listener: Listener) -> Path:
    """Draw the picture and the page of a run folder that is whole: what fails here costs no result.

    Raises
    ------
    RunError
        If one of them cannot be made.
    """
    failed: dict[str, Exception] = {}
    try:
        with Journal(listener).stage("report"):
            for name, write in ((records.PICTURE, write_picture), (records.REPORT, write_report)):
                try:
                    write(folder)
                except Exception as error:
                    failed[name] = error
    except BaseException as error:
        error.add_note(
            f"The run in {folder} is whole: `raydr report {folder}` makes its picture and its page."
        )
        raise
    if failed:
        reasons = "; ".join(
            f"{name} could not be made: {' '.join(str(error).split())}" for name, error in failed.items()
        )
        raise RunError(
            f"The run is whole in {folder}, but for what shows it ({reasons.rstrip('.')}). Once that is mended,"
            f" `raydr report {folder}` makes both from the results."
        ) from next(iter(failed.values()))
    return folder
