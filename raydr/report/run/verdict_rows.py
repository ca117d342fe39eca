"""How many places of a map are unreliable, as the page and the terminal tell it."""

from __future__ import annotations

import numpy as np

from raydr.report import wording
from raydr.runfolder.reading import RunFolder
from raydr.runfolder.records import VERDICTS


def sentence(run: RunFolder) -> str:
    """Tell how many places are unreliable and why, next to those of the pooled-data map; "" without verdicts."""
    if run.verdicts is None:
        return _of_sample(run)
    _, misplaced, without = np.bincount(run.verdicts, minlength=len(VERDICTS)).tolist()
    unreliable, rows = misplaced + without, len(run.verdicts)
    if not unreliable:
        text = (
            f"All {rows:,} places are reliable: the rows next to them are nearer in the data than by chance."
        )
    else:
        text = (
            f"{unreliable:,} of {rows:,} places {_are(unreliable)} unreliable: the rows next to them are no nearer in"
            f" the data than in a table with shuffled columns. {misplaced:,} {_are(misplaced)} misplaced: the map lost"
            f" nearer rows. For {without:,}, the data have no nearer rows."
        )
    if run.central_verdicts is not None:
        count = int(np.count_nonzero(run.central_verdicts))
        text += f" On the pooled-data map {count:,} {_are(count)} unreliable."
    return text


def _of_sample(run: RunFolder) -> str:
    value, error = run.measures.federated.get("reliable"), run.measures.error("federated", "reliable")
    if value is None or error is None:
        return ""
    unreliable = wording.estimated_share(1.0 - value, error, f"{len(run.clients):,} places")
    text = (
        f"{unreliable} are unreliable: the rows next to them are no nearer in the data than in a table with shuffled"
        " columns."
    )
    if (share := run.measures.central.get("reliable")) is not None:
        text += f" On the pooled-data map {wording.percent(1.0 - share)} are unreliable."
    return text


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
