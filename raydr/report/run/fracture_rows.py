"""How many rows are near a fracture of a map, or would jump on it, as the page and the terminal tell it."""

from __future__ import annotations

import numpy as np

from raydr.arrays import Float64Array
from raydr.metrics.perturbation import JUMP
from raydr.metrics.singularity import NEAR
from raydr.report import wording
from raydr.runfolder.reading import RunFolder


def sentence(run: RunFolder) -> str:
    """Tell how many rows are near a fracture, next to those of the pooled-data map; "" if it was not computed."""
    found = _counted(run, "fracture", run.singularities, NEAR, ("is", "are"))
    if found is None:
        return ""
    some, pooled = found
    return f"{some} near a fracture of the map: other places are almost as good for them.{pooled}"


def jumps(run: RunFolder) -> str:
    """Tell how many rows would jump, next to those of the pooled-data map; "" if it was not computed."""
    found = _counted(run, "perturbation", run.perturbations, JUMP, ("would", "would"))
    if found is None:
        return ""
    some, pooled = found
    return f"{some} jump on the map if their values changed by as much as those of near rows differ.{pooled}"


def _counted(
    run: RunFolder, name: str, scores: Float64Array | None, high: float, verbs: tuple[str, str]
) -> tuple[str, str] | None:
    """Return how many rows have a high score, with the verb for one or several, and those of the pooled-data map."""
    rows, share = len(run.clients), run.measures.central.get(name)
    if scores is None:
        value, error = run.measures.federated.get(name), run.measures.error("federated", name)
        if value is None or error is None:
            return None
        some = wording.estimated_share(value, error, f"{rows:,} rows")
        pooled = "" if share is None else f" On the pooled-data map {wording.percent(share)} {verbs[1]}."
        return f"{some} {verbs[1]}", pooled
    count = int(np.count_nonzero(scores >= high))
    some = f"{count:,} of {wording.plural(rows, 'row')} {verbs[count != 1]}"
    if not count:
        some = f"None of {wording.plural(rows, 'row')} {verbs[0]}"
    if share is None:
        return some, ""
    there = round(share * rows)
    return some, f" On the pooled-data map {there:,} {verbs[there != 1]}."
