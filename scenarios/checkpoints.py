"""The part of an incomplete run folder from which the run can go on.

``identity.json`` says what the run is made from, ``rounds.jsonl`` has a line for each round, added as it ends, and the
last two checkpoints stand beside them. A lock tells that somebody is at work there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from raydr.errors import OutputError, RunError
from raydr.federation.checkpoint import Checkpoint, History
from raydr.journal import CheckpointTaken, RoundEnded
from raydr.privacy.secrets import Origin, RootedRun
from raydr.records import ROUNDS, SCENARIO
from raydr.scenarios.identity import Identity

_FOLDER = "checkpoints"
_KEPT = 2


@dataclass(frozen=True)
class Resumption:
    """Where a run goes on.

    Attributes
    ----------
    content : bytes
        Of the checkpoint.
    rounds : tuple of RoundEnded
        Every round that is done.
    damaged : tuple of str
        Later checkpoints that cannot be used, and why.
    run : RootedRun
        Its name and its root.
    """

    content: bytes
    rounds: tuple[RoundEnded, ...]
    damaged: tuple[str, ...]
    run: RootedRun


@contextmanager
def locked(place: Path, noun: str) -> Iterator[None]:
    """Keep every other process from a run or a sweep, for the length of a ``with`` block or the life of this one.

    Raises
    ------
    OutputError
        If another process is at work on it.
    """
    from filelock import FileLock, Timeout

    folder, lock = place.parent, FileLock(place / "lock", timeout=0)
    try:
        place.mkdir(exist_ok=True)
        lock.acquire()
    except Timeout:  # an OSError itself
        raise OutputError(
            f"Another process is at work on the {noun} in {folder}: wait until it ends, or end it, before you"
            f" resume the {noun}."
        ) from None
    except OSError as error:
        raise OutputError(
            f"The {noun} folder {folder} cannot be written ({error.strerror or error}): free its place, or copy"
            " it to another and resume it there."
        ) from error
    try:
        yield
    finally:
        lock.release()


@dataclass(frozen=True)
class Checkpoints:
    """Checkpoints of the run in an incomplete run folder.

    Attributes
    ----------
    folder : Path
        The run folder.
    """

    folder: Path

    noun: ClassVar[str] = "run"
    stored: ClassVar[str] = SCENARIO
    after: ClassVar[str] = "from the last checkpoint"
    command: ClassVar[str] = "run"

    @property
    def place(self) -> Path:
        """Where they lie."""
        return self.folder / _FOLDER

    @property
    def there(self) -> bool:
        """Whether there is any."""
        return bool(self._files())

    def locked(self) -> AbstractContextManager[None]:
        """Keep every other process from the run, as :func:`locked`."""
        return locked(self.place, self.noun)

    def begin(self, identity: Identity, origin: Origin) -> Resumption | None:
        """Say what the run is made from, or go on with the one that is there.

        Returns
        -------
        resumption : Resumption or None
            The latest checkpoint that is whole; None where the run begins.

        Raises
        ------
        ScenarioError, DataError, OutputError
            If the run that is there was made from something else.
        RunError
            If none of its checkpoints can be used.
        """
        if not self.there:
            self._identity.write_text(json.dumps(identity.to_json()))
            self._rounds.unlink(missing_ok=True)
            return None
        was = self._was()
        if was is not None:
            identity.require(was)
        damaged: list[str] = []
        for path in reversed(self._files()):
            try:
                resumption = self._resumption(
                    path, lambda run: origin.again(identity.study, run), tuple(damaged)
                )
            except RunError as error:
                damaged.append(f"checkpoint {path.name}: {str(error).rstrip('.')}")
                continue
            # What was told after that checkpoint is told again.
            self._write_rounds(resumption.rounds)
            return resumption
        raise RunError(
            f"None of the checkpoints in {self.place} can be used: {'; '.join(damaged)}. Start the run anew with"
            f" `raydr run {self.folder / SCENARIO}`."
        )

    def keep(self, event: CheckpointTaken) -> None:
        """Keep a checkpoint, written under another name and renamed, and drop all but the one before it."""
        unfinished = self.place / "unfinished"
        unfinished.write_bytes(event.content)
        unfinished.replace(self.place / f"{event.round:08d}.npz")
        for old in self._files()[:-_KEPT]:
            old.unlink()

    def add(self, ended: RoundEnded) -> None:
        """Keep a round's row."""
        with self._rounds.open("a") as file:
            file.write(ended.line)

    @property
    def _identity(self) -> Path:
        return self.place / "identity.json"

    @property
    def _rounds(self) -> Path:
        return self.place / ROUNDS

    def _files(self) -> list[Path]:
        return sorted(self.place.glob("*.npz"))

    def _was(self) -> Identity | None:
        """What the run says that it is made from; None where that cannot be read. Checkpoints know its digest."""
        try:
            described = json.loads(self._identity.read_text())
            return Identity(**{**described, "paths": tuple(described["paths"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def _resumption(
        self, path: Path, rooted: Callable[[str], RootedRun], damaged: tuple[str, ...]
    ) -> Resumption:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise RunError(f"it cannot be read ({error.strerror})") from error
        checkpoint = Checkpoint.from_bytes(content)
        rounds = self._read_rounds(checkpoint.round)
        if History.of(rounds) != checkpoint.history:
            raise RunError(f"the rounds before it, in {self._rounds.name}, are damaged")
        return Resumption(content, rounds, damaged, rooted(checkpoint.run))

    def _read_rounds(self, until: int) -> tuple[RoundEnded, ...]:
        """Rows of the rounds up to a number; of one that was done again, the last."""
        rows: dict[int, RoundEnded] = {}
        try:
            lines = self._rounds.read_text().splitlines()
        except (OSError, ValueError):
            lines = []
        for line in lines:
            try:
                row = json.loads(line)
                ended = RoundEnded(**{**row, "incidents": tuple(row["incidents"])})
            except (ValueError, TypeError, KeyError):
                continue  # cut off; where it is missed, the history says so
            if isinstance(ended.round, int) and ended.round <= until:
                rows[ended.round] = ended
        return tuple(rows[number] for number in sorted(rows))

    def _write_rounds(self, rounds: tuple[RoundEnded, ...]) -> None:
        unfinished = self.place / "unfinished"
        unfinished.write_text("".join(ended.line for ended in rounds))
        unfinished.replace(self._rounds)
