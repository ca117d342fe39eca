"""How many rows are near a fracture of a map, as the page and the terminal tell it."""

from __future__ import annotations

import numpy as np

from raydr.metrics.singularity import NEAR
from raydr.report import wording
from raydr.runfolder.reading import RunFolder


def sentence(run: RunFolder) -> str:
    """Tell how many rows are near a fracture, next to those of the pooled-data map; "" if it was not computed."""
    rows, share = len(run.clients), run.measures.central.get("fracture")
    if run.singularities is None:
        value, error = run.measures.federated.get("fracture"), run.measures.error("federated", "fracture")
        if value is None or error is None:
            return ""
        some = wording.estimated_share(value, error, f"{rows:,} rows")
        text = f"{some} are near a fracture of the map: other places are almost as good for them."
        if share is not None:
            text += f" On the pooled-data map {wording.percent(share)} are."
        return text
    near = int(np.count_nonzero(run.singularities >= NEAR))
    if not near:
        text = f"None of {wording.plural(rows, 'row')} is near a fracture of the map."
    else:
        text = (
            f"{near:,} of {wording.plural(rows, 'row')} {_are(near)} near a fracture of the map: other places are"
            " almost as good for them."
        )
    if share is not None:
        count = round(share * rows)
        text += f" On the pooled-data map {count:,} {_are(count)}."
    return text


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
