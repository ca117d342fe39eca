"""How many places of a map are unreliable, as the page and the terminal tell it."""

from __future__ import annotations

import numpy as np

from raydr.runfolder.reading import RunFolder
from raydr.runfolder.records import VERDICTS


def sentence(run: RunFolder) -> str:
    """Tell how many places are unreliable and why, next to those of the pooled-data map; "" without verdicts."""
    if run.verdicts is None:
        return ""
    _, misplaced, without = np.bincount(run.verdicts, minlength=len(VERDICTS)).tolist()
    unreliable, rows = misplaced + without, len(run.verdicts)
    if not unreliable:
        text = f"All {rows:,} places are reliable: their neighbours on the map are better than chance."
    else:
        text = (
            f"{unreliable:,} of {rows:,} places {_are(unreliable)} unreliable: their neighbours on the map are no"
            f" better than chance. {misplaced:,} {_are(misplaced)} misplaced: nearer rows exist in the data. For"
            f" {without:,} the data have none."
        )
    if run.central_verdicts is not None:
        count = int(np.count_nonzero(run.central_verdicts))
        text += f" On the pooled-data map {count:,} {_are(count)} unreliable."
    return text


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
