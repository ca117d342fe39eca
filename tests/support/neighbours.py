"""What a run on neighbouring data tells others, where all that it releases under a claim is told alike.

A run is recorded: every message to and from the server as it crosses the wire, what else the server is told (plan, run
name, settings), what it makes of that, checkpoints, rounds, and the part of the run folder that a claim covers. What
mechanisms with a claim let out is put on a tape. A run on neighbouring data is then played from that tape: whatever it
releases under a claim is what the other run released. The rest must be equal to the bit: what differs is made of
records, and of no charged release.

On the tape is also what the server cannot read (sealed, or under pads), which a test of its own shows to be random to
it; and, where ``strict`` is of sums alone, what is posted bare of each record, which the run says.
"""

from __future__ import annotations

import dataclasses
import json
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import raydr.methods.serving
import raydr.scenarios.running.backend
import raydr.scenarios.running.start
from raydr.federation.failures import Failure
from raydr.federation.host import ClientHost, protection_of
from raydr.federation.inline import InlineTransport
from raydr.federation.transcript import Transcript
from raydr.journal import CheckpointTaken, Event, RoundEnded
from raydr.privacy.ledger import Granularity, Public
from raydr.privacy.mechanism import MECHANISMS
from raydr.privacy.secrets import Secret
from raydr.report.run.released import covered, write_released
from raydr.runfolder import records
from raydr.scenarios.runner import run
from raydr.scenarios.running.backend import InlineBackend
from raydr.scenarios.schema.reading import read
from raydr.settings import Settings

DIGEST = re.compile(r"[0-9a-f]{24,}")
"""What a key may be derived for that depends on the rows; what follows is random to whoever lacks the secret."""


@dataclass
class Tape:
    """What runs release: recorded by the first, played to all others."""

    released: list[Any] = field(default_factory=list)
    position: int | None = None

    def rewind(self) -> None:
        """From now on, play."""
        self.position = 0

    def passed(self, value: Any, like: Callable[[Any], Any]) -> Any:
        """A release: as it is while recording, else what was released then, if it looks the same."""
        if self.position is None:
            self.released.append(value)
            return value
        self.position += 1
        if self.position > len(self.released) or like(self.released[self.position - 1]) != like(value):
            return value
        return self.released[self.position - 1]


@dataclass
class Record:
    """All that others than the data's owner came to see of a run."""

    told: list[tuple[str, Any]] = field(default_factory=list)

    def note(self, what: str, content: Any) -> None:
        """Write down something that left."""
        self.told.append((what, spelt(content)))

    def differences(self, other: Record) -> list[str]:
        """Where two runs told something else, in words; the first of each sort."""
        found: dict[str, str] = {}
        for one, two in zip(self.told, other.told, strict=False):
            if one[0] != two[0]:
                return [*found.values(), f"{one[0]} came where the other has {two[0]}"]
            path = _first_difference(one[1], two[1])
            if path is not None:
                found.setdefault(one[0], f"{one[0]}{path}")
        if len(self.told) != len(other.told):
            found["count"] = f"{len(self.told)} messages, and {len(other.told)}"
        return list(found.values())


def spelt(content: Any) -> Any:
    """Plain values that are equal only where what leaves is, to the bit, type and shape included.

    Raises
    ------
    TypeError
        For what is not known: nothing may pass uncompared.
    """
    match content:
        case None | bool() | int() | str() | bytes():
            return content
        case float():
            return float.hex(content)
        case Enum():
            return content.value
        case np.generic():
            return (str(content.dtype), content.tobytes())
        case np.ndarray():
            return (str(content.dtype), content.shape, content.tobytes())
        case Mapping():
            return {str(key): spelt(value) for key, value in content.items()}
        case set() | frozenset():
            return sorted(map(spelt, content))
        case Settings():
            return (type(content).__name__, spelt(content.model_dump()))
        case type():
            return content.__name__
    if is_dataclass(content):
        fields = {each.name: spelt(getattr(content, each.name)) for each in dataclasses.fields(content)}
        return (type(content).__name__, fields)
    if isinstance(content, Sequence):
        return [spelt(value) for value in content]
    raise TypeError(f"a {type(content).__name__} is told, which nobody knows how to compare")


def _first_difference(one: Any, two: Any, path: str = "") -> str | None:
    if one == two:
        return None
    if isinstance(one, dict) and isinstance(two, dict):
        for key in dict.fromkeys([*one, *two]):
            if one.get(key) != two.get(key):
                return _first_difference(one.get(key), two.get(key), f"{path}.{key}")
    if isinstance(one, list | tuple) and isinstance(two, list | tuple) and len(one) == len(two):
        for index, (left, right) in enumerate(zip(one, two, strict=True)):
            if left != right:
                return _first_difference(left, right, path if isinstance(one, tuple) else f"{path}[{index}]")
    return f"{path}: {str(one)[:60]} and {str(two)[:60]}"


def recorded(content: Mapping[str, Any], out: Path, tape: Tape) -> Record:
    """Run a scenario in this process, each client by itself, and return what was told."""
    record = Record()
    with pytest.MonkeyPatch.context() as patch:
        _keep_secrets(patch)
        _tape_releases(patch, tape, strict=content["privacy"]["strict"])
        _listen(patch, record, tape)
        folder = run(read(dict(content)), out=out, listener=lambda event: _heard(record, event), report=False)
    for name, content in released(folder).items():
        record.note(name, content)
    return record


def _keep_secrets(patch: pytest.MonkeyPatch) -> None:
    """What follows from a secret and from a digest of the rows follows from the secret: others cannot tell."""
    key = Secret.key

    def of_no_rows(self: Secret, *names: str | int) -> bytes:
        return key(self, *(DIGEST.sub("digest", name) if isinstance(name, str) else name for name in names))

    patch.setattr(Secret, "key", of_no_rows)
    patch.setattr(secrets, "token_hex", lambda size=8: "0" * 2 * size)
    patch.setattr(time, "perf_counter", lambda: 0.0)


def _tape_releases(patch: pytest.MonkeyPatch, tape: Tape, *, strict: bool | str) -> None:
    """What a mechanism lets out; and, where ``strict`` is of sums alone, what is posted bare of each record."""
    for mechanism in set(MECHANISMS.values()):
        cover = mechanism.cover

        def taped(self: Any, quantity: Any, stream: Any, cover: Any = cover) -> Any:
            noisy = cover(self, quantity, stream)
            # By a level nothing is claimed.
            return noisy if self.by_level else tape.passed(noisy, lambda array: array.shape)

        patch.setattr(mechanism, "cover", taped)
    reply_of = ClientHost._reply

    def posted(self: ClientHost, client: Any, boundary: Any) -> Any:
        reply, told = reply_of(self, client, boundary), boundary.call.request_for(client.index)
        if isinstance(reply, Failure) or reply.stays:
            return reply
        bare = not reply.public and not protection_of(client, told)
        posted = strict == "sums" and bare and reply.granularity is Granularity.PER_RECORD
        return tape.passed(reply, type) if posted or reply.public is Public.SEALED else reply

    patch.setattr(ClientHost, "_reply", posted)


def _listen(patch: pytest.MonkeyPatch, record: Record, tape: Tape) -> None:
    ask, sum_up, serve = InlineTransport.ask, InlineTransport.sum, raydr.methods.serving.serve

    def asked(self: InlineTransport, call: Any) -> Any:
        record.note(f"request {type(call.request).__name__}", call)
        answers = ask(self, call)
        for answer in answers:
            kept = not isinstance(answer, Failure) and answer.reply.stays
            left = dataclasses.replace(answer, reply=type(answer.reply)) if kept else answer
            record.note(f"answer to {type(call.request).__name__}", left)
        return answers

    def summed(self: InlineTransport, call: Any) -> Iterator[Any]:
        record.note(f"request {type(call.request).__name__}", call)
        for part in sum_up(self, call):
            if type(call.request).padded:
                part = tape.passed(part, type)
            record.note(f"summand for {type(call.request).__name__}", part)
            yield part

    def served(transport: Any, clients: int, plan: Any, **more: Any) -> Any:
        record.note("plan", {**vars(plan), "clients": clients})
        found = serve(transport, clients, plan, **more)
        outcome = found.outcome
        record.note("model", outcome.model)
        record.note("notes", outcome.notes)
        record.note("stress", outcome.stress)
        record.note("snapshots", outcome.snapshots)
        record.note("scaling", found.prepared.scaling)
        if outcome.published:
            record.note("map", [outcome.embedding, outcome.clusters])
        return found

    patch.setattr(InlineTransport, "ask", asked)
    patch.setattr(InlineTransport, "sum", summed)
    patch.setattr(raydr.scenarios.running.backend, "serve", served)
    alone = lambda **more: InlineBackend(transcript=Transcript(), **more)  # noqa: E731
    patch.setattr(raydr.scenarios.running.start, "InlineBackend", alone)


def _heard(record: Record, event: Event) -> None:
    """Rounds and checkpoints, which the coordinator makes; the rest is of the one process that runs everything here."""
    if isinstance(event, RoundEnded | CheckpointTaken):
        record.note(type(event).__name__, event)


def released(folder: Path) -> dict[str, Any]:
    """What a run hands out, by file: as ``raydr report --released`` writes it, or would if the run had an epsilon.

    Raises
    ------
    AssertionError
        If nobody has said of a file of the run folder whether a claim covers it.
    """
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    strange = names - set(records.RELEASED) - set(records.KEPT)
    assert not strange, f"{sorted(strange)}: in neither of records.RELEASED and records.KEPT"
    if json.loads((folder / records.PRIVACY).read_text())["epsilon"] is not None:
        handed_out = write_released(folder).parent
        return {
            path.relative_to(handed_out).as_posix(): path.read_bytes()
            for path in sorted(handed_out.rglob("*"))
            if path.is_file()
        }
    return {
        name: covered(folder / name, fields) for name, fields in records.RELEASED.items() if name in names
    }
