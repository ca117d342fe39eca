"""Attacks by regression learn from rows whose posts the server can compute or knows, and beat a guess."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from attacked import scored, skewed, truth_of, turned, view_of
from scipy.special import ndtr

from raydr.arrays import Float64Array
from raydr.attacks import ATTACKS, NotApplicableError, Reconstruction, Side, View
from raydr.attacks.contract import Attack, Estimate, GroupShares
from raydr.attacks.inner_part import turned as with_turn
from raydr.attacks.learnt_inversion import FEW, _surroundings, learnt_inversion, map_inversion
from raydr.attacks.per_record import per_record
from raydr.attacks.property_inference import property_inference
from raydr.attacks.regression import fitted, predicted
from raydr.attacks.scoring import judged, membership_of, share_errors
from raydr.attacks.trilateration import trilateration
from raydr.federation import Request
from raydr.federation.transcript import Transcript
from raydr.methods.landmarks.maps import DistanceRequest, Distances
from raydr.methods.landmarks.spectral import KernelRequest, Kernels
from raydr.methods.sense.clients import AnchorDistances, AnchorRequest
from raydr.methods.sense.frames import residual_factor
from raydr.methods.sense.spaces import EuclideanSpace, HyperbolicSpace
from raydr.privacy.gaussian import GaussianNoise

RECORDS = 240
ROWS, PUBLIC = skewed(RECORDS, 12, 0), skewed(160, 12, 1)
ANCHORS = skewed(3, 12, 2)
PUBLIC_SIDE = Side(public=PUBLIC)


def cut(rows: Float64Array) -> list[Float64Array]:
    return np.array_split(rows, 3)


def anchored(
    rows: Float64Array = ROWS, anchors: Float64Array = ANCHORS, within: bool = False, **view: bool
) -> View:
    return replace(
        view_of(cut(rows), AnchorRequest(anchors, EuclideanSpace(), within)), embedding=rows[:0], **view
    )


def mapped(places: Float64Array) -> View:
    return replace(view_of(cut(ROWS)), embedding=places)


def knowing(count: int, *informed: int, public: Float64Array = PUBLIC) -> Side:
    known = np.random.default_rng(3).permutation(RECORDS)[: max((count, *informed))]
    return Side(
        public=public, known=known, values=ROWS[known], counts=(count,) if count else (), informed=informed
    )


def error(found: Reconstruction, side: Side = PUBLIC_SIDE) -> tuple[float, float]:
    known = side.known[: int(found.numbers.get("known_records", 0))]
    errors = scored(found, ROWS, replace(side, spared=known)).errors
    return errors.centred.median, errors.centred_guess.median


def by_variant(found: list[Reconstruction]) -> dict[str, Reconstruction]:
    return {one.variant: one for one in found}


# ------------------------------------------------------------------------------------------------ regression


@pytest.mark.parametrize(("rows", "numbers"), [(90, 4), (12, 30)])
def test_linear_relation_is_learnt_by_ridge(rows: int, numbers: int) -> None:
    draw = np.random.default_rng(0)
    posts = draw.normal(size=(rows, 4)) @ draw.normal(size=(4, numbers))
    values = posts @ draw.normal(size=(numbers, 3)) + 5.0
    found = fitted(posts, values, 0)
    assert found.name == "ridge regression"
    np.testing.assert_allclose(predicted(found, posts), values, rtol=1e-5)


def test_nonlinear_relation_is_learnt_by_nearest_rows() -> None:
    angle = np.random.default_rng(0).uniform(0.0, 12.0, (400, 1))
    values = np.column_stack([np.cos(angle), np.sin(angle)])
    found = fitted(angle, values, 0)
    assert "nearest" in found.name
    assert np.abs(predicted(found, np.array([[6.0]])) - [np.cos(6.0), np.sin(6.0)]).max() < 0.1


def test_uninformative_posts_are_detected() -> None:
    """The error is of left-out rows; with the row itself the nearest-row error would be 0."""
    draw = np.random.default_rng(0)
    values = draw.normal(size=(60, 3))
    found = fitted(draw.normal(size=(60, 59)), values, 0)
    guess = float(np.median(np.linalg.norm(values - values.mean(axis=0), axis=1)))
    assert found.held_out > 0.9 * guess


def test_many_columns_are_all_predicted() -> None:
    posts = np.random.default_rng(0).normal(size=(80, 5))
    values = posts @ np.random.default_rng(1).normal(size=(5, 300)) + 2.0
    np.testing.assert_allclose(predicted(fitted(posts, values, 0), posts), values, rtol=1e-4, atol=1e-4)


# ------------------------------------------------------------------------------------------------ what was posted


@pytest.mark.parametrize(
    "request_",
    [
        DistanceRequest(ANCHORS),
        KernelRequest(ANCHORS, 0.01),
        AnchorRequest(ANCHORS, EuclideanSpace(), False),
        AnchorRequest(ANCHORS, EuclideanSpace(), True),
        AnchorRequest(0.05 * ANCHORS, HyperbolicSpace(), False),
    ],
)
def test_simulated_posts_equal_posts_of_clients(request_: DistanceRequest) -> None:
    rows = 0.05 * ROWS if isinstance(getattr(request_, "space", None), HyperbolicSpace) else ROWS
    view = replace(view_of(cut(rows), request_), embedding=rows[:0])
    (posts,) = per_record(view)
    np.testing.assert_allclose(posts.imitated(rows, view, 0), posts.values, rtol=1e-12)


def test_simulated_posts_have_client_noise_and_are_repeatable() -> None:
    request = AnchorRequest(ANCHORS, EuclideanSpace(), False, GaussianNoise(on="distances", level=0.2))
    view = view_of(cut(ROWS), request)
    posts = per_record(view)[0]
    posts = posts.only(posts.blocks[:1])
    imitated = posts.imitated(ROWS, view, 0)
    clean = per_record(anchored())[0].values
    moved = [np.std(np.sqrt(noisy) - np.sqrt(clean)) for noisy in (posts.values, imitated)]
    assert moved[0] == pytest.approx(moved[1], rel=0.2)
    np.testing.assert_array_equal(imitated, posts.imitated(ROWS, view, 0))


def test_posts_include_the_places_of_a_published_map() -> None:
    view = view_of(cut(ROWS), DistanceRequest(ANCHORS))
    assert [len(posts.rows) for posts in per_record(view)] == [RECORDS]
    federated = replace(view, embedding=np.zeros((0, 2)))
    assert [block.is_place for block in per_record(federated)[0].blocks] == [False]
    assert [block.is_place for block in per_record(view)[0].blocks] == [False, True]


# ------------------------------------------------------------------------------------------------ records


def test_public_rows_reveal_directions_outside_the_points() -> None:
    """With three anchors, equations give two dimensions and regression gives those of similar rows."""
    found = by_variant(list(learnt_inversion(anchored(), PUBLIC_SIDE)))[f"{len(PUBLIC)} public rows"]
    solved = scored(next(iter(trilateration(anchored(), PUBLIC_SIDE))), ROWS).errors.centred.median
    learnt, guess = error(found)
    assert learnt < 0.75 * solved < guess


@pytest.mark.parametrize(("public", "attempts"), [(100, [100]), (101, [101, 100, 100, 100])])
def test_more_than_100_public_rows_are_sampled_three_times(public: int, attempts: list[int]) -> None:
    found = learnt_inversion(anchored(), Side(public=PUBLIC[:public]))
    assert [one.numbers["public_rows"] for one in found] == attempts


def test_few_public_rows_report_the_worst_of_several_draws() -> None:
    found = [one for one in learnt_inversion(anchored(), PUBLIC_SIDE) if one.numbers["public_rows"] == FEW]
    assert len({float(one.guess[0]) for one in found}) == len(found) == 3
    (verdict,) = [
        one
        for one in judged(
            ATTACKS["learnt-inversion"], anchored(), PUBLIC_SIDE, truth_of(ROWS), lambda kind: 3
        )
        if one.numbers["public_rows"] == FEW
    ]
    assert verdict.errors is not None
    assert verdict.numbers["draws"] == 3
    worst = min(error(one) for one in found)
    assert (verdict.errors.centred.median, verdict.errors.centred_guess.median) == pytest.approx(worst)


def test_distances_between_records_reveal_something_under_a_key() -> None:
    both = turned(np.concatenate([ROWS, skewed(14, 12, 2)]))
    view = anchored(both[:RECORDS], both[RECORDS:], keyed=True)
    found = by_variant(list(learnt_inversion(view, PUBLIC_SIDE)))[f"{len(PUBLIC)} public rows"]
    assert "a key does not change" in found.knows
    learnt, guess = error(found)
    assert learnt < 0.95 * guess


def test_known_records_reveal_others_under_a_key() -> None:
    both = turned(np.concatenate([ROWS, skewed(14, 12, 2)]))
    view, side = anchored(both[:RECORDS], both[RECORDS:], keyed=True), knowing(40, public=PUBLIC[:0])
    (found,) = learnt_inversion(view, side)
    assert found.variant == "40 known records"
    learnt, guess = error(found, side)
    assert learnt < 0.2 * guess


@dataclass(frozen=True)
class OwnAnchors(Request[Distances], what="landmarks for each client"):
    """``landmarks`` is (clients, landmarks, features)."""

    landmarks: Float64Array

    def addressed_to(self, client: int) -> DistanceRequest:  # type: ignore[override]
        return DistanceRequest(self.landmarks[client])


def test_first_20_groups_of_clients_are_attacked() -> None:
    """Each group needs its own regression."""
    parts = np.array_split(ROWS, 21)
    asked = OwnAnchors(np.random.default_rng(0).normal(size=(21, 3, 12)))
    view = replace(view_of(parts, asked), embedding=ROWS[:0])
    side = Side(public=PUBLIC[:0], known=np.arange(RECORDS), values=ROWS, counts=(RECORDS,))
    (found,) = learnt_inversion(view, side)
    np.testing.assert_array_equal(found.estimate.rows, np.arange(sum(map(len, parts[:20]))))


def test_attacks_do_not_apply_without_posts() -> None:
    view = replace(view_of(cut(ROWS)), embedding=np.zeros((0, 2)))
    for attack in (learnt_inversion, map_inversion, property_inference):
        with pytest.raises(NotApplicableError, match="nothing was posted about single records"):
            list(attack(view, knowing(40, 200)))


@pytest.mark.parametrize(
    ("public", "known", "variants"),
    [
        (20, 9, ["20 public rows"]),
        (19, 10, ["10 known records"]),
        (100, 0, ["100 public rows"]),
        (101, 0, ["101 public rows", *["100 public rows"] * 3]),
    ],
)
def test_twenty_public_rows_or_ten_known_records_are_enough(
    public: int, known: int, variants: list[str]
) -> None:
    found = list(learnt_inversion(anchored(), knowing(known, public=PUBLIC[:public])))
    assert [one.variant for one in found] == variants
    assert found[0].uses == (AnchorDistances,)


def test_too_few_rows_give_a_reason() -> None:
    with pytest.raises(NotApplicableError, match=r"needs 20 public rows.* It needs 10 known records"):
        list(learnt_inversion(anchored(), knowing(9, public=PUBLIC[:19])))


@pytest.mark.parametrize("public", [0, 15])
def test_guess_uses_known_records_and_public_rows(public: int) -> None:
    side = knowing(40, public=PUBLIC[:public])
    (found,) = learnt_inversion(anchored(), side)
    np.testing.assert_allclose(found.guess, np.concatenate([side.values, PUBLIC[:public]]).mean(axis=0))


def test_known_records_of_a_silent_client_are_not_used() -> None:
    view = replace(view_of(cut(ROWS)[:1], DistanceRequest(ANCHORS)), embedding=ROWS[:0], sizes=(80, 160))
    known = np.array([80, 239, *range(10)])
    (found,) = learnt_inversion(view, Side(public=PUBLIC[:0], known=known, values=ROWS[known], counts=(12,)))
    np.testing.assert_array_equal(found.estimate.rows, np.arange(80))
    few = Side(public=PUBLIC[:0], known=known[:-1], values=ROWS[known[:-1]], counts=(11,))
    with pytest.raises(NotApplicableError, match="enough known records"):
        list(learnt_inversion(view, few))


def test_surroundings_are_ranks_of_distances_to_other_rows() -> None:
    found = _surroundings(ROWS, 0)
    apart = np.linalg.norm(ROWS[:, None] - ROWS, axis=2)
    numbers = np.column_stack(
        [
            np.quantile(apart, np.linspace(0.05, 1.0, 20), axis=1).T,
            np.linalg.norm(ROWS - ROWS.mean(axis=0), axis=1),
        ]
    )
    ranks = (numbers[:, None] > numbers).sum(axis=1)
    np.testing.assert_allclose(
        ndtr(found) * RECORDS - 0.5, ranks, atol=1.01
    )  # a rounded distance may lose a rank
    assert (np.abs(ndtr(found) * RECORDS - 0.5 - ranks) < 0.01).mean() > 0.95


# ------------------------------------------------------------------------------------------------ the inner part


def test_inner_part_reveals_records_with_known_directions() -> None:
    request = AnchorRequest(ANCHORS, EuclideanSpace(), True)
    factor = residual_factor(request.frame, ROWS)
    squared = ((ROWS[:, None] - ANCHORS) ** 2).sum(axis=2)
    np.testing.assert_allclose(with_turn(request.frame, squared, factor, ROWS), ROWS, atol=1e-6)
    few = residual_factor(request.frame, ROWS[:4])  # fewer than the directions that the anchors leave
    np.testing.assert_allclose(with_turn(request.frame, squared[:4], few, ROWS[:4]), ROWS[:4], atol=1e-6)


def test_posted_inner_part_helps() -> None:
    outer, inner = (
        by_variant(list(learnt_inversion(anchored(within=within), PUBLIC_SIDE)))[f"{len(PUBLIC)} public rows"]
        for within in (False, True)
    )
    assert "inner part" in inner.knows
    assert "inner part" not in outer.knows
    assert error(inner)[0] < 0.7 * error(outer)[0]


def test_inner_part_without_known_directions_does_not_help() -> None:
    rows, public = (
        np.random.default_rng(seed).normal(5.0, 1.0, (count, 12)) for seed, count in ((0, 240), (1, 160))
    )
    view = anchored(rows, np.random.default_rng(2).normal(5.0, 1.0, (3, 12)), within=True)
    found = next(iter(learnt_inversion(view, Side(public=public))))
    assert "inner part" not in found.knows


def test_inner_part_helps_with_fewer_public_rows_than_records() -> None:
    """Half of 60 rows stand for a client of 80."""
    (found,) = learnt_inversion(anchored(within=True), Side(public=PUBLIC[:60]))
    assert "inner part" in found.knows
    (without,) = learnt_inversion(anchored(), Side(public=PUBLIC[:60]))
    assert error(found)[0] < 0.7 * error(without)[0]


@pytest.mark.parametrize(("size", "used"), [(1, False), (2, True)])
def test_inner_part_helps_from_two_records_on(size: int, used: bool) -> None:
    """Clients of two records use it, clients of one record do not."""
    request = AnchorRequest(ANCHORS, EuclideanSpace(), True)
    view = replace(view_of(np.split(ROWS[:12], 12 // size), request), embedding=ROWS[:0])
    (found,) = learnt_inversion(view, Side(public=PUBLIC[:60], seed=2))
    assert ("inner part" in found.knows) == used


def test_inner_part_uses_the_anchors_of_its_client() -> None:
    """Client 1 has its own anchors. If client 2 sends no inner part, that of client 0 is not used for it."""
    own = AnchorRequest(skewed(4, 12, 5), EuclideanSpace(), True)
    shared = AnchorRequest(ANCHORS, EuclideanSpace(), True)

    def view(*reported: AnchorRequest, lacking: tuple[int, ...] = ()) -> View:
        transcript = Transcript()
        for client, (part, request) in enumerate(zip(cut(ROWS), reported, strict=True)):
            ((seen, reply),) = view_of([part], request).transcript.of(AnchorDistances)
            if client in lacking:
                reply = replace(reply, inside=reply.inside[:, :0])
            transcript.add(replace(seen, number=client + 1, client=client, reply=reply))
        return View(transcript=transcript, sizes=(80, 80, 80), embedding=ROWS[:0, :2])

    def errors(of: View) -> Float64Array:
        (found,) = learnt_inversion(of, Side(public=PUBLIC[:60]))
        np.testing.assert_array_equal(np.sort(found.estimate.rows), np.arange(RECORDS))
        off = np.empty(RECORDS)
        for rows, values in found.estimate.blocks():
            off[rows] = np.linalg.norm(values - ROWS[rows], axis=1)
        return np.median(off.reshape(3, 80), axis=1)

    bare = errors(view(shared, own, shared, lacking=(0, 1, 2)))
    assert (errors(view(shared, own, shared)) < 0.7 * bare).all()
    one_lacks = errors(view(shared, own, shared, lacking=(2,)))
    assert one_lacks[1] < 0.7 * bare[1]
    np.testing.assert_allclose(one_lacks[[0, 2]], bare[[0, 2]], rtol=1e-6)


def test_distance_noise_and_a_key_hide_the_inner_part() -> None:
    noisy = AnchorRequest(ANCHORS, EuclideanSpace(), True, GaussianNoise(on="distances", level=0.01))
    view = replace(view_of(cut(ROWS), noisy), embedding=ROWS[:0])
    for one in learnt_inversion(view, Side(public=PUBLIC[:60])):
        assert "inner part" not in one.knows
    keyed = learnt_inversion(anchored(within=True, keyed=True), replace(knowing(40), public=PUBLIC[:60]))
    assert all("inner part" not in one.knows for one in keyed)


# ------------------------------------------------------------------------------------------------ the map


def test_map_is_inverted_with_known_other_records() -> None:
    side = knowing(0, 120, 216)
    found = list(map_inversion(mapped(ROWS[:, :2]), side))
    assert [one.numbers["known_records"] for one in found] == [120, 216]
    for one in found:
        learnt, guess = error(one, side)
        assert learnt < 0.8 * guess


def test_random_map_reveals_nothing() -> None:
    side = knowing(40, 216)
    view = mapped(np.random.default_rng(0).normal(size=(RECORDS, 2)))
    for one in (*map_inversion(view, side), *learnt_inversion(view, side)):
        learnt, guess = error(one, side)
        assert learnt > 0.95 * guess


# ------------------------------------------------------------------------------------------------ shares


def shares(view: View, side: Side, classes: np.ndarray | None = None) -> tuple[GroupShares, float, float]:
    (found,) = property_inference(view, side)
    truth = truth_of(ROWS)
    errors = share_errors(found, view, truth if classes is None else replace(truth, classes=classes))
    return found, errors.error, errors.guess


def test_class_shares_are_inferred_from_places() -> None:
    """Clients have rows sorted by the first feature, so their shares differ from the overall ones."""
    order = np.argsort(ROWS[:, 0])
    classes = (ROWS[order, 0] > np.median(ROWS[:, 0])).astype(np.int64)
    rows = ROWS[order]
    view = replace(view_of(cut(rows)), embedding=rows[:, :2])
    known = np.random.default_rng(3).permutation(RECORDS)[:40]
    side = Side(public=PUBLIC, known=known, values=rows[known], counts=(40,), classes=classes[known])
    (found,) = property_inference(view, side)
    errors = share_errors(found, view, replace(truth_of(rows), classes=classes))
    assert found.variant == "classes"
    assert errors.error < 0.15 < 0.3 < errors.guess
    assert errors.beats_guessing


def test_without_classes_shares_are_of_values_above_the_mean() -> None:
    found, error_, guess = shares(mapped(ROWS[:, :2]), knowing(60))
    assert found.columns is not None
    assert len(found.columns) == 12
    assert error_ <= guess


def test_ten_known_records_are_enough_and_nine_are_not() -> None:
    (found,) = property_inference(mapped(ROWS[:, :2]), knowing(10))
    assert found.knows == "10 of the records, and what was posted about them"
    assert (found.variant, found.numbers) == ("columns above their mean", {"known_records": 10})
    for side in (knowing(9), knowing(0, 40)):
        with pytest.raises(NotApplicableError, match="it needs 10 known records"):
            list(property_inference(mapped(ROWS[:, :2]), side))


def test_share_groups_use_the_most_variable_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    side = knowing(60)
    (every,) = property_inference(mapped(ROWS[:, :2]), side)
    assert every.columns is not None
    np.testing.assert_allclose(every.guess, (side.values > side.values.mean(axis=0)).mean(axis=0))
    np.testing.assert_array_equal(every.shares[:, 11], 0.0)  # the last column is constant
    wide = replace(side, values=np.hstack([side.values, side.values]))
    (twelve,) = property_inference(mapped(ROWS[:, :2]), wide)
    assert len(twelve.guess) == 12
    monkeypatch.setattr("raydr.attacks.property_inference.MOST_COLUMNS", 3)
    (found,) = property_inference(mapped(ROWS[:, :2]), side)
    np.testing.assert_array_equal(found.columns, np.sort(np.argsort(side.values.std(axis=0))[-3:]))
    np.testing.assert_allclose(found.thresholds, side.values.mean(axis=0)[found.columns])


def test_clients_with_few_known_records_are_guessed() -> None:
    """Client 1 posts kernels, which need ten known records."""
    transcript = Transcript()
    requests = (DistanceRequest(ANCHORS), KernelRequest(ANCHORS, 0.01))
    for client, request in enumerate(requests):
        for seen in view_of([ROWS[client * 120 :][:120]], request).transcript:
            if seen.request is request:
                transcript.add(replace(seen, number=client + 1, client=client))
    view = View(transcript=transcript, sizes=(120, 120), embedding=ROWS[:0, :2])
    classes = (ROWS[:, 0] > np.median(ROWS[:, 0])).astype(np.int64)
    for few, uses in ((9, (Distances,)), (10, (Distances, Kernels))):
        known = np.array([*range(40), *range(200, 200 + few)])
        side = Side(
            public=PUBLIC, known=known, values=ROWS[known], counts=(len(known),), classes=classes[known]
        )
        (found,) = property_inference(view, side)
        assert found.uses == uses
        assert found.shares.shape == (2, 2)
        assert np.allclose(found.shares[1], found.guess) == (few == 9)
        np.testing.assert_allclose(found.shares.sum(axis=1), 1.0)
    known = np.array([*range(9), *range(200, 209)])
    side = Side(public=PUBLIC, known=known, values=ROWS[known], counts=(18,), classes=classes[known])
    with pytest.raises(NotApplicableError, match="with the same requests have enough"):
        list(property_inference(view, side))


def test_shares_are_clipped_to_0_and_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "raydr.attacks.property_inference.predicted", lambda _, posts: np.tile([-0.5, 1.5], (len(posts), 1))
    )
    side = Side(public=PUBLIC, known=np.arange(80), values=ROWS[:80], counts=(80,), classes=np.arange(80) % 2)
    (found,) = property_inference(mapped(ROWS[:, :2]), side)
    np.testing.assert_allclose(found.shares, [[0.5, 0.5], [0.0, 1.0], [0.0, 1.0]])


# ------------------------------------------------------------------------------------------------ scoring


def certain_and_wrong(view: View, side: Side) -> list[Reconstruction]:
    estimate = Estimate.of(np.arange(RECORDS), ROWS + np.where(np.arange(RECORDS) < 60, 1.0, 0.0)[:, None])
    sure = np.arange(RECORDS) < 100
    return [Reconstruction(uses=(), knows="", estimate=estimate, guess=ROWS.mean(axis=0), certain=sure)]


def test_wrong_certain_records_do_not_count_as_exact() -> None:
    attack = Attack("sure", "", certain_and_wrong)
    (verdict,) = judged(attack, anchored(), PUBLIC_SIDE, truth_of(ROWS), lambda kind: 0)
    assert verdict.certificate is not None
    assert (verdict.certificate.called_exact, verdict.certificate.of_those_exact) == (100, 40)


@pytest.mark.parametrize(("off", "right"), [(0.9e-3, 100), (1.1e-3, 0)])
def test_record_is_exact_within_a_thousandth_of_its_distance(off: float, right: int) -> None:
    apart = ROWS - ROWS.mean(axis=0)

    def close(view: View, side: Side) -> list[Reconstruction]:
        estimate = Estimate.of(np.arange(RECORDS), ROWS + off * apart)
        sure = np.arange(RECORDS) < 100
        return [Reconstruction(uses=(), knows="", estimate=estimate, guess=ROWS.mean(axis=0), certain=sure)]

    (verdict,) = judged(Attack("near", "", close), anchored(), PUBLIC_SIDE, truth_of(ROWS), lambda kind: 0)
    assert verdict.certificate is not None
    assert verdict.certificate.of_those_exact == right


@pytest.mark.parametrize(("above", "found"), [(0, 0.25), (2, 0.25), (3, 0.0)])
def test_members_are_found_at_a_false_alarm_rate_of_0_001(above: int, found: float) -> None:
    """Two of 2,000 others may score above the found members, a third may not."""
    members = np.arange(2040) < 40
    scores = np.where(np.arange(2040) < 10, 2.0, 0.0)
    scores[40 : 40 + above] = 3.0
    scores[10:40] = -1.0
    assert membership_of(scores, members).tpr == found
