"""The contract of an attack: messages and side knowledge in, an estimate and a guess without the messages out.

An attack is a function of a :class:`View` and a :class:`Side`. The view holds what the server has at the end
of a run, and the side what it knows from elsewhere. An attack never sees the records:
:mod:`raydr.attacks.scoring` compares its findings with them. All rows are in the units of the run: as read,
scaled by ``data.scale`` and transformed for ``data.metric``.

The server is honest but curious: it follows the protocol and keeps all messages. Without secure sums, these
include every client's summand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.errors import RaydrError
from raydr.federation.messages import Reply
from raydr.federation.replay import Replay
from raydr.federation.transcript import Transcript
from raydr.registry import Registry
from raydr.statistics.scaling import ScaleRows, Scaling, scale_rows

if TYPE_CHECKING:
    from raydr.methods.fedne.projection import Projection

EXACT = 1e-3
"""Maximum error of an exactly recovered record, in units of the record's distance from the mean."""
_BLOCK = 1024  # records in memory at a time: 160 MB for 20,000 features


class NotApplicableError(RaydrError):
    """An attack that does not apply to a run, with the reason in one sentence."""


@dataclass(kw_only=True, frozen=True)
class View:
    """The server's view at the end of a run.

    Attributes
    ----------
    transcript : Transcript
        The messages that it saw.
    sizes : tuple of int
        Rows of each client. Rows are numbered client by client.
    embedding : (rows, dimensions)
        The map. It has no rows if positions stay with the clients.
    public : (public rows, features) or None
        Rows that it received with the run, in the run's units.
    scaled : bool
        Whether clients scaled their rows by ``data.scale`` before the method started.
    delta : float
        The delta for which epsilon is reported.
    keyed : bool
        Whether clients rotated their rows by a key first. Then the server's features are not the real ones,
        and it knows that.
    secure : bool
        Whether it saw only sums of the messages that are summed.
    colluding : float
        Fraction of the clients without whose shares the noise on a sum must suffice.
    replay : Replay or None
        The charged releases, to audit their claims. A real server does not have these.
    label_columns : (columns,) int64
        Features that are zeros and ones of one label: who knows all but one of them knows all.
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
    label_columns: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def rows(self) -> int:
        """Number of rows of all clients."""
        return sum(self.sizes)

    @cached_property
    def firsts(self) -> Int64Array:
        """Number of each client's first row, (clients,)."""
        return np.cumsum([0, *self.sizes])[:-1]

    def rows_of(self, client: int) -> Int64Array:
        """Return the numbers of a client's rows."""
        return np.arange(self.firsts[client], self.firsts[client] + self.sizes[client])

    @cached_property
    def own_scaling(self) -> Scaling | None:
        """The scaling that the method itself requested after ``data.scale``, or None if it requested none."""
        requests = list(
            {
                seen.number: seen.request for seen in self.transcript if isinstance(seen.request, ScaleRows)
            }.values()
        )[int(self.scaled) :]
        if not requests:
            return None
        last = requests[-1]
        if len(requests) > 1:
            raise NotApplicableError(
                "the method scaled the rows more than once, which no attack can undo yet."
            )
        return Scaling(last.shift, last.factor)

    @cached_property
    def projection(self) -> Projection | None:
        """The random projection of the scaled rows that the method requested, or None."""
        from raydr.methods.fedne.projection import ProjectRows  # registers FedNE before other methods

        requests = (seen.request for seen in self.transcript)
        return next((each.projection for each in requests if isinstance(each, ProjectRows)), None)

    def fed(self, rows: FloatArray) -> Float64Array:
        """Convert rows from the run's units to those of the method's client code."""
        scaled = np.asarray(rows, np.float64)
        scaled = scaled if self.own_scaling is None else np.asarray(scale_rows(scaled, self.own_scaling))
        return scaled if self.projection is None else self.projection.project(scaled).astype(np.float64)

    def unfed(self, rows: Float64Array) -> Float64Array:
        """Convert rows from the units of the method's client code to the run's units."""
        if self.projection is not None:
            rows = self.projection.lift(rows)
        if self.own_scaling is None:
            return rows
        factor = self.own_scaling.factor
        return np.asarray(
            rows * np.divide(1.0, factor, out=np.zeros_like(factor), where=factor != 0.0)
            + self.own_scaling.shift
        )


@dataclass(kw_only=True, frozen=True)
class Side:
    """The server's knowledge from outside the run.

    Attributes
    ----------
    public : (public rows, features)
        Rows of similar data that are not in the run. It can be empty.
    origin : str
        The source of the public rows, as a clause.
    known : (known rows,) int64
        Numbers of records of the run that the server knows, in the order in which it learns them.
    values : (known rows, features)
        The known records.
    counts : tuple of int
        Numbers of known records to use, one attempt for each.
    candidates : (candidates, features)
        Records for membership questions. Some are in the run.
    seed : int
        Seed of an attack's random draws.
    spared : (rows,) int64
        Numbers of records that are not scored, because the public rows come from them.
    informed : tuple of int
        Numbers of ``known`` records of an informed adversary, who knows nearly all of them. One attempt for
        each.
    classes : (known rows,) int64
        Class of each known record, if rows have classes.
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
        """Return the best guess (features,) for any record without the messages: the mean of rows of similar data.

        Parameters
        ----------
        like : (points, features)
            Other rows in the region of the records, used if there are no public rows. If this is empty too
            (for example with keyed points), the guess is 0.
        """
        rows = self.public if len(self.public) else like
        return np.asarray(rows.mean(axis=0, dtype=np.float64) if len(rows) else np.zeros(rows.shape[1]))

    def require_public(self, least: int) -> FloatArray:
        """Return the public rows. Raise NotApplicableError if there are fewer than ``least``."""
        if len(self.public) < least:
            raise NotApplicableError(
                f"it needs {least:,} public rows of similar data, but there are {len(self.public):,}. Pass a file of"
                " such rows with --public, or map fewer rows than the source has."
            )
        return self.public


@dataclass(frozen=True)
class Piece:
    """Estimates of some records in factored form: ``centre + coordinates @ basis``.

    ``rows`` (records,) are their numbers, ``coordinates`` is (records, k), and ``basis`` is (k, features). If
    the coordinates are the features themselves, ``basis`` is None.
    """

    rows: Int64Array
    centre: Float64Array
    coordinates: Float64Array
    basis: Float64Array | None = None

    def spelt(self, coordinates: Float64Array) -> Float64Array:
        """Return the features (records, features) of records with these coordinates."""
        return np.asarray(self.centre + (coordinates if self.basis is None else coordinates @ self.basis))

    def blocks(self) -> Iterator[tuple[Int64Array, Float64Array]]:
        """Yield numbers and estimates (records, features) in blocks of records."""
        for start in range(0, len(self.rows), _BLOCK):
            some = slice(start, start + _BLOCK)
            yield self.rows[some], self.spelt(self.coordinates[some])


@dataclass(frozen=True)
class Estimate:
    """Estimates of records, one for each record."""

    pieces: tuple[Piece, ...]

    @classmethod
    def of(cls, rows: Int64Array, values: Float64Array) -> Estimate:
        """Return an estimate from features (records, features)."""
        return cls((Piece(rows, np.zeros(values.shape[1]), values),))

    def blocks(self) -> Iterator[tuple[Int64Array, Float64Array]]:
        """Yield numbers and estimates in blocks of records."""
        for piece in self.pieces:
            yield from piece.blocks()

    @cached_property
    def rows(self) -> Int64Array:
        """Numbers of the records, in the order of the blocks."""
        return np.concatenate([piece.rows for piece in self.pieces]) if self.pieces else np.zeros(0, np.int64)

    def mean(self) -> Float64Array:
        """Return the mean of all estimates, (features,)."""
        total = sum(
            len(piece.rows) * piece.spelt(piece.coordinates.mean(axis=0))
            for piece in self.pieces
            if len(piece.rows)
        )
        return np.asarray(total / max(1, len(self.rows)))

    def lengths(self, origin: Float64Array) -> Float64Array:
        """Return the distance of each estimate from a point, in the order of :attr:`rows`."""
        found = [np.linalg.norm(block - origin, axis=1) for _, block in self.blocks()]
        return np.concatenate(found) if found else np.zeros(0)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one attempt.

    Attributes
    ----------
    uses : tuple of type of Reply
        Messages that it read.
    knows : str
        Its side knowledge, as a clause.
    variant : str
        Name of this attempt among the attempts of the attack, or "" if there is only one.
    numbers : mapping of name to number
        Numbers of the side knowledge, such as ``public_rows``.
    """

    uses: tuple[type[Reply], ...]
    knows: str
    variant: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Reconstruction(Finding):
    """Estimates of records whose numbers are known.

    Attributes
    ----------
    estimate : Estimate
        Estimates of the records.
    guess : (features,)
        The guess for each record without the messages.
    certain : (records,) bool or None
        Estimates that the server itself calls exact, in the order of ``estimate.rows``.
    """

    estimate: Estimate
    guess: Float64Array
    certain: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] | None = None


@dataclass(frozen=True, kw_only=True)
class Unordered(Finding):
    """Estimates of some clients' records in unknown order. They are scored by the best match.

    Attributes
    ----------
    parts : mapping of client to (its rows, features)
        Estimates of each client.
    guess : (features,)
        The guess for each record without the messages.
    """

    parts: Mapping[int, Float64Array]
    guess: Float64Array


@dataclass(frozen=True, kw_only=True)
class GroupShares(Finding):
    """Estimated shares of each client's records in each group.

    Attributes
    ----------
    shares : (clients, groups)
        Estimates.
    guess : (groups,)
        The guess for each client without the messages.
    columns : (groups,) int64 or None
        A record belongs to a group if its value in this column is above the threshold. None if groups are
        classes, by number.
    thresholds : (groups,) or None
    """

    shares: Float64Array
    guess: Float64Array
    columns: Int64Array | None = None
    thresholds: Float64Array | None = None


@dataclass(frozen=True, kw_only=True)
class ColumnEstimates(Finding):
    """Estimates of some columns of records.

    Attributes
    ----------
    rows : (records,) int64
        Numbers of the records.
    columns : (columns,) int64
    inferred : callable
        Maps the records (records, features) to estimates and guesses, (records, columns) each. The attacker
        knows the other columns of a record, so the estimate of a value may depend only on the other columns.
    departs : bool
        Whether the server departs from the protocol for it.
    """

    rows: Int64Array
    columns: Int64Array
    inferred: Callable[[FloatArray], tuple[Float64Array, Float64Array]]
    departs: bool = False


@dataclass(frozen=True, kw_only=True)
class Scored(Finding):
    """A score for each candidate, (candidates,). A higher score means more likely a record of the run."""

    scores: Float64Array


@dataclass(frozen=True, kw_only=True)
class Bounded(Finding):
    """A lower bound on the privacy cost of releases, and the claim.

    Attributes
    ----------
    epsilon : float
        Lower bound at ``delta``, wrong in less than ``1 - confidence`` of all attempts.
    measured : float
        The accountant's epsilon for the same releases with the measured noise, where that is surely less than
        charged. It equals ``claimed`` if the noise is nowhere surely less.
    claimed : float
        The accountant's epsilon for the same releases.
    delta, confidence : float
        Of both bounds.
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
    """An attack: its name, a one-line description, and the function that runs it."""

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

    The function returns or yields one finding for each attempt, and raises `NotApplicableError` if it does
    not apply.

    Parameters
    ----------
    name : str
        The name in scenarios, ``audit.json`` and ``raydr list attacks``.
    description : str
        One line on what the attack recovers.

    Examples
    --------
    >>> @attack("first-row", "guesses the first public row for all records")  # doctest: +SKIP
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
