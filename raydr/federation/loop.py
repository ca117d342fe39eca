"""A loop of rounds: its state as a typed value for the method, and as named arrays for checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from raydr.errors import RunError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

S = TypeVar("S", bound="DataclassInstance")
_KEPT = "kept after round "


@dataclass(frozen=True)
class Stateless:
    """State of a loop that passes nothing from round to round."""


class Loop(Generic[S]):
    """The state that a loop of rounds passes on, and snapshots of it.

    Parameters
    ----------
    state : frozen dataclass
        What the first round starts from. Its fields are arrays, numbers or None.

    Attributes
    ----------
    state : frozen dataclass
        What the next round starts from: the body of the loop replaces it.
    snapshots : dict of round to array
        Arrays of earlier rounds, from which the evaluation draws maps (:meth:`Federation.keep`).

    Examples
    --------
    >>> @dataclass(kw_only=True, frozen=True)
    ... class Descent:
    ...     step: float
    ...     velocity: NDArray[Any] | None = None
    >>> loop = Loop(Descent(step=0.5))
    >>> loop.snapshots[10] = np.zeros(2)
    >>> loop.arrays()
    {'step': array(0.5), 'kept after round 10': array([0., 0.])}
    >>> resumed = Loop(Descent(step=1.0))
    >>> resumed.restore(loop.arrays())
    >>> resumed.state, resumed.snapshots
    (Descent(step=0.5, velocity=None), {10: array([0., 0.])})
    """

    def __init__(self, state: S) -> None:
        self.state = state
        self.snapshots: dict[int, NDArray[Any]] = {}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the state and the snapshots by name. A number has no dimensions, and None is left out."""
        named = {name: np.asarray(value) for name, value in vars(self.state).items() if value is not None}
        return named | {f"{_KEPT}{round}": value for round, value in self.snapshots.items()}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Replace state and snapshots by those in ``arrays``, as :meth:`arrays` returns them.

        Raises
        ------
        RunError
            If ``arrays`` lack a field of the state, or have another.
        """
        stored = {name: value for name, value in arrays.items() if not name.startswith(_KEPT)}
        expected = [name for name, value in vars(self.state).items() if value is not None]
        if sorted(stored) != sorted(expected):
            raise RunError(
                f"the checkpoint holds {', '.join(stored) or 'no state'} of this loop, but the method expects"
                f" {', '.join(expected) or 'no state'}. Start the run again."
            )
        values = {name: value if value.ndim else value.item() for name, value in stored.items()}
        self.state = replace(self.state, **values)
        self.snapshots = {
            int(name.removeprefix(_KEPT)): value for name, value in arrays.items() if name not in stored
        }
