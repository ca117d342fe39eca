"""Checkpoints: everything that a run needs to continue, as one versioned file without pickle.

Random streams are named, not advanced, so they need no saving. Clients are deterministic, so their state is rebuilt by
repeating the requests that set it. What remains is the state of the method's loops and the ledger so far. Rounds and
charged releases are stored in files of their own, line by line, next to the checkpoints. A checkpoint identifies them
by a digest.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.array_files import ArrayArchive, ArrayFileError, write_array_archive
from raydr.errors import RunError
from raydr.privacy.ledger import Entry, Ledger, read_entries

VERSION = 5
_MAGIC = b"raydr checkpoint "
_DIGEST_BYTES = 32


class DamagedCheckpointError(RunError):
    """The content of a checkpoint is not what was written."""


@dataclass(frozen=True)
class History:
    """Digest of the lines of a file so far, which the next line extends.

    Attributes
    ----------
    digest : str
        Digest of the lines.
    lines : int
        Number of lines.

    Examples
    --------
    >>> History.of(["one", "other"]) == History.of(["one"]).then("other") != History.of(["other", "one"])
    True
    """

    digest: str = ""
    lines: int = 0

    def then(self, line: str) -> History:
        """Return the history with one more line."""
        row = f"{self.digest} {line}"
        return History(hashlib.blake2b(row.encode(), digest_size=16).hexdigest(), self.lines + 1)

    @classmethod
    def of(cls, lines: Iterable[str]) -> History:
        """Return the history of lines in order."""
        history = cls()
        for line in lines:
            history = history.then(line)
        return history


@dataclass(frozen=True)
class LoopState:
    """State of one loop of rounds.

    Attributes
    ----------
    done : int
        Completed rounds of this loop.
    round : int
        Number of the last completed round in the whole run; before the first, that of the last round before the loop.
    state : dict of name to array
        State from which the next round starts.
    ended : bool
        Whether there is no next round: all are done, or the method left the loop.
    """

    done: int
    round: int
    state: dict[str, NDArray[Any]]
    ended: bool = False


@dataclass(kw_only=True, frozen=True)
class Checkpoint:
    """A run between two rounds.

    Attributes
    ----------
    run : str
        Digest of the run's inputs; a checkpoint of another run is refused.
    seed : int
        Seed of the run.
    loops : tuple of LoopState
        Every loop of rounds that was entered; the last one may be unfinished.
    ledger : tuple of Entry
        Messages so far.
    history : History
        Rounds so far.
    released : History
        Lines of charged releases so far.
    network_seconds : float
        Seconds of the messages so far on the clients' lines; 0 if these are unknown.
    """

    run: str
    seed: int
    loops: tuple[LoopState, ...]
    ledger: tuple[Entry, ...] = ()
    history: History = field(default_factory=History)
    released: History = field(default_factory=History)
    network_seconds: float = 0.0

    @property
    def round(self) -> int:
        """Total number of completed rounds."""
        return self.loops[-1].round if self.loops else 0

    def restored_ledger(self) -> Ledger:
        """Return a ledger that continues this one, without the charges."""
        ledger = Ledger()
        for entry in self.ledger:
            ledger.record(entry)
        return ledger

    def to_bytes(self) -> bytes:
        """Return the file's content: a header line, a digest of the rest, and the arrays as npz."""
        described = {
            "run": self.run,
            "seed": self.seed,
            "loops": [{"done": loop.done, "round": loop.round, "ended": loop.ended} for loop in self.loops],
            "ledger": [entry.as_dict() for entry in self.ledger],
            "history": vars(self.history),
            "released": vars(self.released),
            "network_seconds": self.network_seconds,
        }
        arrays = {
            f"{index}/{name}": value
            for index, loop in enumerate(self.loops)
            for name, value in loop.state.items()
        }
        arrays["described"] = np.frombuffer(json.dumps(described).encode(), np.uint8)
        file = io.BytesIO()
        write_array_archive(file, arrays)
        content = file.getvalue()
        return _header() + hashlib.sha256(content).digest() + content

    @classmethod
    def from_bytes(cls, content: bytes) -> Checkpoint:
        """Read a file's content.

        Raises
        ------
        DamagedCheckpointError
            If the content is damaged.
        RunError
            If it has another version.
        """
        header = _header()
        if not content.startswith(header):
            first, newline, _ = content[: len(header) + 8].partition(b"\n")
            if newline and first.startswith(_MAGIC) and first.removeprefix(_MAGIC).isdigit():
                raise RunError(
                    f"the checkpoint has version {first.removeprefix(_MAGIC).decode()}, but this raydr reads"
                    f" version {VERSION}. Resume with the version of raydr that wrote it, or start the run again."
                )
            raise DamagedCheckpointError(
                "the checkpoint is damaged, or is not a raydr checkpoint. Start the run again."
            )
        digest, content = (
            content[len(header) : len(header) + _DIGEST_BYTES],
            content[len(header) + _DIGEST_BYTES :],
        )
        if hashlib.sha256(content).digest() != digest:
            raise DamagedCheckpointError("the checkpoint is damaged. Start the run again.")
        try:
            with ArrayArchive(io.BytesIO(content)) as arrays:
                described = json.loads(arrays["described"].tobytes())
                loops = [LoopState(state={}, **loop) for loop in described["loops"]]
                for key in arrays:
                    index, slash, name = key.partition("/")
                    if slash:
                        loops[int(index)].state[name] = arrays[key]
        except ArrayFileError as error:
            raise DamagedCheckpointError(f"the checkpoint cannot be read: {error}") from error
        return cls(
            run=described["run"],
            seed=described["seed"],
            loops=tuple(loops),
            ledger=read_entries(described["ledger"]),
            history=History(**described["history"]),
            released=History(**described["released"]),
            network_seconds=described.get("network_seconds", 0.0),
        )


def _header() -> bytes:
    return _MAGIC + f"{VERSION}\n".encode()
