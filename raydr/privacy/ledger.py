"""The ledger: every kind of message that crossed the boundary between a client and the server.

The federation writes it where messages cross, so a method cannot send what the ledger does not see. It says what
happened; what that costs is for accountants and attacks to say.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import PlainValidator, TypeAdapter

from raydr.privacy.accounting import Charge, epsilon_of
from raydr.privacy.mechanism import Mechanism, mechanism_of

Direction = Literal["up", "down", "simulation-only"]


class Granularity(StrEnum):
    """How finely a message speaks of the data behind it."""

    PER_RECORD = "per-record"
    PER_CLIENT = "per-client"
    AGGREGATE = "aggregate"


class Public(StrEnum):
    """Why a message costs no privacy: what neighbouring data have in common, or what the server cannot read."""

    SHAPES = "shapes"
    EMPTY = "empty"
    RANDOM = "random"
    SEALED = "sealed"
    APART = "apart"


class Tells(StrEnum):
    """What a message for each record says of it."""

    VALUES = "values"
    """The record itself."""
    DISTANCES = "distances"
    """How far it is from points that the server knows."""
    PROJECTIONS = "projections"
    """Where it lies along axes that the server knows."""
    PLACES = "places"
    """Its place on the map."""


@dataclass(kw_only=True, frozen=True)
class Fixed:
    """What messages for each record, and what was asked, fix of the records by linear equations alone.

    Attributes
    ----------
    records : int
        Of which the messages speak.
    exact : int
        How many of them are fixed feature by feature, but for a thousandth of their distance from the middle.
    dimensions, features : int
        In how many dimensions each is fixed, and how many there are.
    points : int
        To which distances were told, or along which axes.
    among : bool
        Whether the distances between the records of a client are told too.
    """

    records: int
    exact: int
    dimensions: int
    features: int
    points: int
    among: bool = False

    def __add__(self, other: Fixed) -> Fixed:
        """Of the records of both."""
        return Fixed(
            records=self.records + other.records,
            exact=self.exact + other.exact,
            dimensions=max(self.dimensions, other.dimensions),
            features=max(self.features, other.features),
            points=max(self.points, other.points),
            among=self.among or other.among,
        )


@dataclass(kw_only=True, frozen=True)
class Entry:
    """All messages of one kind, in one direction, under one protection.

    Attributes
    ----------
    kind : str
        Name of the message type.
    what : str
        Its content in one sentence.
    direction : {"up", "down", "simulation-only"}
        From a client, to a client, or something that exists only because this is a simulation.
    granularity : Granularity
        How finely they speak of the data.
    seen_by : str
        Who can read the messages.
    count, bytes : int
        Messages of all clients together, and their payload.
    protection : Mechanism or None
        What the clients' hosts did to them before they were sent; None where nothing was.
    epsilon, delta : float or None
        Differential privacy claimed for them; None where none is claimed.
    public : Public or None
        Why they cost no privacy; None where they do.
    keyed : bool
        Whether they speak of rows under an isometry key, which is no protection that an accountant knows.
    secure : bool
        Whether the server learnt their sum alone, by secure aggregation.
    tells : Tells or None
        What they say of each record; None where they are not for each record, or their type does not say.
    fixed : Fixed or None
        What they fix of the records, as the server that has them can reckon; None where their type does not say.
    """

    kind: str
    what: str
    direction: Direction
    granularity: Granularity
    seen_by: str
    count: int
    bytes: int
    protection: Annotated[Mechanism, PlainValidator(mechanism_of)] | None = None
    epsilon: float | None = None
    delta: float | None = None
    public: Public | None = None
    keyed: bool = False
    secure: bool = False
    tells: Tells | None = None
    fixed: Fixed | None = None

    @property
    def exposes_records(self) -> bool:
        """Whether each record's own values left its client with nothing that promises to guard them.

        Noise by itself promises nothing: how much there is of it, its words say.
        """
        return self.direction == "up" and self.granularity == Granularity.PER_RECORD and self.epsilon is None

    def as_dict(self) -> dict[str, Any]:
        """Return it as the plain values of ``ledger.json``; :func:`read_entries` is the way back."""
        return {
            name: value.model_dump(mode="json")
            if isinstance(value, Mechanism)
            else asdict(value)
            if isinstance(value, Fixed)
            else value
            for name, value in vars(self).items()
        }


@dataclass
class Ledger:
    """Entries in the order in which their kind was first seen."""

    entries: dict[tuple[str, str, str, str, Mechanism | None], Entry] = field(default_factory=dict)
    charges: dict[Charge, int] = field(default_factory=dict)

    def record(self, entry: Entry) -> None:
        """Add messages; entries that differ in nothing but count and bytes become one."""
        key = (entry.kind, entry.direction, entry.granularity, entry.seen_by, entry.protection)
        before = self.entries.get(key)
        if before is not None:
            entry = replace(before, count=before.count + entry.count, bytes=before.bytes + entry.bytes)
        self.entries[key] = entry

    def fix(self, kind: str, protection: Mechanism | None, fixed: Fixed) -> None:
        """Add what one call's messages of a kind fix of the records; of several calls, that of the most stays."""
        for key, entry in self.entries.items():
            if (entry.kind, entry.direction, entry.protection) == (kind, "up", protection) and (
                entry.fixed is None or (fixed.exact, fixed.records) > (entry.fixed.exact, entry.fixed.records)
            ):
                self.entries[key] = replace(entry, fixed=fixed)

    def charge(self, charge: Charge, count: int = 1) -> None:
        """Add releases that a mechanism with a claim covers; a negative count takes them off."""
        total = self.charges.get(charge, 0) + count
        if total:
            self.charges[charge] = total
        else:
            self.charges.pop(charge, None)

    def costs(self, kind: str) -> dict[Charge, int]:
        """Releases of one kind alone."""
        return {charge: count for charge, count in self.charges.items() if charge.kind == kind}

    def costs_of(self, entry: Entry) -> dict[Charge, int]:
        """Releases that paid for an entry's messages, none where nothing with a claim covers them."""
        if entry.direction != "up" or entry.protection is None:
            return {}
        kind = paid_as(entry)
        costs = self.costs(kind)
        if kind != entry.kind:
            return costs
        return {charge: count for charge, count in costs.items() if charge.mechanism == entry.protection}

    def settled(self, delta: float) -> Ledger:
        """Return the same, of which each entry that a claim covers tells its epsilon at ``delta``."""
        entries = {}
        for key, entry in self.entries.items():
            costs = self.costs_of(entry)
            if costs:
                entry = replace(entry, epsilon=epsilon_of(costs, delta), delta=delta)
            entries[key] = entry
        return Ledger(entries, dict(self.charges))

    def bytes(self, direction: Direction) -> int:
        """Payload of all messages in one direction."""
        return sum(entry.bytes for entry in self.entries.values() if entry.direction == direction)

    def as_list(self) -> list[dict[str, Any]]:
        """Entries as the plain dictionaries of ``ledger.json``."""
        return [entry.as_dict() for entry in self.entries.values()]


RECORDS = "records"
"""What noise on data is charged as, once for all that is made of the noisy records."""


def paid_as(entry: Entry) -> str:
    """Kind of the charge that pays for an entry's messages."""
    return RECORDS if entry.protection is not None and entry.protection.on == "data" else entry.kind


def read_entries(described: list[dict[str, Any]]) -> tuple[Entry, ...]:
    """Entries that :meth:`Ledger.as_list` wrote."""
    entries: tuple[Entry, ...] = _adapter().validate_python(described)
    return entries


@cache
def _adapter() -> Any:
    return TypeAdapter(tuple[Entry, ...])
