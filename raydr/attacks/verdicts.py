"""Verdicts of an audit: ``audit.json`` has one for each attempt of each attack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TELLING_AUC = 0.6
"""AUC above which members count as distinguished from others."""
TELLING_TPR, LEAST_FOUND = 0.01, 15
"""Share and number of the members found at one false alarm in 1,000 above which they count as distinguished."""


@dataclass(frozen=True)
class Quantiles:
    """Quantiles of an error over records."""

    minimum: float
    q01: float
    q10: float
    median: float
    q90: float


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Distances of estimates from the records, and those of the best guess without the messages.

    Attributes
    ----------
    records : int
        Number of scored records.
    relative, relative_guess : Quantiles
        Distance from the record, divided by the record's length.
    centred, centred_guess : Quantiles
        Distance from the record, divided by the record's distance from the mean. The mean as a guess has 1,
        and the origin of the data does not matter.
    exact : float
        Share of the records with a centred error below 1e-3.
    """

    records: int
    relative: Quantiles
    relative_guess: Quantiles
    centred: Quantiles
    centred_guess: Quantiles
    exact: float

    @property
    def beats_guessing(self) -> bool:
        """Whether half of the records are known better than by guessing."""
        return self.centred.median < self.centred_guess.median


@dataclass(frozen=True)
class Certificate:
    """Number of records that the server itself calls exact, and how many of those are."""

    called_exact: int
    of_those_exact: int


@dataclass(frozen=True, kw_only=True)
class Membership:
    """How well members are distinguished from others.

    ``auc`` is the probability that a member has the higher score. ``tpr`` is the share of the members that
    are found with at most one false alarm in 1,000 others, rounded down.
    """

    auc: float
    tpr: float
    members: int
    others: int

    @property
    def tells_apart(self) -> bool:
        """Whether members are distinguished from others, on the whole or for some of them.

        An attack that is sure of a few members has an AUC of hardly more than 0.5. By chance, 15 members come
        before the third of the same number of others once in 200 audits.
        """
        found = round(self.tpr * self.members)
        return self.auc > TELLING_AUC or (self.tpr > TELLING_TPR and found >= LEAST_FOUND)


@dataclass(frozen=True, kw_only=True)
class ShareErrors:
    """Errors of estimated group shares, and of one guess for all clients.

    ``error`` and ``guess`` are mean absolute differences over clients and groups, as fractions of a client's
    rows.
    """

    error: float
    guess: float
    groups: int
    clients: int

    @property
    def beats_guessing(self) -> bool:
        """Whether the messages reduce a guess's error by at least a tenth."""
        return self.error < 0.9 * self.guess


@dataclass(frozen=True, kw_only=True)
class ColumnErrors:
    """How well a column of a record is known, compared with a guess without the messages.

    Attributes
    ----------
    column : str
        Name of the column.
    error, guess : float
        Root mean square error, divided by the column's standard deviation. 0 is the value itself, 1 is the
        column's mean.
    accuracy, accuracy_guess : float or None
        For a column with two values, the balanced accuracy: 0.5 by chance.
    """

    column: str
    error: float
    guess: float
    accuracy: float | None = None
    accuracy_guess: float | None = None

    @property
    def beats_guessing(self) -> bool:
        """Whether the messages reduce a guess's error by at least a tenth, unless the guess is already exact."""
        return self.guess > 1e-3 and self.error < 0.9 * self.guess


@dataclass(frozen=True, kw_only=True)
class EpsilonBound:
    """A lower bound on the privacy cost of releases, and the claim.

    Attributes
    ----------
    epsilon : float
        Lower bound at ``delta``, from telling apart releases with and without a record.
    measured : float
        The accountant's epsilon for the measured noise, where that is surely less than charged.
    claimed : float
        The accountant's epsilon.
    delta, confidence : float
        Of both bounds. Each is wrong in less than ``1 - confidence`` of all audits.
    """

    epsilon: float
    measured: float
    claimed: float
    delta: float
    confidence: float

    @property
    def shown(self) -> float:
        """The larger of both bounds."""
        return max(self.epsilon, self.measured)

    @property
    def is_broken(self) -> bool:
        """Whether the bounds contradict the claim."""
        return self.shown > self.claimed * (1.0 + 1e-9)


@dataclass(frozen=True)
class Example:
    """A record of the run and its estimate: the values of :attr:`Audit.shown`, in the run's units."""

    row: str
    true: tuple[float, ...]
    recovered: tuple[float, ...]
    error: float


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The result of an attempt. If an attack does not apply, only ``why`` is set.

    Attributes
    ----------
    attack, description : str
        Name, and a one-line description.
    variant : str
        Name of this attempt among the attempts of the attack.
    why : str
        Reason why the attack does not apply, or empty.
    messages : mapping of kind to int
        Messages that it read, by the ledger's names and counts.
    knows : str
        Its side knowledge.
    numbers : mapping of name to number
        Numbers of the side knowledge.
    errors : Errors or None
        Errors of the recovered records.
    certificate : Certificate or None
        Records that the server itself calls exact, if it can.
    membership : Membership or None
    shares : ShareErrors or None
    columns : tuple of ColumnErrors
        Errors by column, first those where the messages add most.
    departs : bool
        Whether the server departs from the protocol. In the other attempts it follows the protocol.
    bound : EpsilonBound or None
    examples : tuple of Example
        Examples by error, the best first.
    seconds : float
    """

    attack: str
    description: str
    variant: str = ""
    why: str = ""
    messages: Mapping[str, int] = field(default_factory=dict)
    knows: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    errors: Errors | None = None
    certificate: Certificate | None = None
    membership: Membership | None = None
    shares: ShareErrors | None = None
    columns: tuple[ColumnErrors, ...] = ()
    departs: bool = False
    bound: EpsilonBound | None = None
    examples: tuple[Example, ...] = ()
    seconds: float = 0.0

    @property
    def inferred_columns(self) -> tuple[ColumnErrors, ...]:
        """Columns that the messages predict better than a guess, first those where they add most."""
        return tuple(one for one in self.columns if one.beats_guessing)

    @property
    def leakage(self) -> float:
        """Leakage of the messages: 1 if half of the records are recovered exactly, 0 if no better than a guess."""
        if self.errors is None or not self.errors.centred_guess.median:
            return 0.0
        return max(0.0, 1.0 - self.errors.centred.median / self.errors.centred_guess.median)


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The content of ``audit.json``.

    Attributes
    ----------
    raydr : str
        Version of raydr that made the audit.
    scenario : str
        SHA-256 of the run's scenario.yaml, which identifies the run.
    public : str
        Source of the public rows, as a clause.
    shown : tuple of str
        Names of the features that examples show.
    image : tuple of int or None
        Height, width and channels if a row is a picture. Then ``shown`` are all features, in order.
    verdicts : tuple of Verdict
        Verdicts in the order of ``raydr list attacks``.
    """

    raydr: str
    scenario: str
    public: str
    shown: tuple[str, ...]
    image: tuple[int, int, int] | None
    verdicts: tuple[Verdict, ...]

    @property
    def nearest(self) -> Verdict | None:
        """The attempt that recovered most, by its median error relative to guessing, or None."""
        found = [verdict for verdict in self.verdicts if verdict.errors is not None]
        return max(found, key=lambda verdict: verdict.leakage, default=None)

    @property
    def leakage(self) -> float:
        """Leakage of the attempt that recovered most, or 0 if none recovered anything."""
        return self.nearest.leakage if self.nearest is not None else 0.0

    @property
    def exact(self) -> float:
        """Largest share of the records that any attempt recovers exactly."""
        return max(
            (verdict.errors.exact for verdict in self.verdicts if verdict.errors is not None), default=0.0
        )

    @property
    def membership_auc(self) -> float | None:
        """Largest AUC of any membership attempt, or None if there was none."""
        found = [verdict.membership.auc for verdict in self.verdicts if verdict.membership is not None]
        return max(found, default=None)

    @property
    def members(self) -> Membership | None:
        """The attempt that tells members apart from others best, or None."""
        found = [one.membership for one in self.verdicts if one.membership is not None]
        return max(
            (one for one in found if one.tells_apart), key=lambda one: (one.auc, one.tpr), default=None
        )

    @property
    def shares(self) -> ShareErrors | None:
        """The attempt with the best estimates of group shares, or None if guessing is as good."""
        found = [one.shares for one in self.verdicts if one.shares is not None and one.shares.beats_guessing]
        return min(found, key=lambda one: one.error / one.guess, default=None)

    @property
    def attributes(self) -> Verdict | None:
        """The attempt that predicts most columns better than a guess, by a server that follows the protocol."""
        found = [one for one in self.verdicts if one.inferred_columns and not one.departs]
        return max(found, key=lambda one: len(one.inferred_columns), default=None)

    @property
    def reconstructions(self) -> int:
        """Number of attacks that applied and recover records."""
        return len({verdict.attack for verdict in self.verdicts if verdict.errors is not None})
