"""What the server of a run sees of noise, and the noise itself, which tests alone know."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from raydr.arrays import Float64Array
from raydr.federation import host
from raydr.federation.exchange import Exchange
from raydr.federation.wire import Call, SumCall, weight_of
from raydr.privacy.gaussian import GaussianNoise


@dataclass(frozen=True)
class Answer:
    """One client's answer under noise.

    Attributes
    ----------
    where : str
        Run and start.
    call, client : int
        Which call, and who answered.
    released, noise : (values,) float64
        As it left the client, and what of it is noise.
    kind : str
        What was asked for.
    weight : int
        Of the answer in its sum.
    """

    where: str
    call: int
    client: int
    released: Float64Array
    noise: Float64Array
    kind: str
    weight: int = 1


@dataclass(frozen=True)
class Sum:
    """A sum that a server learnt: of whom, and its bits."""

    clients: tuple[int, ...]
    bits: bytes


@dataclass
class Seen:
    """All that the servers of some runs saw.

    Attributes
    ----------
    where : str
        Run and start that is under way.
    """

    where: str = ""
    answers: list[Answer] = field(default_factory=list)
    sums: dict[tuple[str, int], Sum] = field(default_factory=dict)

    def of(self, where: str, kind: str) -> list[Sum]:
        """Sums of a kind in one start, in order."""
        calls = sorted(
            {answer.call for answer in self.answers if (answer.where, answer.kind) == (where, kind)}
        )
        return [self.sums[where, call] for call in calls if (where, call) in self.sums]

    def shared_draws(self) -> Iterator[tuple[Answer, Answer, float]]:
        """Pairs of answers whose noise is one draw, at whatever scale, and the correlation of the two."""
        by_size: dict[int, list[Answer]] = {}
        for answer in self.answers:
            if np.any(answer.noise):
                by_size.setdefault(answer.noise.size, []).append(answer)
        for size, answers in by_size.items():
            drawn = np.stack([answer.noise / np.linalg.norm(answer.noise) for answer in answers])
            together = np.abs(drawn @ drawn.T)
            for one, other in np.argwhere(np.triu(together > 8.0 / np.sqrt(size), 1)):
                yield answers[one], answers[other], float(together[one, other])

    def require_equal(self) -> int:
        """Assert that what shares a draw is equal to the bit, also the sums that it is in; return how many pairs."""
        count = 0
        for one, other, correlation in self.shared_draws():
            count += 1
            told = f"{one.kind}: {one.where}, {one.call} and {other.where}, {other.call}: {correlation:.6f}"
            assert one.client == other.client, f"two clients share noise in {told}"
            assert one.released.tobytes() == other.released.tobytes(), f"noise at two scales in {told}"
            sums = self.sums.get((one.where, one.call)), self.sums.get((other.where, other.call))
            assert None in sums or sums[0] == sums[1], f"one summand in two sums in {told}"
        return count


@contextmanager
def seen_by_servers(patch: pytest.MonkeyPatch) -> Iterator[Seen]:
    """Write down what clients' hosts cover and what servers learn of it, inside a ``with`` block."""
    seen, clean, blurred = Seen(), host.covered, GaussianNoise.cover
    total = Exchange.total

    def covered(reply: Any, client: Any, told: Any, call: Call) -> Any:
        changed = clean(reply, client, told, call)
        mechanism = told.mechanism
        if mechanism is not None and mechanism.on != "data":
            names = list(reply.quantities(mechanism.on, told))
            values, noisy = (_flat(getattr(each, name) for name in names) for each in (reply, changed))
            weight = weight_of(len(client.rows), call.weighting) if isinstance(call, SumCall) else 1
            kind = type(reply).__name__
            seen.answers.append(
                Answer(seen.where, call.number, client.index, noisy, noisy - values, kind, weight)
            )
        return changed

    def cover(self: GaussianNoise, quantity: Any, stream: Any) -> Any:
        noisy = blurred(self, quantity, stream)
        if self.on == "data":
            noise = (noisy - quantity.values).ravel()
            answer = Answer(seen.where, -len(seen.answers), -1, noisy.ravel(), noise, "records")
            seen.answers.append(answer)
        return noisy

    def learnt(self: Exchange, request: Any, weighting: Any) -> Any:
        call, found = total(self, request, weighting)
        mechanism = request.mechanism
        if mechanism is not None and mechanism.on != "data":
            reply = found.decoded(call)
            sums = Sum(
                tuple(sorted(found.clients)), _flat(getattr(reply, name) for name in found.totals).tobytes()
            )
            seen.sums[seen.where, call.number] = sums
        return call, found

    with patch.context() as patched:
        patched.setattr(host, "covered", covered)
        patched.setattr(GaussianNoise, "cover", cover)
        patched.setattr(Exchange, "total", learnt)
        yield seen


def _flat(values: Iterable[Any]) -> Float64Array:
    return np.concatenate([np.asarray(value, np.float64).ravel() for value in values])


def cancelled(one: Sum, other: Sum, scale: float) -> Float64Array:
    """What is left of the sums of one value under one noise, ``scale`` times as large in the other: the value."""
    first, second = np.frombuffer(one.bits), np.frombuffer(other.bits)
    return np.asarray((scale * first - second) / (scale - 1.0))


def pairs(items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """All pairs of items, each once."""
    return itertools.combinations(items, 2)
