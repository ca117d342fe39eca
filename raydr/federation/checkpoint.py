"""Checkpoints: everything that a run needs to go on, as one versioned file without pickle.

Random streams are named, not advanced, so they need no saving; clients are deterministic, so their state is rebuilt by
repeating the requests that set it. What remains is the state of the method's loops, the ledger and the journal.
"""

from __future__ import annotations

import io
import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.errors import RunError
from raydr.journal import RoundEnded
from raydr.privacy.ledger import Entry, Ledger

VERSION = 1


@dataclass(frozen=True)
class LoopState:
    """One loop of rounds: how many are done, and the arrays that the next one starts from."""

    done: int
    state: dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Checkpoint:
    """A run between two rounds.

    Attributes
    ----------
    seed : int
        Of the run; a checkpoint of another seed is refused.
    loops : tuple of LoopState
        Every loop of rounds that was entered, the last of them perhaps unfinished.
    round : int
        Rounds done in all.
    ledger : tuple of Entry
        Every message so far.
    rounds : tuple of RoundEnded
        Every round so far.
    """

    seed: int
    loops: tuple[LoopState, ...]
    round: int
    ledger: tuple[Entry, ...]
    rounds: tuple[RoundEnded, ...]

    def restored_ledger(self) -> Ledger:
        """Return a ledger that goes on where this one stopped."""
        ledger = Ledger()
        for entry in self.ledger:
            ledger.record(entry)
        return ledger

    def to_bytes(self) -> bytes:
        """Return the file's content."""
        described = {
            "version": VERSION,
            "seed": self.seed,
            "round": self.round,
            "done": [loop.done for loop in self.loops],
            "ledger": [asdict(entry) for entry in self.ledger],
            "rounds": [asdict(record) for record in self.rounds],
        }
        arrays = {
            f"{index}/{name}": value
            for index, loop in enumerate(self.loops)
            for name, value in loop.state.items()
        }
        arrays["described"] = np.frombuffer(json.dumps(described).encode(), np.uint8)
        file = io.BytesIO()
        np.savez(file, allow_pickle=False, **arrays)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> Checkpoint:
        """Read a file's content.

        Raises
        ------
        RunError
            If it is no checkpoint, or one of another version.
        """
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                described = json.loads(arrays["described"].tobytes())
                states: list[dict[str, NDArray[Any]]] = [{} for _ in described["done"]]
                for key in arrays.files:
                    index, slash, name = key.partition("/")
                    if slash:
                        states[int(index)][name] = arrays[key]
        except (ValueError, KeyError, OSError, EOFError) as error:
            raise RunError(f"the checkpoint cannot be read ({error}): start the run anew.") from error
        if described["version"] != VERSION:
            raise RunError(
                f"the checkpoint is of version {described['version']}, and this raydr reads version {VERSION}:"
                " resume with the raydr that wrote it, or start the run anew."
            )
        return cls(
            described["seed"],
            tuple(LoopState(done, state) for done, state in zip(described["done"], states, strict=True)),
            described["round"],
            tuple(Entry(**entry) for entry in described["ledger"]),
            tuple(
                RoundEnded(**{**record, "incidents": tuple(record["incidents"])})
                for record in described["rounds"]
            ),
        )
