"""Scoring of findings: errors, counts, thresholds and the best attempt, with values computed by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from attacked import truth_of

from raydr.arrays import Float64Array
from raydr.attacks import NotApplicableError, Side, View
from raydr.attacks.contract import (
    EXACT,
    Attack,
    Bounded,
    ColumnEstimates,
    Estimate,
    Finding,
    GroupShares,
    Piece,
    Reconstruction,
    Scored,
    Unordered,
)
from raydr.attacks.scoring import AttackErrors, column_errors, judged, membership_of, share_errors
from raydr.attacks.verdicts import (
    Audit,
    ColumnErrors,
    EpsilonBound,
    Errors,
    Membership,
    Quantiles,
    ShareErrors,
    Verdict,
)
from raydr.federation.transcript import Transcript
from raydr.methods.landmarks.maps import Distances
from raydr.methods.landmarks.spectral import Kernels

NOBODY = np.zeros(0, np.int64)
DRAW = np.random.default_rng(11)
ROWS = DRAW.normal(3.0, 2.0, (23, 4))
WRONG = DRAW.normal(0.0, 1.0, (23, 4))
GUESS = np.array([1.0, -2.0, 5.0, 0.5])


def view_of_sizes(*sizes: int) -> View:
    return View(transcript=Transcript(), sizes=sizes, embedding=np.zeros((0, 2)))


def recovered(values: Float64Array, **more: Any) -> Reconstruction:
    return Reconstruction(
        uses=(), knows="", estimate=Estimate.of(np.arange(len(values)), values), guess=GUESS, **more
    )


def verdicts(*findings: Finding, truth: Any = None, side: Side | None = None, sizes: Any = (23,)) -> Any:
    return judged(
        Attack("some", "does", lambda view, side: findings),
        view_of_sizes(*sizes),
        side or Side(public=ROWS[:0]),
        truth or truth_of(ROWS),
        {"Distances": 7, "Kernels": 2}.__getitem__,
    )


def quantiles(values: Any) -> Quantiles:
    return Quantiles(*np.quantile(values, [0.0, 0.01, 0.1, 0.5, 0.9]).tolist())


# ------------------------------------------------------------------------------------------------ reconstructions


def test_errors_are_relative_to_length_and_distance_from_mean() -> None:
    spared = np.array([3, 7, 8])
    counted = np.setdiff1d(np.arange(23), spared)
    values = ROWS + WRONG
    pieces = (Piece(rows, GUESS, values[rows] - GUESS) for rows in (np.arange(9), np.arange(9, 23)))
    found = AttackErrors.of(Estimate(tuple(pieces)), GUESS, truth_of(ROWS), spared)
    off, other = np.sqrt((WRONG**2).sum(axis=1)), np.sqrt(((GUESS - ROWS) ** 2).sum(axis=1))
    length, spread = np.sqrt((ROWS**2).sum(axis=1)), np.sqrt(((ROWS - ROWS.mean(axis=0)) ** 2).sum(axis=1))
    np.testing.assert_allclose(found.relative, off / length)
    np.testing.assert_allclose(found.centred, off / spread)
    np.testing.assert_array_equal(found.counted, ~np.isin(np.arange(23), spared))
    assert found.errors.records == 20
    for name, values in (
        ("relative", off / length),
        ("relative_guess", other / length),
        ("centred", off / spread),
        ("centred_guess", other / spread),
    ):
        of = getattr(found.errors, name)
        expected = quantiles(values[counted])
        assert vars(of) == pytest.approx(vars(expected), rel=1e-12)


def test_six_examples_range_from_best_to_worst() -> None:
    angle = 2.0 * np.pi * np.arange(11) / 11.0
    truth = truth_of(np.column_stack([np.cos(angle), np.sin(angle)]))  # all as far from the mean
    off = np.random.default_rng(0).permutation(11)
    estimate = Estimate.of(np.arange(11), truth.rows + off[:, None])
    shown = AttackErrors.of(estimate, np.zeros(2), truth, NOBODY).examples(estimate, truth)
    assert [off[int(one.row)] for one in shown] == [0, 2, 4, 6, 8, 10]


def test_exact_part_is_of_scored_records() -> None:
    """Ten of 23 records are exact and two of them are not scored: eight of 21."""
    values = np.where(np.arange(23)[:, None] < 10, ROWS, ROWS + WRONG)
    found = AttackErrors.of(Estimate.of(np.arange(23), values), GUESS, truth_of(ROWS), np.array([0, 1]))
    assert found.errors.exact == 8 / 21


def test_record_at_the_threshold_is_not_exact() -> None:
    """All records are at distance 4 from the mean; the first error is the threshold, the last is half of it."""
    rows = np.array([[0.0, 4.0], [0.0, -4.0], [0.0, 4.0], [0.0, -4.0]])
    moved = rows + np.array([[4.0 * EXACT, 0.0], [0.0, 0.0], [0.0, 0.0], [2.0 * EXACT, 0.0]])
    finding = replace(recovered(moved), guess=np.zeros(2), certain=np.ones(4, np.bool_))
    (verdict,) = verdicts(finding, truth=truth_of(rows), sizes=(4,))
    assert verdict.errors.exact == 0.75
    assert (verdict.certificate.called_exact, verdict.certificate.of_those_exact) == (4, 3)


def test_certain_records_are_counted_among_scored_ones() -> None:
    """The attack is certain of 0 to 11; 0 to 4 are not scored; 3 to 8 are exact."""
    values = np.where(np.isin(np.arange(23), np.arange(3, 9))[:, None], ROWS, ROWS + WRONG)
    finding = recovered(values, certain=np.arange(23) < 12)
    (verdict,) = verdicts(finding, side=Side(public=ROWS[:0], spared=np.arange(5)))
    assert (verdict.certificate.called_exact, verdict.certificate.of_those_exact) == (7, 4)
    assert verdict.errors.records == 18


def test_known_records_of_an_attempt_are_not_scored() -> None:
    known = np.array([20, 4, 9, 1])
    side = Side(public=ROWS[:0], known=known, values=ROWS[known], spared=np.array([4, 22]))
    (verdict,) = verdicts(recovered(ROWS + WRONG, numbers={"known_records": 3}), side=side)
    assert verdict.errors.records == 23 - len({20, 4, 9, 22})
    (verdict,) = verdicts(recovered(ROWS + WRONG), side=side)
    assert verdict.errors.records == 21
    with pytest.raises(NotApplicableError, match="already knows every record"):
        AttackErrors.of(Estimate.of(np.arange(23), ROWS), GUESS, truth_of(ROWS), np.arange(23))
    with pytest.raises(NotApplicableError, match="no client has a record"):
        AttackErrors.of(Estimate(()), GUESS, truth_of(ROWS), NOBODY)


def test_record_at_the_mean_uses_a_millionth_of_the_usual_distance() -> None:
    """Distances from the mean are 0.3, 0.3, 0 and 0: the usual one is sqrt(0.18 / 4), and 1 for equal records."""
    rows = np.array([[0.3], [-0.3], [0.0], [0.0]])
    found = AttackErrors.of(Estimate.of(np.arange(4), rows + 0.5), np.zeros(1), truth_of(rows), NOBODY)
    usual = 1e-6 * np.sqrt(0.045)
    np.testing.assert_allclose(found.centred, [0.5 / 0.3, 0.5 / 0.3, 0.5 / usual, 0.5 / usual], rtol=1e-12)
    same = np.zeros((4, 1))
    found = AttackErrors.of(Estimate.of(np.arange(4), same + 0.25), np.zeros(1), truth_of(same), NOBODY)
    np.testing.assert_array_equal(found.centred, 0.25)


def test_examples_are_spread_over_the_error_quantiles() -> None:
    """Of 21 scored records, 6 are shown: the best, the 4th, 8th, 12th and 16th after it, and the worst."""
    spared = np.array([0, 12])
    truth = replace(truth_of(ROWS), shown=np.array([3, 1]), names=[f"row {row}" for row in range(23)])
    (verdict,) = verdicts(recovered(ROWS + WRONG), truth=truth, side=Side(public=ROWS[:0], spared=spared))
    centred = np.sqrt((WRONG**2).sum(axis=1)) / np.sqrt(((ROWS - ROWS.mean(axis=0)) ** 2).sum(axis=1))
    counted = np.setdiff1d(np.arange(23), spared)
    order = counted[np.argsort(centred[counted])]
    assert [one.row for one in verdict.examples] == [f"row {order[place]}" for place in (0, 4, 8, 12, 16, 20)]
    for one in verdict.examples:
        row = int(one.row.split()[1])
        assert one.error == pytest.approx(centred[row], rel=1e-12)
        assert one.true == tuple(float(f"{value:.5g}") for value in ROWS[row, [3, 1]])
        assert one.recovered == tuple(float(f"{value:.5g}") for value in (ROWS + WRONG)[row, [3, 1]])


def test_unordered_estimates_are_matched_within_each_client() -> None:
    draw = np.random.default_rng(5)
    estimates = {1: draw.normal(3.0, 2.0, (4, 4)), 3: draw.normal(3.0, 2.0, (5, 4))}
    sizes, firsts = (6, 4, 8, 5), {1: 6, 3: 18}
    (verdict,) = verdicts(Unordered(uses=(), knows="", parts=estimates, guess=GUESS), sizes=sizes)
    matched: dict[int, Any] = {}
    for client, values in estimates.items():
        own = np.arange(firsts[client], firsts[client] + len(values))
        best = min(permutations(values.tolist()), key=lambda one, own=own: ((one - ROWS[own]) ** 2).sum())
        matched |= dict(zip(own.tolist(), best, strict=True))
    rows = np.array(list(matched))
    expected = AttackErrors.of(
        Estimate.of(rows, np.array(list(matched.values()))), GUESS, truth_of(ROWS), NOBODY
    )
    assert verdict.errors == expected.errors
    assert verdict.errors.records == 9
    (verdict,) = verdicts(Unordered(uses=(), knows="", parts={}, guess=GUESS))
    assert verdict.why == "no client is small enough."


# ------------------------------------------------------------------------------------------------ membership


@pytest.mark.parametrize(
    ("others", "above", "found"),
    [(999, 0, 0.4), (999, 1, 0.0), (1000, 1, 0.4), (1000, 2, 0.0), (1999, 1, 0.4), (1999, 2, 0.0)],
)
def test_false_alarm_count_is_rounded_down(others: int, above: int, found: float) -> None:
    """Two of five members score 2, and two others score 3."""
    scores = np.array([2.0, 2.0, 0.0, 0.0, -1.0, *[3.0] * above, *[0.0] * (others - above)])
    reported = membership_of(scores, np.arange(len(scores)) < 5)
    assert (reported.tpr, reported.members, reported.others) == (found, 5, others)


def test_members_at_the_threshold_are_not_found() -> None:
    reported = membership_of(np.array([2.0, 1.0, 2.0, 0.0]), np.array([True, True, False, False]))
    assert reported.tpr == 0.0
    assert reported.auc == (0.5 + 1 + 0 + 1) / 4  # of four pairs two are won, one is even, one is lost


def test_membership_needs_members_and_others() -> None:
    for members in (np.ones(4, np.bool_), np.zeros(4, np.bool_)):
        with pytest.raises(NotApplicableError, match="candidates are not of both kinds"):
            membership_of(np.arange(4.0), members)


@pytest.mark.parametrize(
    ("auc", "tpr", "members", "tells"),
    [
        (0.6, 0.0, 100, False),
        (0.601, 0.0, 100, True),
        (0.4, 0.0, 100, False),
        (0.5, 15 / 1500, 1500, False),  # a hundredth
        (0.5, 15 / 1499, 1499, True),
        (0.5, 14 / 1000, 1000, False),  # too few to exclude chance
        (0.5, 15 / 1000, 1000, True),
        (0.5, 1.0, 14, False),
    ],
)
def test_membership_succeeds_by_auc_or_by_certain_members(
    auc: float, tpr: float, members: int, tells: bool
) -> None:
    assert Membership(auc=auc, tpr=tpr, members=members, others=2000).tells_apart is tells


# ------------------------------------------------------------------------------------------------ shares, columns


def test_share_errors_are_means_over_clients_and_groups() -> None:
    rows = np.array([[1.0, 5.0], [2.0, 6.0], [3.0, 5.0], [9.0, 9.0]])
    shares = np.array([[0.5, 0.25], [0.125, 0.875], [1.0, 0.5]])
    guess = np.array([0.25, 0.75])
    view, truth = view_of_sizes(3, 0, 1), truth_of(rows)
    above = GroupShares(
        uses=(),
        knows="",
        shares=shares,
        guess=guess,
        columns=np.array([1, 0]),
        thresholds=np.array([5.0, 1.0]),
    )
    # Above 5 in the second column, above 1 in the first: 1/3 and 2/3 of the first client, all of the last.
    found = share_errors(above, view, truth)
    assert found.error == pytest.approx((1 / 6 + 5 / 12 + 0.0 + 0.5) / 4)
    assert found.guess == pytest.approx((1 / 12 + 1 / 12 + 0.75 + 0.25) / 4)
    assert (found.groups, found.clients) == (2, 2)
    # Classes 0, 1, 1 of the first client's records, and 0 of the last's.
    classes = GroupShares(uses=(), knows="", shares=shares, guess=guess)
    found = share_errors(classes, view, replace(truth, classes=np.array([0, 1, 1, 0])))
    assert found.error == pytest.approx((1 / 6 + 5 / 12 + 0.0 + 0.5) / 4)


@pytest.mark.parametrize(("error", "beats"), [(0.89, True), (0.9, False), (0.91, False)])
def test_success_needs_a_tenth_less_error_than_guessing(error: float, beats: bool) -> None:
    assert ShareErrors(error=error, guess=1.0, groups=1, clients=1).beats_guessing is beats
    assert ShareErrors(error=error / 2.0, guess=0.5, groups=1, clients=1).beats_guessing is beats
    assert ColumnErrors(column="a", error=error, guess=1.0).beats_guessing is beats
    assert ColumnErrors(column="a", error=error / 2.0, guess=0.5).beats_guessing is beats


def test_column_known_from_the_others_is_not_a_leak() -> None:
    assert not ColumnErrors(column="a", error=0.0, guess=1e-3).beats_guessing
    assert ColumnErrors(column="a", error=0.0, guess=1.1e-3).beats_guessing


def columns_of(
    true: Float64Array, estimates: Float64Array, guesses: Float64Array, spared: Any = NOBODY, **truth: Any
) -> tuple[ColumnErrors, ...]:
    finding = ColumnEstimates(
        uses=(),
        knows="",
        rows=np.arange(len(true)),
        columns=np.arange(true.shape[1]),
        inferred=lambda rows: (estimates, guesses),
    )
    return column_errors(finding, replace(truth_of(true), **truth), np.asarray(spared, np.int64))


def test_column_errors_are_relative_to_their_deviation() -> None:
    """Four records are scored. Messages reveal less of column b than of d; the others are nearly constant."""
    b, d = np.array([1.0, -1.0, 3.0, 5.0, 99.0]), np.array([0.0, 2.0, 4.0, 6.0, 9.0])
    constant, near = np.array([0.1, 0.1, 0.1, 0.1, 9.0]), np.array([0.0, 1e-200, 0.0, 0.0, 9.0])
    true = np.column_stack([constant, b, near, d])
    estimates, guesses = true + np.array([0.1, 1.0, 0.1, 0.9]), true + np.array([0.5, 2.0, 0.5, 7.0])
    deviation = np.sqrt(5.0)
    most, least = columns_of(true, estimates, guesses, spared=[4], columns=("a", "b", "c", "d"))
    assert (most.column, least.column) == ("d", "b")
    assert (most.error, most.guess) == (pytest.approx(0.9 / deviation), 1.0)
    assert (least.error, least.guess) == (pytest.approx(1.0 / deviation), pytest.approx(2.0 / deviation))
    assert (most.accuracy, most.accuracy_guess) == (None, None)
    assert [one.column for one in columns_of(true, estimates, guesses, spared=[4])] == ["3", "1"]


def test_binary_columns_are_scored_by_balanced_accuracy() -> None:
    """Values are 2 and 6, so estimates above 4 mean 6, and 4 itself means 2."""
    true = np.array([[6.0], [2.0], [2.0], [2.0], [6.0]])
    estimates = np.array([[4.1], [3.9], [5.0], [4.0], [4.0]])  # of 6 one of two, of 2 two of three
    guesses = np.array([[3.0], [3.0], [5.0], [5.0], [3.0]])  # of 6 none, of 2 one
    (found,) = columns_of(true, estimates, guesses)
    assert found.accuracy == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert found.accuracy_guess == pytest.approx((0.0 + 1 / 3) / 2)


def test_constant_columns_are_no_test() -> None:
    with pytest.raises(NotApplicableError, match="no column of these records varies"):
        columns_of(np.ones((4, 2)), np.ones((4, 2)), np.ones((4, 2)))
    tenths = np.full((23, 1), 0.1)
    assert tenths.std() > 0.0  # rounding
    with pytest.raises(NotApplicableError, match="no column of these records varies"):
        columns_of(tenths, tenths, tenths)
    with pytest.raises(NotApplicableError, match="already knows every record"):
        columns_of(ROWS, ROWS, ROWS, spared=np.arange(23))


# ------------------------------------------------------------------------------------------------ verdicts


def test_worst_draw_of_a_variant_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three draws take 1.2345, 2.5 and 0.25 seconds; another attempt takes 3."""
    clock = iter([10.0, 11.2345, 20.0, 22.5, 30.0, 30.25, 40.0, 43.0004, 50.0])
    monkeypatch.setattr("raydr.attacks.scoring.time", SimpleNamespace(perf_counter=lambda: next(clock)))
    draws = [
        recovered(ROWS + part * WRONG, variant="drawn", numbers={"part": part}) for part in (0.5, 0.125, 0.25)
    ]
    worst, single = verdicts(*draws, recovered(ROWS + WRONG, variant="single", numbers={"part": 1.0}))
    assert worst.numbers == {"part": 0.125, "draws": 3}
    assert single.numbers == {"part": 1.0}
    assert (worst.variant, single.variant) == ("drawn", "single")
    assert worst.seconds in (3.984, 3.985)
    assert single.seconds == 3.0


def test_verdict_has_only_the_fields_of_its_finding() -> None:
    truth = replace(truth_of(ROWS, members=np.array([True, False, False])), classes=np.arange(23) % 2)
    bound = {"epsilon": 0.5, "measured": 1.5, "claimed": 1.25, "delta": 1e-6, "confidence": 0.99}
    about: dict[str, Any] = {"knows": "a little", "numbers": {"n": 3.0}, "uses": (Kernels, Distances)}
    columns: dict[str, Any] = {
        "rows": np.arange(23),
        "columns": np.arange(2),
        "inferred": lambda rows: (ROWS[:, :2], WRONG[:, :2]),
    }
    findings = {
        "errors": Reconstruction(
            estimate=Estimate.of(np.arange(23), ROWS), guess=GUESS, variant="a", **about
        ),
        "membership": Scored(scores=np.array([2.0, 1.0, 0.0]), variant="b", **about),
        "shares": GroupShares(shares=np.full((1, 2), 0.5), guess=np.full(2, 0.5), variant="c", **about),
        "columns": ColumnEstimates(variant="d", departs=True, **columns, **about),
        "bound": Bounded(variant="e", **bound, **about),
    }
    found = verdicts(*findings.values(), ColumnEstimates(variant="f", **columns, **about), truth=truth)
    assert [one.variant for one in found] == list("abcdef")
    for kind, verdict in zip([*findings, "columns"], found, strict=True):
        assert {name for name in findings if getattr(verdict, name)} == {kind}
        assert (verdict.attack, verdict.description, verdict.knows) == ("some", "does", "a little")
        assert verdict.messages == {"Kernels": 2, "Distances": 7}
        assert (verdict.numbers, verdict.why) == ({"n": 3.0}, "")
        assert verdict.certificate is None
        assert bool(verdict.examples) is (kind == "errors")
    assert [one.departs for one in found] == [False, False, False, True, False, False]
    assert vars(found[4].bound) == bound


def test_interrupted_attack_keeps_its_findings_and_a_reason() -> None:
    def stopping(view: View, side: Side) -> Iterator[Finding]:
        yield recovered(ROWS + WRONG, variant="first")
        raise NotApplicableError("it is tired.")

    first, then = judged(
        Attack("x", "y", stopping), view_of_sizes(23), Side(public=ROWS[:0]), truth_of(ROWS), {}.__getitem__
    )
    assert first.errors is not None
    assert (then.attack, then.description, then.why, then.errors) == ("x", "y", "it is tired.", None)
    assert then.seconds == 0.0


@pytest.mark.parametrize(
    ("epsilon", "measured", "shown", "broken"),
    [
        (0.5, 1.0, 1.0, False),
        (1.0 + 5e-10, 0.5, 1.0 + 5e-10, False),
        (0.5, 1.0 + 2e-9, 1.0 + 2e-9, True),
        (1.0 + 2e-9, 1.0, 1.0 + 2e-9, True),
    ],
)
def test_claim_is_broken_by_the_larger_bound(
    epsilon: float, measured: float, shown: float, broken: bool
) -> None:
    for unit in (1.0, 3.0):
        bound = EpsilonBound(
            epsilon=epsilon * unit, measured=measured * unit, claimed=unit, delta=1e-5, confidence=0.999
        )
        assert bound.shown == shown * unit
        assert bound.is_broken is broken


# ------------------------------------------------------------------------------------------------ audits


def attempt(name: str, **found: Any) -> Verdict:
    return Verdict(attack=name, description="", **found)


def errors(median: float, guess: float, exact: float = 0.0) -> Errors:
    def all_of(value: float) -> Quantiles:
        return Quantiles(value, value, value, value, value)

    one = all_of(1.0)
    return Errors(
        records=5,
        relative=one,
        relative_guess=one,
        centred=all_of(median),
        centred_guess=all_of(guess),
        exact=exact,
    )


def audit_of(*found: Verdict) -> Audit:
    return Audit(raydr="", scenario="", public="", shown=(), image=None, verdicts=found)


@pytest.mark.parametrize(
    ("median", "guess", "leakage"), [(0.25, 1.0, 0.75), (0.25, 0.5, 0.5), (2.0, 0.5, 0.0), (1.0, 0.0, 0.0)]
)
def test_leakage_is_the_relative_reduction_of_the_guess_error(
    median: float, guess: float, leakage: float
) -> None:
    assert attempt("a", errors=errors(median, guess)).leakage == leakage
    assert errors(median, guess).beats_guessing is (median < guess)
    assert not errors(guess, guess).beats_guessing


def test_audit_reports_the_worst_of_each_kind() -> None:
    lost, won = (
        Membership(auc=auc, tpr=tpr, members=100, others=100) for auc, tpr in ((0.55, 0.0), (0.7, 0.1))
    )
    as_good = replace(won, tpr=0.2)
    shares = [
        ShareErrors(error=error, guess=guess, groups=2, clients=2)
        for error, guess in ((0.1, 0.2), (0.2, 0.8), (0.05, 0.05))
    ]
    columns = tuple(ColumnErrors(column=name, error=0.5, guess=1.0) for name in "abc")
    found = audit_of(
        attempt("far", errors=errors(0.9, 1.0, exact=0.25)),
        attempt("near", variant="one", errors=errors(0.2, 0.4)),
        attempt("near", variant="two", errors=errors(0.25, 1.0, exact=0.125)),
        attempt("inapplicable", why="none."),
        *(attempt("membership", membership=one) for one in (lost, won, as_good, won)),
        *(attempt("shares", shares=one) for one in shares),
        attempt("columns", variant="one", columns=(*columns[:1], replace(columns[0], error=1.0))),
        attempt("columns", variant="two", columns=columns[:2]),
        attempt("departing", columns=columns, departs=True),
    )
    assert found.nearest is not None
    assert (found.nearest.variant, found.leakage, found.exact, found.reconstructions) == (
        "two",
        0.75,
        0.25,
        2,
    )
    assert (found.membership_auc, found.members, found.shares) == (0.7, as_good, shares[1])
    assert found.attributes is not None
    assert (found.attributes.variant, found.attributes.inferred_columns) == ("two", columns[:2])


def test_audit_without_findings_reports_none() -> None:
    nothing = audit_of(attempt("inapplicable", why="none."))
    assert (nothing.nearest, nothing.leakage, nothing.exact, nothing.reconstructions) == (None, 0.0, 0.0, 0)
    assert (nothing.membership_auc, nothing.members, nothing.shares, nothing.attributes) == (None,) * 4
    chance = Membership(auc=0.5, tpr=0.0, members=100, others=100)
    poor = ShareErrors(error=0.95, guess=1.0, groups=2, clients=2)
    guessed = audit_of(attempt("m", membership=chance), attempt("s", shares=poor))
    assert (guessed.membership_auc, guessed.members, guessed.shares) == (0.5, None, None)
