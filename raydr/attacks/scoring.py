"""Scores of findings against the records, which only a simulation has."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from raydr.arrays import BoolArray, Float64Array, FloatArray, Int64Array
from raydr.attacks.contract import (
    EXACT,
    Attack,
    Bounded,
    ColumnEstimates,
    Estimate,
    Finding,
    GroupShares,
    NotApplicableError,
    Reconstruction,
    Scored,
    Side,
    Unordered,
    View,
)
from raydr.attacks.verdicts import (
    Certificate,
    ColumnErrors,
    EpsilonBound,
    Errors,
    Example,
    Membership,
    Quantiles,
    ShareErrors,
    Verdict,
)

EXAMPLES = 6
"""Number of records to show next to their estimates, evenly over the quantiles of the error."""


@dataclass(kw_only=True, frozen=True)
class Truth:
    """The truth, which only an audit knows.

    Attributes
    ----------
    rows : (rows, features)
        All records, client by client, in the run's units.
    names : sequence of str, (rows,)
        Identities of the records.
    members : (candidates,) bool
        Candidates of the side knowledge that are in the run.
    shown : (features shown,) int64
        Columns that examples show.
    classes : (rows,) int64
        Class of each record, if rows have classes.
    columns : sequence of str, (features,)
        Names of all columns. Without names, columns are numbered.
    """

    rows: FloatArray
    names: Sequence[str]
    members: BoolArray
    shown: Int64Array
    classes: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    columns: Sequence[str] = ()

    @property
    def mean(self) -> Float64Array:
        """Mean of all records."""
        return np.asarray(self.rows.mean(axis=0, dtype=np.float64))


def judged(
    attack: Attack, view: View, side: Side, truth: Truth, counts: Callable[[str], int]
) -> list[Verdict]:
    """Return the verdicts on an attack's findings. If the attack does not apply, one verdict gives the reason.

    Findings of the same variant are draws of one attempt, and the verdict uses the draw that recovered most.
    ``counts`` returns the ledger's number of messages of a kind.
    """
    verdicts = []
    started = time.perf_counter()
    try:
        findings = iter(attack.mount(view, side))
        while (finding := next(findings, None)) is not None:
            verdicts.append(
                _verdict(attack, finding, view, side, truth, counts, time.perf_counter() - started)
            )
            started = time.perf_counter()
    except NotApplicableError as reason:
        why = str(reason)
        verdicts.append(Verdict(attack=attack.name, description=attack.description, why=why))
    draws: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        draws.setdefault(verdict.variant, []).append(verdict)
    return [_worst(drawn) for drawn in draws.values()]


def _worst(drawn: Sequence[Verdict]) -> Verdict:
    """Return the draw that recovered most, with the number of draws and the seconds of all."""
    worst = max(drawn, key=lambda one: one.leakage)
    if len(drawn) == 1:
        return worst
    seconds = round(sum(one.seconds for one in drawn), 3)
    return replace(worst, numbers={**worst.numbers, "draws": len(drawn)}, seconds=seconds)


def _verdict(
    attack: Attack,
    finding: Finding,
    view: View,
    side: Side,
    truth: Truth,
    counts: Callable[[str], int],
    seconds: float,
) -> Verdict:
    errors, certificate, membership, shares, bound = None, None, None, None, None
    examples: tuple[Example, ...] = ()
    columns: tuple[ColumnErrors, ...] = ()
    match finding:
        case Reconstruction():
            scored = AttackErrors.of(finding.estimate, finding.guess, truth, _known(finding, side))
            errors, examples = scored.errors, scored.examples(finding.estimate, truth)
            if finding.certain is not None:
                called = finding.certain & scored.counted
                certificate = Certificate(int(called.sum()), int((scored.centred[called] < EXACT).sum()))
        case Unordered():
            matched = _matched(finding, view, truth)
            scored = AttackErrors.of(matched, finding.guess, truth, side.spared)
            errors, examples = scored.errors, scored.examples(matched, truth)
        case Scored():
            membership = membership_of(finding.scores, truth.members)
        case GroupShares():
            shares = share_errors(finding, view, truth)
        case ColumnEstimates():
            columns = column_errors(finding, truth, _known(finding, side))
        case Bounded():
            bound = EpsilonBound(
                epsilon=finding.epsilon,
                measured=finding.measured,
                claimed=finding.claimed,
                delta=finding.delta,
                confidence=finding.confidence,
            )
    return Verdict(
        attack=attack.name,
        description=attack.description,
        variant=finding.variant,
        messages={kind.__name__: counts(kind.__name__) for kind in finding.uses},
        knows=finding.knows,
        numbers=dict(finding.numbers),
        errors=errors,
        certificate=certificate,
        membership=membership,
        shares=shares,
        columns=columns,
        departs=isinstance(finding, ColumnEstimates) and finding.departs,
        bound=bound,
        examples=examples,
        seconds=round(seconds, 3),
    )


def _known(finding: Finding, side: Side) -> Int64Array:
    """Return the numbers of records that an attempt knows, which are not scored."""
    return np.union1d(side.spared, side.known[: int(finding.numbers.get("known_records", 0))])


@dataclass(frozen=True)
class AttackErrors:
    """Errors of estimates, in the order of the estimate's rows. ``counted`` marks those that are scored."""

    rows: Int64Array
    relative: Float64Array
    centred: Float64Array
    errors: Errors
    counted: BoolArray

    @classmethod
    def of(cls, estimate: Estimate, guess: Float64Array, truth: Truth, spared: Int64Array) -> AttackErrors:
        """Return the distances of every estimate, and of one guess for all, from the records.

        Raises
        ------
        NotApplicableError
            If no record is left to score.
        """
        centre = truth.mean
        found = []
        for numbers, block in estimate.blocks():
            true = np.asarray(truth.rows[numbers], np.float64)
            apart = block - true, guess - true, true, true - centre
            found.append(np.stack([np.linalg.norm(part, axis=1) for part in apart]))
        if not found:
            raise NotApplicableError("no client has a record to recover.")
        far, other, length, spread = np.concatenate(found, axis=1)
        counted = ~np.isin(estimate.rows, spared)
        if not counted.any():
            raise NotApplicableError("the attack already knows every record.")
        length, spread = (_above_zero(size) for size in (length, spread))
        errors = Errors(
            records=int(counted.sum()),
            relative=_quantiles((far / length)[counted]),
            relative_guess=_quantiles((other / length)[counted]),
            centred=_quantiles((far / spread)[counted]),
            centred_guess=_quantiles((other / spread)[counted]),
            exact=float(((far / spread)[counted] < EXACT).mean()),
        )
        return cls(estimate.rows, far / length, far / spread, errors, counted)

    def examples(self, estimate: Estimate, truth: Truth) -> tuple[Example, ...]:
        """Return some records with their estimates, evenly over the quantiles of the error."""
        among = np.flatnonzero(self.counted)
        order = among[np.argsort(self.centred[among], kind="stable")]
        places = order[np.unique(np.linspace(0, len(order) - 1, EXAMPLES).round().astype(np.int64))]
        wanted = {int(self.rows[place]): place for place in places}
        recovered: dict[int, Float64Array] = {}
        for numbers, block in estimate.blocks():
            for at in np.flatnonzero(np.isin(numbers, list(wanted))):
                recovered[int(numbers[at])] = block[at][truth.shown]
        return tuple(
            Example(
                str(truth.names[row]),
                _rounded(truth.rows[row][truth.shown]),
                _rounded(recovered[row]),
                float(self.centred[place]),
            )
            for row, place in wanted.items()
        )


def membership_of(scores: Float64Array, members: BoolArray) -> Membership:
    """Return the area under the curve, and the share of members found at one false alarm in 1,000.

    >>> membership_of(np.array([3.0, 2.0, 1.0, 0.0]), np.array([True, False, True, False])).auc
    0.75
    """
    from scipy.stats import rankdata

    inside, outside = int(members.sum()), int((~members).sum())
    if not inside or not outside:
        raise NotApplicableError("the candidates are not of both kinds, in the run and not in the run.")
    ranks = rankdata(scores)
    auc = (ranks[members].sum() - inside * (inside + 1) / 2.0) / (inside * outside)
    threshold = np.sort(scores[~members])[::-1][outside // 1000]
    found = float((scores[members] > threshold).mean())
    return Membership(auc=float(auc), tpr=found, members=inside, others=outside)


def share_errors(finding: GroupShares, view: View, truth: Truth) -> ShareErrors:
    """Return the mean absolute error of shares, over clients with rows and over groups."""
    if finding.columns is None or finding.thresholds is None:
        belongs = truth.classes[:, None] == np.arange(len(finding.guess))
    else:
        belongs = truth.rows[:, finding.columns] > finding.thresholds
    clients = [client for client, size in enumerate(view.sizes) if size]
    true = np.stack([belongs[view.rows_of(client)].mean(axis=0) for client in clients])
    return ShareErrors(
        error=float(np.abs(finding.shares[clients] - true).mean()),
        guess=float(np.abs(finding.guess - true).mean()),
        groups=len(finding.guess),
        clients=len(clients),
    )


def column_errors(finding: ColumnEstimates, truth: Truth, spared: Int64Array) -> tuple[ColumnErrors, ...]:
    """Return the errors of each column that varies, first those where the messages add most.

    Raises
    ------
    NotApplicableError
        If no record is left to score, or no column varies.
    """
    records = np.asarray(truth.rows[finding.rows], np.float64)
    counted = ~np.isin(finding.rows, spared)
    if not counted.any():
        raise NotApplicableError("the attack already knows every record.")
    estimates, guesses = (one[counted] for one in finding.inferred(records))
    true = records[counted][:, finding.columns]
    found = []
    for place, column in enumerate(finding.columns):
        values, deviation = np.unique(true[:, place]), float(true[:, place].std())
        if len(values) < 2 or not deviation:
            continue
        off = [
            float(np.sqrt(((one[:, place] - true[:, place]) ** 2).mean())) / deviation
            for one in (estimates, guesses)
        ]
        right: list[float | None] = [None, None]
        if len(values) == 2:
            above = true[:, place] == values[1]
            above_mean = [one[:, place] > values.mean() for one in (estimates, guesses)]
            right = [float((one[above].mean() + (~one[~above]).mean()) / 2.0) for one in above_mean]
        found.append(
            ColumnErrors(
                column=str(truth.columns[column]) if len(truth.columns) else str(column),
                error=off[0],
                guess=min(off[1], 1.0),  # the column's mean is also a guess
                accuracy=right[0],
                accuracy_guess=right[1],
            )
        )
    if not found:
        raise NotApplicableError("no column of these records varies.")
    return tuple(sorted(found, key=lambda one: one.error - one.guess))


def _matched(finding: Unordered, view: View, truth: Truth) -> Estimate:
    """Assign each client's estimates to its records with the smallest sum of squared errors."""
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    rows, values = [], []
    for client, estimates in finding.parts.items():
        numbers = view.rows_of(client)
        cost = cdist(np.asarray(truth.rows[numbers], np.float64), estimates, "sqeuclidean")
        order = linear_sum_assignment(cost)[1]
        rows.append(numbers)
        values.append(estimates[order])
    if not rows:
        raise NotApplicableError("no client is small enough.")
    return Estimate.of(np.concatenate(rows), np.concatenate(values))


def _above_zero(sizes: Float64Array) -> Float64Array:
    """Raise sizes near 0 to a millionth of the typical size, because a record can be the mean itself."""
    typical = float(np.sqrt((sizes**2).mean()))
    return np.maximum(sizes, 1e-6 * typical if typical > 0.0 else 1.0)


def _quantiles(values: Float64Array) -> Quantiles:
    return Quantiles(*(float(value) for value in np.quantile(values, [0.0, 0.01, 0.1, 0.5, 0.9])))


def _rounded(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(float(f"{value:.5g}") for value in values)
