"""Loops of rounds: their numbers, the state that one round passes to the next, and checkpoints between them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from raydr.errors import RunError
from raydr.federation.checkpoint import Checkpoint, History, LoopState
from raydr.federation.context import Context
from raydr.federation.loop import Loop, Stateless
from raydr.federation.meter import Meter
from raydr.federation.releases import Released
from raydr.journal import Charged, CheckpointTaken


class Rounds:
    """The rounds of a run.

    Parameters
    ----------
    context : Context
        Seed and name of the run, and rounds between checkpoints.
    meter : Meter
        Counts each round and has the ledger.
    resume : Checkpoint or None
        Checkpoint to continue from.
    released : sequence of str
        Lines of all charged releases before this start of the run.

    Attributes
    ----------
    number : int
        Rounds started so far.
    running : bool
        Whether a round is running.

    Raises
    ------
    RunError
        If the checkpoint belongs to another run.
    """

    def __init__(
        self, context: Context, meter: Meter, resume: Checkpoint | None, released: Sequence[str]
    ) -> None:
        if resume is not None and (resume.run, resume.seed) != (context.run, context.seed):
            raise RunError(
                "the checkpoint belongs to another run: its scenario, seed, data or raydr version differs. Start"
                " the run again."
            )
        self._context, self._meter, self._resume = context, meter, resume
        self._history = resume.history if resume is not None else History()
        self._released = History.of(released)
        self._loops: list[LoopState] = []
        self.number = 0
        self.running = False

    def run(self, count: int, loop: Loop[Any] | None) -> Iterator[int]:
        """Yield the numbers of ``count`` rounds, and journal each; see :meth:`Federation.rounds`."""
        loop = loop if loop is not None else Loop(Stateless())
        index, reached = len(self._loops), LoopState(0, self.number, loop.arrays())
        if self._resume is not None and index < len(self._resume.loops):
            reached = self._resume.loops[index]
            loop.restore(reached.state)
            self.number = reached.round
            if index == len(self._resume.loops) - 1:
                charges = self._meter.ledger.charges
                self._meter.ledger = self._resume.restored_ledger()
                self._meter.ledger.charges = charges
                if self._meter.clock is not None:
                    self._meter.clock.seconds = self._resume.network_seconds
        self._loops.append(reached)
        while not reached.ended and reached.done < count:
            self.number += 1
            self._meter.begin_round()
            self.running = True
            started = time.perf_counter()
            left = True
            try:
                yield self.number
                left = False
            finally:
                # This also runs if the method breaks out of its loop: that round is its last.
                self.running = False
                ended = self._meter.end_round(self.number, time.perf_counter() - started)
                self._history = self._history.then(ended.line)
                done = reached.done + 1
                reached = LoopState(done, self.number, loop.arrays(), left or done == count)
                self._loops[index] = reached
            self._meter.journal.progress(reached.done, count)
            if self._context.checkpoint_every and (
                reached.done % self._context.checkpoint_every == 0 or reached.ended
            ):
                self._meter.journal.tell(CheckpointTaken(self.number, self._checkpoint().to_bytes()))

    def write_down(self, release: Released) -> None:
        """Append a charged release to the run's history and send it to the journal, which stores it."""
        self._released = self._released.then(release.line)
        self._meter.journal.tell(Charged(release.line))

    def _checkpoint(self) -> Checkpoint:
        return Checkpoint(
            run=self._context.run,
            seed=self._context.seed,
            loops=tuple(self._loops),
            ledger=tuple(self._meter.ledger.entries.values()),
            history=self._history,
            released=self._released,
            network_seconds=self._meter.clock.seconds if self._meter.clock is not None else 0.0,
        )
