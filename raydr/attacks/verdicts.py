"""What an audit writes down: ``audit.json``, one verdict for each attempt of each attack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TELLING_AUC = 0.6
"""AUC from which members are said to be told from others."""
TELLING_TPR, LEAST_FOUND = 0.01, 15
"""Part of the members, and number of them, found at one false alarm in 1,000, from which the same is said."""


@dataclass(frozen=True)
class Quantiles:
    """Of an error over records."""

    minimum: float
    q01: float
    q10: float
    median: float
    q90: float


@dataclass(frozen=True, kw_only=True)
class Errors:
    """How far estimates are from the records, beside how far the best guess without the messages is.

    Attributes
    ----------
    records : int
        That were scored.
    relative, relative_guess : Quantiles
        Distance from the record over the record's length.
    centred, centred_guess : Quantiles
        Distance from the record over the record's distance from the mean of all: 1 for whoever guesses the mean, and
        the same wherever the data have their origin.
    exact : float
        Part of the records whose centred error is below 1e-3.
    """

    records: int
    relative: Quantiles
    relative_guess: Quantiles
    centred: Quantiles
    centred_guess: Quantiles
    exact: float

    @property
    def beats_guessing(self) -> bool:
        """Whether half of the records are better known than by guessing."""
        return self.centred.median < self.centred_guess.median


@dataclass(frozen=True)
class Certificate:
    """How many records the server itself calls exact, and how many of those are."""

    called_exact: int
    of_those_exact: int


@dataclass(frozen=True, kw_only=True)
class Membership:
    """How well members are told from others.

    ``auc`` is the probability that a member has the higher score; ``tpr`` the part of the members that are found where
    at most one other in a thousand, rounded down, is taken for one.
    """

    auc: float
    tpr: float
    members: int
    others: int

    @property
    def tells_apart(self) -> bool:
        """Whether members are told from others: on the whole, or surely some of them.

        An attack that is sure of a few members has an AUC of hardly more than 0.5. By chance 15 members come before the
        third of as many others once in 200 audits.
        """
        found = round(self.tpr * self.members)
        return self.auc > TELLING_AUC or (self.tpr > TELLING_TPR and found >= LEAST_FOUND)


@dataclass(frozen=True, kw_only=True)
class ShareErrors:
    """How far estimates of groups' shares are from the truth, and how far one guess for all clients is.

    ``error`` and ``guess`` are means over clients and groups of the absolute difference, in parts of a client's rows.
    """

    error: float
    guess: float
    groups: int
    clients: int

    @property
    def beats_guessing(self) -> bool:
        """Whether the messages took a tenth of a guess's error away."""
        return self.error < 0.9 * self.guess


@dataclass(frozen=True, kw_only=True)
class ColumnErrors:
    """How well a column of a record is known, next to a guess without the messages.

    Attributes
    ----------
    column : str
        Its name.
    error, guess : float
        Root mean square error over the column's standard deviation: 0 is the value itself, 1 is the column's mean.
    accuracy, accuracy_guess : float or None
        Of a column with two values, the mean of the parts of either that are told rightly: 0.5 by chance.
    """

    column: str
    error: float
    guess: float
    accuracy: float | None = None
    accuracy_guess: float | None = None

    @property
    def beats_guessing(self) -> bool:
        """Whether the messages took a tenth of a guess's error away, where the rest does not tell the value already."""
        return self.guess > 1e-3 and self.error < 0.9 * self.guess


@dataclass(frozen=True, kw_only=True)
class EpsilonBound:
    """A lower bound on the cost of releases, and the claim.

    Attributes
    ----------
    epsilon : float
        Lower bound at ``delta``: a record in the data or not, told apart by what was released.
    measured : float
        What the accountant makes of the noise that was measured, where that is surely less than was charged.
    claimed : float
        By the accountant.
    delta, confidence : float
        Of both bounds, each of which is wrong in less than ``1 - confidence`` of all audits.
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
        """Whether the claim does not hold."""
        return self.shown > self.claimed * (1.0 + 1e-9)


@dataclass(frozen=True)
class Example:
    """A record of the run beside its estimate: the values of :attr:`Audit.shown`, in the run's units."""

    row: str
    true: tuple[float, ...]
    recovered: tuple[float, ...]
    error: float


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What an attempt came to; of an attack that does not apply, ``why`` not, and nothing else.

    Attributes
    ----------
    attack, description : str
        Name, and a line on what it does.
    variant : str
        What sets this attempt apart from others of the attack.
    why : str
        Why it does not apply; empty where it does.
    messages : mapping of kind to int
        Messages that it read, as the ledger names and counts them.
    knows : str
        Its side knowledge.
    numbers : mapping of name to number
        Of that.
    errors : Errors or None
        Of what was recovered.
    certificate : Certificate or None
        Where the server can tell what it knows.
    membership : Membership or None
    shares : ShareErrors or None
    columns : tuple of ColumnErrors
        First those of which the messages add most.
    departs : bool
        Whether the server departs from the protocol for it: the other attempts are by servers that keep to it.
    bound : EpsilonBound or None
    examples : tuple of Example
        By error, the best first.
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
    def told(self) -> tuple[ColumnErrors, ...]:
        """Columns that the messages tell better than a guess, first those of which they add most."""
        return tuple(one for one in self.columns if one.beats_guessing)

    @property
    def leakage(self) -> float:
        """What the messages gave away: 1 for all of half of the records, 0 for no more than a guess."""
        if self.errors is None or not self.errors.centred_guess.median:
            return 0.0
        return max(0.0, 1.0 - self.errors.centred.median / self.errors.centred_guess.median)


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The content of ``audit.json``.

    Attributes
    ----------
    raydr : str
        The version that made it.
    scenario : str
        SHA-256 of the run's scenario.yaml, by which it is known to be of this run.
    public : str
        Which public rows the attacks were given, as a clause.
    shown : tuple of str
        Names of the features that examples show.
    image : tuple of int or None
        Height, width and channels where a row is a picture; ``shown`` are then all features, in order.
    verdicts : tuple of Verdict
        In the order of ``raydr list attacks``.
    """

    raydr: str
    scenario: str
    public: str
    shown: tuple[str, ...]
    image: tuple[int, int, int] | None
    verdicts: tuple[Verdict, ...]

    @property
    def nearest(self) -> Verdict | None:
        """The attempt that recovered most, by its median error over that of guessing; None where none recovers."""
        found = [verdict for verdict in self.verdicts if verdict.errors is not None]
        return max(found, key=lambda verdict: verdict.leakage, default=None)

    @property
    def leakage(self) -> float:
        """Of the nearest attempt; 0 where none recovers anything."""
        return self.nearest.leakage if self.nearest is not None else 0.0

    @property
    def exact(self) -> float:
        """Largest part of the records that any attempt recovers exactly."""
        return max(
            (verdict.errors.exact for verdict in self.verdicts if verdict.errors is not None), default=0.0
        )

    @property
    def membership_auc(self) -> float | None:
        """Largest that any attempt reaches; None where none was made."""
        found = [verdict.membership.auc for verdict in self.verdicts if verdict.membership is not None]
        return max(found, default=None)

    @property
    def members(self) -> Membership | None:
        """The attempt that tells members from others best; None where none does."""
        found = [one.membership for one in self.verdicts if one.membership is not None]
        return max(
            (one for one in found if one.tells_apart), key=lambda one: (one.auc, one.tpr), default=None
        )

    @property
    def shares(self) -> ShareErrors | None:
        """The attempt that read groups' shares off best; None where guessing is as good."""
        found = [one.shares for one in self.verdicts if one.shares is not None and one.shares.beats_guessing]
        return min(found, key=lambda one: one.error / one.guess, default=None)

    @property
    def attributes(self) -> Verdict | None:
        """The attempt that tells most columns better than a guess, by a server that keeps to the protocol."""
        found = [one for one in self.verdicts if one.told and not one.departs]
        return max(found, key=lambda one: len(one.told), default=None)

    @property
    def reconstructions(self) -> int:
        """How many attacks that recover records applied."""
        return len({verdict.attack for verdict in self.verdicts if verdict.errors is not None})
