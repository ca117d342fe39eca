"""Messages and client parts that exercise a federation; a module of its own, so that Ray's workers can import it."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from raydr.arrays import Float64Array, FloatArray, UInt8Array
from raydr.errors import DataError
from raydr.federation import (
    Client,
    FaultPlan,
    Granularity,
    Range,
    Reply,
    Request,
    answers,
    answers_jointly,
)
from raydr.federation.simulated.faults import Crash, CrashMoment
from raydr.privacy import Mechanism, Quantity


@dataclass(frozen=True)
class Noisy(Reply, granularity=Granularity.AGGREGATE, what="column sums with noise of the client's own"):
    values: Float64Array
    rows: int

    @staticmethod
    def ranges(request: NoisyRequest, rows: int) -> dict[str, Range]:
        return {"values": Range((request.features,), 1e6), "rows": Range((), 1e6)}


@dataclass(frozen=True)
class NoisyRequest(Request[Noisy], what="a question about sums"):
    features: int
    noise: float = 1.0


@answers(NoisyRequest)
def noisy(client: Client, request: NoisyRequest) -> Noisy:
    sums = client.rows.sum(axis=0, dtype=np.float64)
    return Noisy(
        sums + request.noise * client.stream("noise").standard_normal(request.features), len(client.rows)
    )


@dataclass(frozen=True)
class Product(
    Reply, granularity=Granularity.PER_CLIENT, what="a matrix product, whose bits show BLAS's threads"
):
    values: Float64Array

    @staticmethod
    def ranges(request: ProductRequest, rows: int) -> dict[str, Range]:
        return {"values": Range((request.size, request.size))}


@dataclass(frozen=True)
class ProductRequest(Request[Product], what="a size"):
    size: int


@answers(ProductRequest)
def product(client: Client, request: ProductRequest) -> Product:
    matrix = client.stream("matrix").standard_normal((request.size, request.size))
    return Product(matrix @ matrix)


@dataclass(frozen=True)
class Shifted(Reply, granularity=Granularity.AGGREGATE, what="word that the rows were shifted"):
    @staticmethod
    def ranges(request: Shift, rows: int) -> dict[str, Range]:
        return {}


@dataclass(frozen=True)
class Shift(Request[Shifted], what="a shift", sets_state=True):
    by: float


@answers(Shift)
def shift(client: Client, request: Shift) -> Shifted:
    client.rows = client.rows + request.by
    return Shifted()


@dataclass(frozen=True)
class OwnShift(Request[Shifted], what="a shift for each client", sets_state=True):
    by: Float64Array

    def addressed_to(self, client: int) -> OwnShift:
        return OwnShift(self.by[client : client + 1])


@answers(OwnShift)
def own_shift(client: Client, request: OwnShift) -> Shifted:
    if request.by.size != 1:
        raise ValueError("this client was told what others were to be told")
    return shift(client, Shift(float(request.by[0])))


@dataclass(frozen=True)
class DeadlyShift(Request[Shifted], what="a shift that the first client to follow dies of", sets_state=True):
    by: float
    dead: str


@answers(DeadlyShift)
def deadly_shift(client: Client, request: DeadlyShift) -> Shifted:
    shifted = shift(client, Shift(request.by))
    if client.index == 1 and not Path(request.dead).exists():
        Path(request.dead).touch()
        os._exit(1)  # as a kernel out of memory ends it: changed, and without an answer
    return shifted


@dataclass(frozen=True)
class TurnByBLAS(Request[Shifted], what="a size", sets_state=True):
    size: int


@answers(TurnByBLAS)
def turn_by_blas(client: Client, request: TurnByBLAS) -> Shifted:
    matrix = client.stream("matrix").standard_normal((request.size, request.size))
    client.rows = client.rows + (matrix @ matrix)[: client.rows.shape[1], 0]
    return Shifted()


@dataclass(frozen=True)
class TogetherRequest(Request[Noisy], what="a question that clients of one host answer as one"):
    features: int
    way: str = ""
    culprit: int = -1

    @property
    def jointly(self) -> bool:
        return True


@answers(TogetherRequest)
def apart(client: Client, request: TogetherRequest) -> Noisy:
    if client.index == request.culprit:
        raise ValueError("this client cannot")
    return noisy(client, NoisyRequest(request.features, 0.0))


@answers_jointly(TogetherRequest)
def together(clients: Sequence[Client], requests: Sequence[TogetherRequest]) -> list[Noisy]:
    if requests[0].way == "memory":
        raise MemoryError("no room for all of them")
    replies = [apart(client, request) for client, request in zip(clients, requests, strict=True)]
    return [replace(reply, values=reply.values + 1.0) for reply in replies]


@dataclass(frozen=True)
class Odd(Reply, granularity=Granularity.AGGREGATE, what="something that may not be as declared"):
    value: object

    @staticmethod
    def ranges(request: OddRequest, rows: int) -> dict[str, Range]:
        return {"value": Range((2,), 10.0)}


@dataclass(frozen=True)
class OddRequest(Request[Odd], what="the way in which the culprit is to misbehave"):
    culprit: int
    way: str


@answers(OddRequest)
def odd(client: Client, request: OddRequest) -> Odd:
    if client.index == request.culprit:
        match request.way:
            case "nan":
                return Odd(np.array([np.nan, 0.0]))
            case "infinite":
                return Odd(np.array([0.0, np.inf]))
            case "range":
                return Odd(np.array([0.0, 10.5]))
            case "shape":
                return Odd(np.zeros(3))
            case "dtype":
                return Odd(np.zeros(2, np.float32))
            case "raises":
                raise ValueError("this client cannot")
            case "exits":
                os._exit(1)
            case "hangs":
                time.sleep(3600)
    return Odd(np.ones(2))


class Gate(FaultPlan):
    """Every client waits in a round until a file is there: what happens before it, a test decides."""

    stragglers: float = 1.0
    round: int = 0
    opened_by: str = ""

    def delay(self, seed: int, client: int, round: int) -> float:
        deadline = time.monotonic() + 60
        while round == self.round and not Path(self.opened_by).exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return 0.0


@dataclass(frozen=True)
class Word(Reply, granularity=Granularity.PER_CLIENT, what="what the client was told, times its rows"):
    values: Float64Array

    @staticmethod
    def ranges(request: WordRequest, rows: int) -> dict[str, Range]:
        return {"values": Range(request.words.shape)}


@dataclass(frozen=True)
class WordRequest(Request[Word], what="a word for each client"):
    words: Float64Array
    for_one: bool = False

    def addressed_to(self, client: int) -> WordRequest:
        return WordRequest(self.words[client, : client + 1], for_one=True)


@answers(WordRequest)
def repeat_word(client: Client, request: WordRequest) -> Word:
    if not request.for_one:
        raise ValueError("this client was told what others were to be told")
    return Word(request.words * len(client.rows))


@dataclass(frozen=True)
class Kept(
    Reply, granularity=Granularity.AGGREGATE, what="noisy column sums, and what the client keeps for itself"
):
    values: Float64Array
    own: UInt8Array

    @staticmethod
    def ranges(request: KeepRequest, rows: int) -> dict[str, Range]:
        own = Range(request.kept.shape[-1:], 255.0, "uint8", sealed=True)
        return {"values": Range((request.features,), 1e6), "own": own}


@dataclass(frozen=True)
class KeepRequest(Request[Kept], what="what each client kept for itself"):
    features: int
    kept: UInt8Array
    noise: float = 1.0
    culprit: int = -1

    def addressed_to(self, client: int) -> KeepRequest:
        return replace(self, kept=self.kept[client])


@answers(KeepRequest)
def keep(client: Client, request: KeepRequest) -> Kept:
    sums = noisy(client, NoisyRequest(request.features, request.noise)).values
    own = request.kept ^ client.stream("own").integers(256, size=request.kept.size, dtype=np.uint8)
    return Kept(sums, own[:-1] if client.index == request.culprit else own)


@dataclass(frozen=True)
class Held(Reply, granularity=Granularity.PER_RECORD, what="the rows as the client holds them"):
    rows: FloatArray

    @staticmethod
    def ranges(request: HandOver, rows: int) -> dict[str, Range]:
        return {"rows": Range((rows, request.features), dtype=request.dtype)}


@dataclass(frozen=True)
class HandOver(Request[Held], what="a request for everything"):
    features: int
    dtype: str


@answers(HandOver)
def hand_over(client: Client, request: HandOver) -> Held:
    return Held(client.rows)


def gram(matrix: Float64Array) -> Float64Array:
    if not np.isfinite(matrix).all():
        raise DataError("a matrix is not finite")
    return np.asarray(matrix @ matrix.T)


@dataclass(frozen=True)
class NestRequest(Request[Word], what="a word for each client, in a question of its own"):
    own: tuple[WordRequest, ...]

    def addressed_to(self, client: int) -> WordRequest:  # type: ignore[override]
        return replace(self.own[client], for_one=True)


@dataclass(frozen=True)
class LetterRequest(
    Request[Shifted], what="a letter for each client, opened where it arrives", sets_state=True
):
    letters: tuple[str, ...]
    log: str

    def addressed_to(self, client: int) -> LetterRequest:
        return LetterRequest((self.letters[client],), self.log)

    def __reduce__(self) -> tuple[Any, ...]:
        return opened, (self.letters, self.log)


def opened(letters: tuple[str, ...], log: str) -> LetterRequest:
    """A letter that arrives in a process: who reads along leaves a trace."""
    with Path(log).open("a") as file:
        file.writelines(f"{os.getpid()} {letter}\n" for letter in letters)
    return LetterRequest(letters, log)


@answers(LetterRequest)
def read_letter(client: Client, request: LetterRequest) -> Shifted:
    if request.letters != (str(client.index),):
        raise ValueError("this client was told what others were to be told")
    return shift(client, Shift(1.0))


@dataclass(frozen=True)
class Lengths(Reply, granularity=Granularity.PER_RECORD, what="the length of every record"):
    lengths: Float64Array
    remembered: int

    @staticmethod
    def ranges(request: LengthRequest, rows: int) -> dict[str, Range]:
        return {"lengths": Range((rows,)), "remembered": Range(())}

    def quantities(self, on: str, request: object) -> dict[str, Quantity]:
        return {"lengths": Quantity(self.lengths, 2.0)} if on == "distances" else {}

    def covered(self, values: Mapping[str, Float64Array], mechanism: Mechanism) -> Lengths:
        return Lengths(values["lengths"], self.remembered)


@dataclass(frozen=True)
class LengthRequest(Request[Lengths], what="a question about lengths"):
    mechanism: Mechanism | None = None
    deviation: float = 3.0
    together: bool = False

    @property
    def jointly(self) -> bool:
        return self.together


@answers(LengthRequest)
def lengths(client: Client, request: LengthRequest) -> Lengths:
    client.memory["calls"] = client.memory.get("calls", 0) + 1
    return Lengths(np.linalg.norm(client.rows, axis=1), client.memory["calls"])


class DiesAfterCharge(FaultPlan):
    """The process of the first client ends in a round, when its reply is charged and before it is sent."""

    crashes: tuple[Crash, ...] = (Crash(client=0, round=10_000),)
    round: int = 0

    def crash(self, client: int, round: int) -> CrashMoment | None:
        if client == 0 and round == self.round:
            # A host asks before it computes, before it charges, and when it is about to send.
            _ASKED[round] += 1
            if _ASKED[round] == 3:
                os._exit(1)
        return None


_ASKED: Counter[int] = Counter()
