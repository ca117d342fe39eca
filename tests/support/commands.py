"""The command raydr as a process that can be interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Sequence

from processes import TOKEN, all_gone, as_from_a_terminal, processes_of

RAYDR = [sys.executable, "-m", "raydr"]
LONG = 10**7
"""Rounds or iterations that no test waits for."""


class Command:
    """The command in a session of its own, as a terminal starts it, until it and all that it started are gone."""

    def __init__(self, *arguments: str, program: Sequence[str] = RAYDR) -> None:
        self.token = uuid.uuid4().hex
        self.process = subprocess.Popen(
            as_from_a_terminal([*program, *arguments]),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, TOKEN: self.token},
            start_new_session=True,
        )

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        for straggler in processes_of(self.token):
            straggler.kill()
        self.process.communicate()

    def wait_for(self, stage: str) -> None:
        """Wait until the command has said that a stage is over."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if line.startswith(f"{stage}:"):
                return

    def send(self, number: signal.Signals, *, to_group: bool = False) -> None:
        (os.killpg if to_group else os.kill)(self.process.pid, number)

    def end(self, timeout_s: float = 120) -> tuple[int, str, str]:
        """Exit status, standard output and standard error, once nothing is left of it."""
        out, err = self.process.communicate(timeout=timeout_s)
        assert all_gone(self.token), processes_of(self.token)
        return self.process.returncode, out, err
