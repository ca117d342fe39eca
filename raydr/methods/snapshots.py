"""States of a method along its rounds, for the evaluation to draw maps of: kept beside what a round hands to the next.

They are entries of the loop's state, so checkpoints hold them and a resumed run has them; no request is made of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from raydr.federation import Federation

_KEPT = "kept after round "


def keep(federation: Federation, state: dict[str, NDArray[Any]], name: str) -> None:
    """Keep ``state[name]`` under the present round's number, where the context says that it is time for one.

    Call it before the loop of rounds, for what the method begins with, and at the end of each round.
    """
    every = federation.context.evaluate_every
    if every and federation.round % every == 0:
        state[f"{_KEPT}{federation.round}"] = state[name]


def kept(state: Mapping[str, NDArray[Any]]) -> dict[int, NDArray[Any]]:
    """Everything that was kept, by round.

    Examples
    --------
    >>> kept({"landmarks": 3, "kept after round 10": 2, "kept after round 0": 1})
    {0: 1, 10: 2}
    """
    found = {int(name.removeprefix(_KEPT)): value for name, value in state.items() if name.startswith(_KEPT)}
    return dict(sorted(found.items()))
