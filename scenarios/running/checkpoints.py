"""Checkpoints of an incomplete run folder, from which the run can be resumed.

``identity.json`` has the identity and name of the run. ``releases.jsonl`` has two lines for each charged release: one
before the request, one after the answer. ``rounds.jsonl`` has one line for each finished round. The last two
checkpoints are kept. A lock keeps other processes out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from raydr.errors import OutputError, RaydrError, RunError
from raydr.federation.checkpoint import Checkpoint, History
from raydr.federation.releases import by_name
from raydr.journal import Charged, CheckpointTaken, RoundEnded
from raydr.privacy.secrets import Origin, RootedRun
from raydr.runfolder.locking import locked
from raydr.runfolder.records import ROUNDS, SCENARIO
from raydr.scenarios.running.identity import Identity

_FOLDER = "checkpoints"
_KEPT = 2


@dataclass(frozen=True)
class Resumption:
    """State from which a run is resumed.

    Attributes
    ----------
    content : bytes or None
        Content of the checkpoint; None before the first.
    rounds : tuple of RoundEnded
        All finished rounds.
    damaged : tuple of str
        Later checkpoints that cannot be used, and why.
    run : RootedRun
        Name and root secret of the run.
    released : tuple of str
        All lines about charged releases.
    """

    content: bytes | None
    rounds: tuple[RoundEnded, ...]
    damaged: tuple[str, ...]
    run: RootedRun
    released: tuple[str, ...]


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
    command: ClassVar[str] = "run"

    @property
    def after(self) -> str:
        """Where the run resumes, in words."""
        return "from the last checkpoint" if self._files() else "from the first round"

    @property
    def place(self) -> Path:
        """Folder of the checkpoints."""
        return self.folder / _FOLDER

    @property
    def there(self) -> bool:
        """Whether there is a checkpoint, or a charged release that the run can send again at no cost."""
        return bool(self._files()) or (self._releases.is_file() and self._releases.stat().st_size > 0)

    def locked(self) -> AbstractContextManager[None]:
        """Lock the run against other processes, with :func:`locked`."""
        return locked(self.place, self.noun)

    def begin(self, identity: Identity, run: str) -> None:
        """Write the identity and name of a new run, before the first request to a client."""
        self._releases.touch()
        self._write(self._identity, json.dumps(identity.to_json() | {"run": run}))

    def resumption(self, identity: Identity, origin: Origin) -> Resumption | None:
        """Return the state to resume from; None if no run has begun.

        Raises
        ------
        ScenarioError, DataError, OutputError
            If the run has another identity, or its releases are unknown.
        RunError
            If none of its checkpoints can be used.
        """
        files = self._files()
        if not files and not self._identity.exists():
            return None
        run = self._begun(identity)
        released = self._read_releases()

        def rooted(run: str) -> RootedRun:
            return origin.again(identity.study, run)

        if run is not None and not files:
            return Resumption(None, (), (), rooted(run), released)
        damaged: list[str] = []
        for path in reversed(files):
            try:
                resumption = self._resumption(path, rooted, tuple(damaged), released)
            except RunError as error:
                damaged.append(f"checkpoint {path.name}: {str(error).rstrip('.')}")
                continue
            # Rounds after that checkpoint are repeated.
            self._write(self._rounds, "".join(ended.line for ended in resumption.rounds))
            return resumption
        raise RunError(
            f"No checkpoint in {self.place} can be used: {'; '.join(damaged) or self._unread}."
            f" {self._new_run}"
        )

    def keep(self, event: CheckpointTaken) -> None:
        """Write a checkpoint under a temporary name, rename it, and delete all but the previous one."""
        unfinished = self.place / "unfinished"
        unfinished.write_bytes(event.content)
        unfinished.replace(self.place / f"{event.round:08d}.npz")
        for old in self._files()[:-_KEPT]:
            old.unlink()

    def charge(self, event: Charged) -> None:
        """Append a line about a release, and return when it is on disk."""
        with self._releases.open("a") as file:
            file.write(event.line)
            file.flush()
            os.fsync(file.fileno())

    def add(self, ended: RoundEnded) -> None:
        """Append the row of a round."""
        with self._rounds.open("a") as file:
            file.write(ended.line)

    @property
    def _identity(self) -> Path:
        return self.place / "identity.json"

    @property
    def _rounds(self) -> Path:
        return self.place / ROUNDS

    @property
    def _releases(self) -> Path:
        return self.place / "releases.jsonl"

    @property
    def _unread(self) -> str:
        return f"{self._identity.name} cannot be read, and there is no checkpoint"

    def _unknown_releases(self, why: str) -> OutputError:
        return OutputError(
            f"Cannot read the charged releases from {self._releases} ({why}), so the run's privacy cost is unknown."
            f" {self._new_run}"
        )

    @property
    def _new_run(self) -> str:
        return f"Start a new run with `raydr run {self.folder / SCENARIO}`."

    def _files(self) -> list[Path]:
        return sorted(self.place.glob("*.npz"))

    def _begun(self, identity: Identity) -> str | None:
        """Return the name of the run after checking its identity; None if identity.json cannot be read.

        Checkpoints also have the digest of the identity. Raises as :meth:`Identity.require`.
        """
        try:
            described = json.loads(self._identity.read_text())
            run = str(described.pop("run"))
            was = Identity(**{**described, "paths": tuple(described["paths"])})
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
        identity.require(was)
        return run

    def _read_releases(self) -> tuple[str, ...]:
        """Return all complete lines about releases. A line that was cut off precedes its request: nothing is lost."""
        try:
            lines = self._releases.read_text().splitlines(keepends=True)
            whole = tuple(line for line in lines if line.endswith("\n"))
            by_name(whole)
        except (OSError, ValueError, RaydrError) as error:
            raise self._unknown_releases(str(error)) from error
        if len(whole) < len(lines):
            self._write(self._releases, "".join(whole))
        return whole

    def _resumption(
        self,
        path: Path,
        rooted: Callable[[str], RootedRun],
        damaged: tuple[str, ...],
        released: tuple[str, ...],
    ) -> Resumption:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise RunError(f"it cannot be read ({error.strerror})") from error
        checkpoint = Checkpoint.from_bytes(content)
        rounds = self._read_rounds(checkpoint.round)
        if History.of(ended.line for ended in rounds) != checkpoint.history:
            raise RunError(f"the rounds before it, in {self._rounds.name}, are damaged")
        if History.of(released[: checkpoint.released.lines]) != checkpoint.released:
            raise self._unknown_releases(f"those before checkpoint {path.name} are damaged")
        return Resumption(content, rounds, damaged, rooted(checkpoint.run), released)

    def _read_rounds(self, until: int) -> tuple[RoundEnded, ...]:
        """Return the rows of rounds up to a number; for a repeated round, the last row."""
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
                continue  # cut off; the history detects a missing row
            if isinstance(ended.round, int) and ended.round <= until:
                rows[ended.round] = ended
        return tuple(rows[number] for number in sorted(rows))

    def _write(self, path: Path, content: str) -> None:
        """Write a file under a temporary name, and rename it when it is on disk."""
        unfinished = self.place / "unfinished"
        with unfinished.open("w") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
