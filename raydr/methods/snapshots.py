"""States of a method in earlier rounds, kept with the loop's state, for maps of the evaluation.

They are entries of the loop's state, so checkpoints hold them and a resumed run has them. They need no
requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from raydr.federation import Federation

_KEPT = "kept after round "


def keep(federation: Federation, state: dict[str, NDArray[Any]], name: str) -> None:
    """Keep ``state[name]`` under the current round's number, if the context requests a snapshot now.

    Call it before the loop of rounds, for the initial state, and at the end of each round.
    """
    every = federation.context.evaluate_every
    if every and federation.round % every == 0:
        state[f"{_KEPT}{federation.round}"] = state[name]


def kept(state: Mapping[str, NDArray[Any]]) -> dict[int, NDArray[Any]]:
    """Return everything that was kept, by round.

    Examples
    --------
    >>> kept({"landmarks": 3, "kept after round 10": 2, "kept after round 0": 1})
    {0: 1, 10: 2}
    """
    found = {int(name.removeprefix(_KEPT)): value for name, value in state.items() if name.startswith(_KEPT)}
    return dict(sorted(found.items()))
