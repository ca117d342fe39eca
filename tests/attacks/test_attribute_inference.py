"""Inference of one column from posts and the other columns, and by a server that chooses its points."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attacked import federation_seen, skewed, truth_of, view_of

from raydr.attacks import ATTACKS, NotApplicableError, Side, View
from raydr.attacks.attribute_inference import attribute_inference, fitted_to_the_rest
from raydr.attacks.chosen_landmarks import chosen_landmarks
from raydr.attacks.per_record import replied
from raydr.attacks.scoring import judged
from raydr.attacks.verdicts import Audit, Verdict
from raydr.errors import RunError
from raydr.federation import ClientHost, HostedClient, Request, fingerprint
from raydr.federation.failures import Failure, Kind
from raydr.federation.transcript import Seen, Transcript
from raydr.federation.wire import Call
from raydr.methods.landmarks.maps import DistanceRequest
from raydr.methods.landmarks.spectral import KernelRequest
from raydr.methods.sense.clients import AnchorRequest
from raydr.methods.sense.spaces import EuclideanSpace
from raydr.privacy.gaussian import GaussianNoise
from raydr.privacy.ledger import RecordContent
from raydr.report.run.audited import lines
from raydr.report.run.server_knowledge import inferred_columns_text
from raydr.runfolder import read_run
from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import read
from raydr.statistics.scaling import ScaleRows

RECORDS = 240
ORIGINS = ("learnt", "k-means", "principal", "random")


def table(rows: int, seed: int) -> np.ndarray:
    """Return rows with an independent column 4 and a binary column 5."""
    made = skewed(rows, 8, seed)
    draw = np.random.default_rng((seed, 1))
    made[:, 4] = draw.normal(size=rows)
    made[:, 5] = draw.integers(0, 2, rows)
    return made


ROWS, PUBLIC = table(RECORDS, 0), table(160, 1)
POINTS = skewed(3, 8, 2) + np.random.default_rng(4).normal(size=(3, 8))
SIDE = Side(public=PUBLIC, known=np.arange(RECORDS)[::2], values=ROWS[::2], counts=(40,))


def seen(*requests: Request[Any], places: np.ndarray | None = None, **more: Any) -> View:
    view = view_of(np.array_split(ROWS, 3), *requests, **more)
    return replace(view, embedding=ROWS[:0, :2] if places is None else places)


def verdicts(name: str, view: View, side: Side = SIDE) -> list[Verdict]:
    return judged(
        ATTACKS[name], view, side, replace(truth_of(ROWS), columns=tuple("abcdefgh")), lambda kind: 3
    )


def column(verdict: Verdict, name: str) -> Any:
    return next(one for one in verdict.columns if one.column == name)


# ------------------------------------------------------------------------------------------------ the rest


def test_value_is_inferred_from_the_other_values_of_its_row() -> None:
    found = fitted_to_the_rest(PUBLIC, None)
    changed = ROWS.copy()
    changed[:, 4] += 100.0
    np.testing.assert_array_equal(found.inferred(ROWS, None)[:, 4], found.inferred(changed, None)[:, 4])


def test_joint_fit_equals_ridge_regression_of_each_column() -> None:
    found = fitted_to_the_rest(PUBLIC, None)
    standard = (PUBLIC - PUBLIC.mean(axis=0)) * found.factor
    largest = float(np.linalg.eigvalsh(standard.T @ standard)[-1])
    others = np.arange(8) != 4
    solutions = [
        np.linalg.solve(
            standard[:, others].T @ standard[:, others] + penalty * largest * np.eye(7),
            standard[:, others].T @ standard[:, 4],
        )
        for penalty in np.logspace(-13.0, 0.0, 14)
    ]
    assert min(float(np.abs(found.weights[others, 4] - one).max()) for one in solutions) < 1e-8


@pytest.mark.parametrize("numbers", [0, 30, 60])
def test_leave_one_out_errors_equal_refits(numbers: int) -> None:
    """Cases include at least as many columns and posts as rows, where a fit interpolates."""
    few = PUBLIC[:30]
    draw = np.random.default_rng(6)
    posted = few @ draw.normal(size=(8, numbers)) + draw.normal(size=(30, numbers)) if numbers else None
    found = fitted_to_the_rest(few, posted)
    off = []
    joint = few if posted is None else np.hstack([few, posted])
    np.testing.assert_allclose(found.factor[:7], 1.0 / few.std(axis=0)[:7])
    standard = (joint - joint.mean(axis=0)) * found.factor
    largest = float(np.linalg.eigvalsh(standard.T @ standard)[-1])
    others = np.arange(8 + numbers) != 4
    for penalty in np.logspace(-13.0, 0.0, 14):
        misses = []
        for row in range(30):
            kept = np.arange(30) != row
            centre = standard[kept].mean(axis=0)
            rest = (standard[kept] - centre)[:, others]
            weights = rest.T @ np.linalg.solve(
                rest @ rest.T + penalty * largest * np.eye(29), (standard[kept] - centre)[:, 4]
            )
            misses.append(standard[row, 4] - centre[4] - (standard[row] - centre)[others] @ weights)
        off.append(np.sqrt(np.mean(np.square(misses))))
    assert found.held_out[4] == pytest.approx(min(off), rel=1e-3)


def test_column_constant_up_to_rounding_is_constant() -> None:
    rows = PUBLIC.copy()
    rows[:, 5] = 1e8 * (1.0 + 1e-15 * np.arange(len(rows)))
    rows[:, 6] = 1e-3 + 1e-10 * PUBLIC[:, 0]
    found = fitted_to_the_rest(rows, None)
    np.testing.assert_array_equal(found.factor > 0.0, [True] * 5 + [False, True, False])
    inferred = found.inferred(rows, None)
    np.testing.assert_allclose(inferred[:, [5, 7]], rows[:, [5, 7]], rtol=1e-9)
    np.testing.assert_allclose(inferred[:, 6], rows[:, 6], rtol=0.0, atol=1e-11)


@pytest.mark.parametrize("rows", [160, 600])
def test_single_column_without_posts_is_inferred_by_its_mean(rows: int) -> None:
    """The error is over at most 500 left-out rows."""
    values = table(rows, 1)[:, :1]
    found = fitted_to_the_rest(values, None)
    np.testing.assert_allclose(found.inferred(ROWS[:, :1], None), np.full((RECORDS, 1), values.mean()))
    off = (values - (values.sum() - values) / (rows - 1))[:500]
    np.testing.assert_allclose(found.held_out, [np.sqrt(np.mean(off**2)) / values.std()])


def test_equal_rows_make_all_columns_known() -> None:
    found = fitted_to_the_rest(np.tile(PUBLIC[:1], (20, 1)), None)
    np.testing.assert_allclose(found.inferred(PUBLIC[:1], None), PUBLIC[:1])


# ------------------------------------------------------------------------------------------------ what posts add


@pytest.mark.parametrize(
    "request_",
    [DistanceRequest(POINTS), KernelRequest(POINTS, 0.001), AnchorRequest(POINTS, EuclideanSpace(), False)],
)
def test_unprotected_distances_reveal_an_independent_column(request_: Request[Any]) -> None:
    by_public, by_known = verdicts("attribute-inference", seen(request_))
    assert (by_public.numbers, by_known.numbers) == ({"public_rows": 160}, {"known_records": 40})
    for verdict in (by_public, by_known):
        found = column(verdict, "e")
        assert found.guess > 0.9
        assert found.error < 0.01
        two = column(verdict, "f")
        assert (two.accuracy, two.accuracy_guess) == (1.0, pytest.approx(0.5, abs=0.15))
        assert "h" not in {one.column for one in verdict.columns}  # constant


def test_random_map_reveals_nothing() -> None:
    places = np.random.default_rng(1).normal(size=(RECORDS, 2))
    (verdict,) = verdicts("attribute-inference", seen(places=places))
    assert not verdict.inferred_columns
    assert inferred_columns_text(audit_of(verdict)) == ""


def test_known_records_reveal_columns_under_a_key() -> None:
    (verdict,) = verdicts("attribute-inference", seen(DistanceRequest(POINTS), keyed=True))
    assert verdict.numbers == {"known_records": 40}
    assert column(verdict, "e").error < 0.01


def test_known_records_are_not_scored() -> None:
    known = np.arange(40)
    wrong = ROWS[:40].copy()
    wrong[:, 4] += 1e6  # a scored known record would show
    side = replace(SIDE, public=PUBLIC[:0], known=known, values=ROWS[:40], counts=(40,))
    truth = truth_of(np.concatenate([wrong, ROWS[40:]]))
    (verdict,) = judged(
        ATTACKS["attribute-inference"], seen(DistanceRequest(POINTS)), side, truth, lambda kind: 3
    )
    assert column(verdict, "4").error < 0.01


def test_inference_does_not_apply_without_training_rows() -> None:
    with pytest.raises(NotApplicableError, match="20 public rows"):
        list(attribute_inference(seen(DistanceRequest(POINTS)), Side(public=PUBLIC[:5])))


@pytest.mark.parametrize(("public", "known", "found"), [(20, 9, "public"), (19, 10, "known"), (19, 9, "")])
def test_twenty_public_rows_or_ten_known_records_are_enough(public: int, known: int, found: str) -> None:
    side = replace(SIDE, public=PUBLIC[:public], counts=(known,))
    attempts = attribute_inference(seen(DistanceRequest(POINTS)), side)
    if not found:
        with pytest.raises(NotApplicableError, match="10 known records"):
            list(attempts)
        return
    numbers = {"public": {"public_rows": 20}, "known": {"known_records": 10}}
    assert [one.numbers for one in attempts] == [numbers[found]]
    without = attribute_inference(seen(DistanceRequest(POINTS)), replace(SIDE, counts=()))
    assert [one.numbers for one in without] == [{"public_rows": 160}]


def test_columns_with_most_variance_are_inferred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raydr.attacks.attribute_inference.MOST_COLUMNS", 3)
    (found, _) = attribute_inference(seen(DistanceRequest(POINTS)), SIDE)
    np.testing.assert_array_equal(found.columns, np.sort(np.argsort(PUBLIC.std(axis=0))[-3:]))


def test_column_variance_comes_from_the_first_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two clients have different points and records that vary most in different columns."""
    monkeypatch.setattr("raydr.attacks.attribute_inference.MOST_COLUMNS", 2)
    draw = np.random.default_rng(0)
    parts = [
        draw.normal(size=(20, 4)) * [1.0, 9.0, 1.0, 9.0],
        draw.normal(size=(20, 4)) * [9.0, 9.0, 1.0, 1.0],
    ]
    transcript = Transcript()
    for client, part in enumerate(parts):
        request = DistanceRequest(POINTS[:, :4] + client)
        ((_, reply),) = view_of([part], request).transcript.of(request.reply)
        transcript.add(Seen(number=client + 1, round=0, request=request, client=client, reply=reply))
    side = Side(public=ROWS[:0, :4], known=np.arange(40), values=np.concatenate(parts), counts=(40,))
    (found,) = attribute_inference(View(transcript=transcript, sizes=(20, 20), embedding=ROWS[:0, :2]), side)
    np.testing.assert_array_equal(found.columns, [1, 3])


def test_unhelpful_posts_fall_back_to_the_other_columns() -> None:
    """Three clients have different points, and noise dominates their distances."""
    noise = GaussianNoise(on="distances", level=30.0)
    transcript = Transcript()
    for client, part in enumerate(np.array_split(ROWS, 3)):
        request = AnchorRequest(POINTS + client, EuclideanSpace(), False, noise)
        (reply,) = [each.reply for each in view_of([part], request).transcript if each.request == request]
        transcript.add(Seen(number=client + 1, round=0, request=request, client=client, reply=reply))
    (by_public, by_known) = attribute_inference(
        View(transcript=transcript, sizes=(80, 80, 80), embedding=ROWS[:0, :2]), replace(SIDE, counts=(120,))
    )
    for found in (by_public, by_known):
        estimates, guesses = found.inferred(ROWS)
        assert estimates.shape == guesses.shape == ROWS.shape
        same = (estimates == guesses).reshape(3, 80, 8)
        assert (same.mean(axis=(1, 2)) > 0.5).all()


# ------------------------------------------------------------------------------------------------ words


def audit_of(*verdicts_: Verdict) -> Audit:
    return Audit(raydr="", scenario="", public="", shown=(), image=None, verdicts=verdicts_)


def test_columns_are_listed_worst_first() -> None:
    (verdict, _) = verdicts("attribute-inference", seen(DistanceRequest(POINTS)))
    gains = [one.guess - one.error for one in verdict.columns]
    assert gains == sorted(gains, reverse=True)
    (line,) = lines(audit_of(verdict))
    assert line.beats
    assert f"{len(verdict.inferred_columns)} of 7 columns inferred better than by guessing" in line.details
    assert (
        f"of 7 columns of a record were inferred better than from its other columns alone:"
        f" {verdict.columns[0].column} to within" in (inferred_columns_text(audit_of(verdict)))
    )


def test_chosen_points_are_not_in_the_summary_sentence() -> None:
    (verdict,) = verdicts("chosen-landmarks", seen(DistanceRequest(POINTS)))
    assert verdict.departs
    assert verdict.inferred_columns
    assert inferred_columns_text(audit_of(verdict)) == ""
    assert audit_of(verdict).leakage == 0.0


# ------------------------------------------------------------------------------------------------ chosen points


@pytest.mark.parametrize(
    "request_",
    [DistanceRequest(POINTS), KernelRequest(POINTS, 0.001), AnchorRequest(POINTS, EuclideanSpace(), True)],
)
def test_two_points_that_differ_in_one_column_reveal_it(request_: Request[Any]) -> None:
    (verdict,) = verdicts("chosen-landmarks", seen(request_))
    assert len(verdict.columns) == 7
    assert max(one.error for one in verdict.columns) < 1e-6 < 0.5 < min(one.guess for one in verdict.columns)


@pytest.mark.parametrize("points", [POINTS, POINTS[:1]])
def test_chosen_points_have_the_spread_of_honest_ones(
    points: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spread is 1 if all honest points are equal."""
    sent = []

    def noted(request: Any, fed: np.ndarray, seed: int) -> Any:
        sent.append(request.landmarks)
        return replied(request, fed, seed)

    monkeypatch.setattr("raydr.attacks.chosen_landmarks.replied", noted)
    scaling = ScaleRows(np.ones(8), np.full(8, 0.5))
    (found,) = chosen_landmarks(seen(scaling, DistanceRequest(points)), SIDE)
    apart = sent[0][1:] - sent[0][0]
    far = float(np.sqrt(((points - points.mean(axis=0)) ** 2).sum(axis=1).mean())) or 1.0
    np.testing.assert_allclose(apart, far * np.eye(8))
    estimates, guesses = found.inferred(ROWS[found.rows])
    np.testing.assert_allclose(estimates, ROWS[found.rows], atol=1e-6)
    np.testing.assert_allclose(guesses, np.tile(PUBLIC.mean(axis=0), (len(found.rows), 1)))


def test_distance_noise_covers_replies_to_chosen_points() -> None:
    noisy = AnchorRequest(POINTS, EuclideanSpace(), False, GaussianNoise(on="distances", level=0.1))
    (verdict,) = verdicts("chosen-landmarks", seen(noisy))
    assert min(one.error for one in verdict.columns) > 0.05


@pytest.mark.parametrize(("view", "why"), [("keyed", "by a key"), ("bare", "posts distances")])
def test_inapplicable_attack_gives_a_reason(view: str, why: str) -> None:
    of = seen(DistanceRequest(POINTS), keyed=True) if view == "keyed" else seen(places=ROWS[:, :2])
    with pytest.raises(NotApplicableError, match=why):
        list(chosen_landmarks(of, SIDE))


def test_permanently_noisy_records_are_not_asked() -> None:
    noise = GaussianNoise(on="data", level=0.5)
    federation, transcript = federation_seen(np.array_split(ROWS, 3))
    federation.ask(DistanceRequest(POINTS))
    view = View(transcript=transcript, sizes=federation.sizes, embedding=ROWS[:0, :2])
    for each in transcript:
        object.__setattr__(each, "protection", noise)
    with pytest.raises(NotApplicableError, match="add permanent noise to their records"):
        list(chosen_landmarks(view, SIDE))
    assert [one.numbers for one in attribute_inference(view, SIDE)] == [{"known_records": 40}]


def test_client_measures_records_by_one_set_of_points() -> None:
    """Three points reveal two dimensions; a second set of points would reveal all."""
    federation, _ = federation_seen(np.array_split(ROWS, 3))
    first = federation.ask(DistanceRequest(POINTS))
    again = federation.ask(DistanceRequest(POINTS.copy()))
    np.testing.assert_array_equal(first[0].squared, again[0].squared)
    with pytest.raises(RunError, match=r"a second time for .*, with other points"):
        federation.ask(DistanceRequest(POINTS + 1e-9))
    with pytest.raises(RunError, match=r"a second time for .*, with other points"):
        federation.ask(KernelRequest(POINTS, 0.1))


def test_refused_points_are_a_failure_and_restart_keeps_the_first_set() -> None:
    host = ClientHost(hosted=[HostedClient(0, ROWS, fingerprint(ROWS))], seed=0)

    def answered(points: np.ndarray) -> Any:
        return host.ask(
            Call(request=DistanceRequest(points), number=1, round=0, attempt=0, clients=(0,), in_rounds=False)
        )[0]

    answered(POINTS)
    failure = answered(POINTS[:2])
    assert isinstance(failure, Failure)
    assert failure.kind is Kind.REQUEST_REFUSED
    host.restore(())
    assert not isinstance(answered(POINTS[:2]), Failure)


@pytest.mark.parametrize(
    "method",
    [
        *(
            {"kind": kind, "landmarks_from": origin}
            for kind in ("fed-umap", "fed-spectral")
            for origin in ORIGINS
        ),
        {"kind": "fed-tsne", "landmarks_from": "random"},
        {"kind": "sense", "anchors": 4},
        {"kind": "sense", "anchors": 4, "visibility": "partial"},
        {"kind": "sense", "anchor_source": "random"},
        {"kind": "fed-pca"},
    ],
    ids=lambda method: "-".join(str(value) for value in method.values()),
)
def test_honest_runs_measure_records_once(method: dict[str, Any], tmp_path: Path) -> None:
    more = {"clusters": 2} if method["kind"] == "fed-spectral" else {}
    if "landmarks_from" in method:
        more |= {"landmarks": 4} | ({"rounds": 2} if method["landmarks_from"] == "learnt" else {})
    scenario = read(
        {
            "name": "honest",
            "data": {"source": "iris", "rows": 60},
            "clients": {"count": 3},
            "method": method | more,
            "runtime": {"federation": "inline"},
            "metrics": ["npa_10"],
        }
    )
    folder = run(scenario, out=tmp_path / "run", report=False)
    measured = [
        entry
        for entry in read_run(folder).ledger
        if entry.tells in (RecordContent.DISTANCES, RecordContent.PROJECTIONS)
    ]
    assert [entry.count for entry in measured] == [3]
