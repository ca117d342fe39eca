"""What an attack is: messages and side knowledge in, an estimate out, and what one would guess without the messages.

An attack is a function of a :class:`View`, what the server has at the end of a run, and of :class:`Side`, what it knows
from elsewhere. It never sees the records: :mod:`raydr.attacks.scoring` holds its findings against them. All rows are in
the units of the run: as read, and scaled as ``data.scale`` says.

The server is honest but curious: it keeps to the protocol, and keeps what it gets. Where sums are not secret, that is
every client's summand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.errors import RaydrError
from raydr.federation.messages import Reply
from raydr.federation.replay import Replay
from raydr.federation.transcript import Transcript
from raydr.registry import Registry
from raydr.statistics.scaling import ScaleRows, Scaling, scale_rows

EXACT = 1e-3
"""A record counts as recovered where the estimate is nearer than this, in units of its distance from the mean."""
_BLOCK = 1024  # records that are spelt out at a time: 160 MB of 20,000 features


class NotApplicableError(RaydrError):
    """Why an attack does not apply to a run, in one sentence."""


@dataclass(kw_only=True, frozen=True)
class View:
    """What the server has at the end of a run.

    Attributes
    ----------
    transcript : Transcript
        The messages that it saw.
    sizes : tuple of int
        Rows of each client; rows are numbered client by client.
    embedding : (rows, dimensions)
        The map; no rows where places stay with the clients.
    public : (public rows, features) or None
        Rows that it was given with the run, in its units.
    scaled : bool
        Whether clients were told to scale their rows by ``data.scale`` before the method began.
    delta : float
        At which epsilon is told.
    keyed : bool
        Whether clients keyed their rows before anything was told of them: what the server takes for features are not,
        and it knows.
    secure : bool
        Whether it saw sums alone, of what is summed.
    colluding : float
        Part of the clients without whose shares noise on a sum is to be enough.
    replay : Replay or None
        The releases that were charged, for the audit of what is claimed for them: no server has that.
    """

    transcript: Transcript
    sizes: tuple[int, ...]
    embedding: FloatArray
    public: FloatArray | None = None
    scaled: bool = False
    delta: float = 1e-5
    keyed: bool = False
    secure: bool = False
    colluding: float = 0.2
    replay: Replay | None = None

    @property
    def rows(self) -> int:
        """Rows of all clients."""
        return sum(self.sizes)

    @cached_property
    def firsts(self) -> Int64Array:
        """Number of each client's first row, (clients,)."""
        return np.cumsum([0, *self.sizes])[:-1]

    def rows_of(self, client: int) -> Int64Array:
        """Numbers of a client's rows."""
        return np.arange(self.firsts[client], self.firsts[client] + self.sizes[client])

    @cached_property
    def own_scaling(self) -> Scaling | None:
        """What the method itself told clients to scale by, after ``data.scale``; None where it told nothing."""
        told = list(
            {
                seen.number: seen.request for seen in self.transcript if isinstance(seen.request, ScaleRows)
            }.values()
        )[int(self.scaled) :]
        if not told:
            return None
        last = told[-1]
        if len(told) > 1 or last.unit:
            raise NotApplicableError("the method scaled the rows more than once, which no attack undoes yet.")
        return Scaling(last.shift, last.factor, False)

    def fed(self, rows: FloatArray) -> Float64Array:
        """Rows of the run's units as the method's client parts saw them."""
        scaled = np.asarray(rows, np.float64)
        return scaled if self.own_scaling is None else np.asarray(scale_rows(scaled, self.own_scaling))

    def unfed(self, rows: Float64Array) -> Float64Array:
        """The way back."""
        if self.own_scaling is None:
            return rows
        factor = self.own_scaling.factor
        return np.asarray(
            rows * np.divide(1.0, factor, out=np.zeros_like(factor), where=factor != 0.0)
            + self.own_scaling.shift
        )


@dataclass(kw_only=True, frozen=True)
class Side:
    """What the server knows from elsewhere.

    Attributes
    ----------
    public : (public rows, features)
        Rows of like data that are nobody's of the run; no rows where there are none.
    origin : str
        Where those come from, as a clause.
    known : (known rows,) int64
        Numbers of records of the run that it happens to know, in the order in which it would learn of them.
    values : (known rows, features)
        Those records.
    counts : tuple of int
        How many of them it is to know, one attempt for each.
    candidates : (candidates, features)
        Records of which it asks whether they are in the run: some are.
    seed : int
        Of what an attack draws.
    spared : (rows,) int64
        Numbers of records that are not scored: the public rows were taken from them.
    informed : tuple of int
        How many of ``known`` an informed adversary knows, who has nearly all of them; one attempt for each.
    classes : (known rows,) int64
        The class of each known record, where rows have one.
    """

    public: FloatArray
    origin: str = ""
    known: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    values: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    counts: tuple[int, ...] = ()
    candidates: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    seed: int = 0
    spared: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    informed: tuple[int, ...] = ()
    classes: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))

    def guess(self, like: FloatArray) -> Float64Array:
        """What is best said of any record without the messages, (features,): the mean of rows of like data.

        Parameters
        ----------
        like : (points, features)
            What else the server has that lies where records do, by which it guesses where there are no public rows.
            Where nothing does, as where all points are keyed, it says 0.
        """
        rows = self.public if len(self.public) else like
        return np.asarray(rows.mean(axis=0, dtype=np.float64) if len(rows) else np.zeros(rows.shape[1]))

    def require_public(self, least: int) -> FloatArray:
        """Public rows, at least so many; raises NotApplicableError where there are fewer."""
        if len(self.public) < least:
            raise NotApplicableError(
                f"it needs {least:,} public rows of like data, and there are {len(self.public):,}: give a file of such"
                " rows by --public, or map fewer rows than the source has."
            )
        return self.public


@dataclass(frozen=True)
class Piece:
    """Estimates of some records, none spelt out: ``centre + coordinates @ basis``.

    ``rows`` (records,) are their numbers; ``coordinates`` (records, k), ``basis`` (k, features), or None where the
    coordinates are the features themselves.
    """

    rows: Int64Array
    centre: Float64Array
    coordinates: Float64Array
    basis: Float64Array | None = None

    def spelt(self, coordinates: Float64Array) -> Float64Array:
        """Features (records, features) of records with these coordinates."""
        return np.asarray(self.centre + (coordinates if self.basis is None else coordinates @ self.basis))

    def blocks(self) -> Iterator[tuple[Int64Array, Float64Array]]:
        """Numbers and estimates (records, features), so many at a time."""
        for start in range(0, len(self.rows), _BLOCK):
            some = slice(start, start + _BLOCK)
            yield self.rows[some], self.spelt(self.coordinates[some])


@dataclass(frozen=True)
class Estimate:
    """Estimates of records, each record's once."""

    pieces: tuple[Piece, ...]

    @classmethod
    def of(cls, rows: Int64Array, values: Float64Array) -> Estimate:
        """Estimates that are spelt out, (records, features)."""
        return cls((Piece(rows, np.zeros(values.shape[1]), values),))

    def blocks(self) -> Iterator[tuple[Int64Array, Float64Array]]:
        """Numbers and estimates, some at a time."""
        for piece in self.pieces:
            yield from piece.blocks()

    @cached_property
    def rows(self) -> Int64Array:
        """Numbers of the records, in the order of the blocks."""
        return np.concatenate([piece.rows for piece in self.pieces]) if self.pieces else np.zeros(0, np.int64)

    def mean(self) -> Float64Array:
        """Of all estimates, (features,)."""
        total = sum(
            len(piece.rows) * piece.spelt(piece.coordinates.mean(axis=0))
            for piece in self.pieces
            if len(piece.rows)
        )
        return np.asarray(total / max(1, len(self.rows)))

    def lengths(self, origin: Float64Array) -> Float64Array:
        """Distance of each estimate from a point, in the order of :attr:`rows`."""
        found = [np.linalg.norm(block - origin, axis=1) for _, block in self.blocks()]
        return np.concatenate(found) if found else np.zeros(0)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one attempt came to.

    Attributes
    ----------
    uses : tuple of type of Reply
        Messages that it read.
    knows : str
        Its side knowledge, as a clause.
    variant : str
        What sets this attempt apart from others of the attack, "" where there is one.
    numbers : mapping of name to number
        Of the side knowledge, such as ``public_rows``.
    """

    uses: tuple[type[Reply], ...]
    knows: str
    variant: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Reconstruction(Finding):
    """Records, each known by its number.

    Attributes
    ----------
    estimate : Estimate
        Of the records.
    guess : (features,)
        What one would say of each without the messages.
    certain : (records,) bool or None
        Which of the estimates the server itself calls exact, in the order of ``estimate.rows``.
    """

    estimate: Estimate
    guess: Float64Array
    certain: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] | None = None


@dataclass(frozen=True, kw_only=True)
class Unordered(Finding):
    """Some clients' records, of which nobody says which is which: they are told apart by the best match.

    Attributes
    ----------
    parts : mapping of client to (its rows, features)
        Estimates.
    guess : (features,)
        What one would say of each without the messages.
    """

    parts: Mapping[int, Float64Array]
    guess: Float64Array


@dataclass(frozen=True, kw_only=True)
class GroupShares(Finding):
    """The part of each client's records that belongs to each group.

    Attributes
    ----------
    shares : (clients, groups)
        Estimates.
    guess : (groups,)
        What one would say of each client without the messages.
    columns : (groups,) int64 or None
        A record belongs to a group if its value there is above the threshold; None where groups are classes, by number.
    thresholds : (groups,) or None
    """

    shares: Float64Array
    guess: Float64Array
    columns: Int64Array | None = None
    thresholds: Float64Array | None = None


@dataclass(frozen=True, kw_only=True)
class ColumnEstimates(Finding):
    """Each of some columns of records.

    Attributes
    ----------
    rows : (records,) int64
        Their numbers.
    columns : (columns,) int64
    inferred : callable
        From the records (records, features) to estimates and guesses, (records, columns) each. An attribute is inferred
        by somebody who knows the others: what is said of a value must follow from the other columns alone.
    departs : bool
        Whether the server departs from the protocol for it.
    """

    rows: Int64Array
    columns: Int64Array
    inferred: Callable[[FloatArray], tuple[Float64Array, Float64Array]]
    departs: bool = False


@dataclass(frozen=True, kw_only=True)
class Scored(Finding):
    """A score for each candidate, (candidates,): higher where it seems to be a record of the run."""

    scores: Float64Array


@dataclass(frozen=True, kw_only=True)
class Bounded(Finding):
    """A lower bound on the cost of releases, and the claim.

    Attributes
    ----------
    epsilon : float
        Lower bound at ``delta``, wrong in less than ``1 - confidence`` of all attempts.
    measured : float
        What the accountant makes of the same releases with the noise that was measured, where that is surely less than
        was charged; ``claimed`` where it nowhere is.
    claimed : float
        By the accountant, of the same releases.
    delta, confidence : float
        Of both.
    """

    epsilon: float
    measured: float
    claimed: float
    delta: float
    confidence: float


Mount = Callable[[View, Side], Iterable[Finding]]
M = TypeVar("M", bound=Mount)


@dataclass(frozen=True)
class Attack:
    """An attack: its name, a line on what it does, and the attempt itself."""

    name: str
    description: str
    mount: Mount


ATTACKS: Registry[Attack] = Registry(
    "attacks",
    "raydr.attacks",
    first=(
        "trilateration",
        "distribution_alignment",
        "known_sample",
        "distance_geometry",
        "gradient_matching",
        "surrogate_inversion",
        "landmark_lifting",
        "learnt_inversion",
        "property_inference",
        "attribute_inference",
        "chosen_landmarks",
        "membership",
        "canary",
    ),
)
"""Every attack by its name."""


def attack(name: str, description: str) -> Callable[[M], M]:
    """Register a function of a :class:`View` and a :class:`Side` as an attack.

    It returns or yields findings, one for each attempt, and raises `NotApplicableError` where it does not apply.

    Parameters
    ----------
    name : str
        As scenarios, ``audit.json`` and ``raydr list attacks`` have it.
    description : str
        One line on what it does.

    Examples
    --------
    >>> @attack("first-row", "says that all records are the first public row")  # doctest: +SKIP
    ... def first_row(view, side):
    ...     rows = np.arange(view.rows)
    ...     same = Piece(rows, side.require_public(1)[0], np.zeros((len(rows), 0)), np.zeros((0, side.public.shape[1])))
    ...     yield Reconstruction(
    ...         uses=(), knows="one public row", estimate=Estimate((same,)), guess=side.public.mean(axis=0)
    ...     )
    """

    def register(mount: M) -> M:
        ATTACKS.add(name, Attack(name, description, mount))
        return mount

    return register
