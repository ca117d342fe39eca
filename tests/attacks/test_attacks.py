"""Attacks beat guessing where theory predicts it, and fail where protection prevents it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from attacked import federation_seen, scored, skewed, truth_of, turned, view_of
from fedne_tables import asked_to_train
from scipy.optimize import minimize

from raydr.arrays import Float64Array
from raydr.attacks import ATTACKS, NotApplicableError, Side, View
from raydr.attacks.contract import Estimate, Piece, Reconstruction, Unordered
from raydr.attacks.distance_geometry import distance_geometry
from raydr.attacks.distribution_alignment import aligned, distribution_alignment
from raydr.attacks.gradient_matching import gradient_matching
from raydr.attacks.known_sample import known_sample
from raydr.attacks.membership import membership
from raydr.attacks.point_cloud import cloud, unfolded
from raydr.attacks.principal import principal_axes
from raydr.attacks.scoring import judged, membership_of
from raydr.attacks.surrogate_inversion import surrogate_inversion
from raydr.attacks.trilateration import trilateration
from raydr.federation.transcript import FIRST_CALLS, Seen, Transcript
from raydr.geometry.points import squared_distances
from raydr.methods.fedne.clients import Change, Training
from raydr.methods.fedne.positions import PositionRequest, Positions, positions_of
from raydr.methods.fedne.surrogates import DensityRequest
from raydr.methods.landmarks.learning import Step, StepRequest
from raydr.methods.landmarks.maps import DistanceRequest, Distances
from raydr.methods.landmarks.mean_embedding import MeanEmbedding, MeanEmbeddingRequest
from raydr.methods.landmarks.spectral import KernelRequest, Kernels
from raydr.methods.private_map.messages import CellSumsRequest, Frame
from raydr.methods.private_map.messages import View as Sight
from raydr.methods.private_map.settings import COUNT_WEIGHT
from raydr.methods.sense.clients import AnchorRequest
from raydr.methods.sense.spaces import EuclideanSpace, HyperbolicSpace
from raydr.privacy.gaussian import GaussianNoise
from raydr.privacy.ledger import Granularity
from raydr.statistics.scaling import ScaleRows

NOTHING = Side(public=np.zeros((0, 0)))


def cut(rows: Float64Array, clients: int = 3) -> list[Float64Array]:
    return np.array_split(rows, clients)


def anchored(rows: Float64Array, anchors: Float64Array, mechanism: GaussianNoise | None = None) -> View:
    return view_of(cut(rows), AnchorRequest(anchors, EuclideanSpace(), False, mechanism))


def random(rows: int, features: int, seed: int) -> Float64Array:
    return np.random.default_rng(seed).standard_normal((rows, features)) * np.linspace(3.0, 0.5, features)


# ------------------------------------------------------------------------------------------------ transcript


def test_server_sees_each_summand_and_the_sum() -> None:
    rows, landmarks = random(9, 4, 0), random(3, 4, 1)
    request = StepRequest(landmarks=landmarks, gamma=0.1, step=1.0, local_steps=1, share="gradient")
    federation, transcript = federation_seen(cut(rows))
    learnt = federation.mean(request, weights="rows")
    seen = transcript.of(Step)
    assert [one.client for one, _ in seen] == [0, 1, 2]
    together = sum(len(part) * reply.direction for part, (_, reply) in zip(cut(rows), seen, strict=True))
    np.testing.assert_allclose(together / len(rows), learnt.direction, atol=1e-12)
    (whole,) = [one for one in transcript if one.client is None]
    np.testing.assert_array_equal(whole.reply.direction, learnt.direction)  # type: ignore[attr-defined]


def test_presummed_replies_of_a_host_are_not_summands() -> None:
    federation, transcript = federation_seen(cut(random(9, 4, 0)), packed=True)
    federation.mean(
        StepRequest(landmarks=random(3, 4, 1), gamma=0.1, step=1.0, local_steps=1, share="gradient"),
        weights="rows",
    )
    assert transcript.of(Step) == []
    assert [seen.client for seen in transcript if isinstance(seen.reply, Step)] == [None]


def test_transcript_keeps_first_and_last_rounds_and_counts_all() -> None:
    federation, transcript = federation_seen(cut(random(9, 4, 0)))
    for gamma in range(1, 21):
        federation.mean(
            StepRequest(
                landmarks=random(3, 4, 1), gamma=float(gamma), step=1.0, local_steps=1, share="gradient"
            )
        )
    kept = [seen.request.gamma for seen, _ in transcript.of(Step)]  # type: ignore[attr-defined]
    assert sorted(set(kept)) == [1.0, 2.0, 3.0, 20.0]
    assert len(kept) == 3 * (FIRST_CALLS + 1)
    assert transcript.counts[Step] == 60


def test_transcript_keeps_every_per_record_reply() -> None:
    federation, transcript = federation_seen(cut(random(9, 4, 0)))
    for _ in range(10):
        federation.ask(DistanceRequest(random(3, 4, 0)))
    kept = [seen for seen in transcript if type(seen.reply).granularity == Granularity.PER_RECORD]
    assert len(kept) == 30


# --------------------------------------------------------------------------------------------- trilateration


@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_d_plus_one_anchors_recover_every_record_with_certainty(offset: float) -> None:
    rows, anchors = random(60, 8, 0) + offset, random(9, 8, 1) + offset
    (found,) = trilateration(anchored(rows, anchors), NOTHING)
    scores = scored(found, rows)
    assert scores.errors.exact == 1.0
    assert scores.errors.beats_guessing
    assert found.certain is not None
    assert found.certain.all()


@pytest.mark.parametrize("seed", range(3))
def test_ill_conditioned_anchors_are_used_to_full_precision(seed: int) -> None:
    """Anchors spread 10,000,000 times wider in one direction; singular vectors alone give errors of 0.3."""
    draw = np.random.default_rng(seed)
    scale, turn = np.geomspace(1e4, 1e-3, 8), np.linalg.qr(draw.standard_normal((8, 8)))[0]
    rows, anchors = ((draw.standard_normal((count, 8)) * scale) @ turn for count in (50, 9))
    (found,) = trilateration(anchored(rows, anchors), NOTHING)
    assert scored(found, rows).errors.centred.q90 < 1e-5
    assert found.certain is not None
    assert found.certain.all()


def test_fewer_anchors_recover_only_records_in_their_span() -> None:
    """K = d - 1, the setting of the theorem. Half of the records are in the span of the anchors."""
    anchors = random(7, 8, 1)
    weights = np.random.default_rng(2).dirichlet(np.ones(7), 30)
    rows = np.concatenate([weights @ anchors, random(30, 8, 3)])
    (found,) = trilateration(anchored(rows, anchors), NOTHING)
    scores = scored(found, rows)
    assert found.certain is not None
    np.testing.assert_array_equal(found.certain, np.arange(60) < 30)
    np.testing.assert_array_equal(scores.centred < 1e-3, np.arange(60) < 30)


def test_trilateration_in_a_secret_frame_equals_guessing() -> None:
    """The server relays rotated anchors, so the records that it recovers are rotated too."""
    rows, anchors = skewed(300, 8, 0), skewed(20, 8, 1)
    keyed = turned(np.concatenate([rows, anchors]))
    (found,) = trilateration(anchored(keyed[:300], keyed[300:]), NOTHING)
    errors = scored(found, rows).errors
    assert errors.centred.median >= errors.centred_guess.median * 0.95
    assert errors.exact == 0.0


def test_trilateration_does_not_apply_without_points() -> None:
    view = anchored(random(30, 4, 0), random(6, 4, 1))
    hidden = hide_points(view)
    with pytest.raises(NotApplicableError, match="does not know the points"):
        list(trilateration(hidden, NOTHING))


def each_with_its_own(parts: list[Float64Array], scale: float) -> View:
    """Return the view of a server that sends each client other anchors."""
    transcript = Transcript()
    for client, part in enumerate(parts):
        own = scale * random(12, part.shape[1], client + 2)
        for seen in view_of([part], AnchorRequest(own, EuclideanSpace(), False)).transcript:
            if isinstance(seen.request, AnchorRequest):
                transcript.add(Seen(number=1, round=0, request=seen.request, client=client, reply=seen.reply))
    sizes = tuple(len(part) for part in parts)
    return View(transcript=transcript, sizes=sizes, embedding=np.zeros((sum(sizes), 2)))


def hide_points(view: View) -> View:
    """Return the same view without anchors in the requests."""
    hidden = Transcript()
    for seen in view.transcript:
        request = seen.request
        if isinstance(request, AnchorRequest):
            request = PositionRequest(np.zeros(0, np.float32), ())  # type: ignore[assignment]
        hidden.add(
            Seen(number=seen.number, round=seen.round, request=request, client=seen.client, reply=seen.reply)
        )
    return View(transcript=hidden, sizes=view.sizes, embedding=view.embedding)


def test_slightly_noisy_distances_beat_guessing_but_are_never_exact() -> None:
    rows, anchors = (
        100.0 * random(200, 30, 0),
        100.0 * random(31, 30, 1),
    )  # in some directions there is only noise
    noise = GaussianNoise(on="distances", level=0.1)
    (found,) = trilateration(anchored(rows, anchors, noise), NOTHING)
    errors = scored(found, rows).errors
    assert found.certain is None
    assert errors.exact == 0.0
    assert errors.beats_guessing  # noise of a tenth of a distance hides little


@pytest.mark.parametrize("kind", ["distances", "kernels", "hyperbolic", "own-anchors"])
def test_trilateration_uses_distances_of_every_message_kind(kind: str) -> None:
    rows, points = 0.2 * random(40, 5, 0), 0.2 * random(12, 5, 1)
    parts = cut(rows)
    requests = {
        "distances": [DistanceRequest(points)],
        "kernels": [KernelRequest(points, 0.3)],
        "hyperbolic": [AnchorRequest(points, HyperbolicSpace(), False)],
        "own-anchors": [],
    }[kind]
    view = view_of(parts, *requests)
    if kind == "own-anchors":
        view = each_with_its_own(parts, 0.2)
    (found,) = trilateration(view, NOTHING)
    assert scored(found, rows).errors.exact == 1.0


def test_distances_of_scaled_rows_are_converted_back() -> None:
    """Scaling by one number is undone; with a factor per feature, distances belong to other rows."""
    rows, points = random(40, 5, 0) + 50.0, random(6, 5, 1)
    even, uneven = np.full(5, 0.125), np.linspace(0.1, 2.0, 5)
    view = view_of(cut(rows), ScaleRows(np.full(5, 50.0), even), DistanceRequest(points))
    (found,) = trilateration(view, NOTHING)
    assert scored(found, rows).errors.exact == 1.0
    side = Side(public=rows[:0], candidates=np.concatenate([rows, random(40, 5, 2) + 50.0]))
    assert membership_of(next(membership(view, side)).scores, np.arange(80) < 40).auc == 1.0
    other = view_of(cut(rows), ScaleRows(np.full(5, 50.0), uneven), DistanceRequest(points))
    with pytest.raises(NotApplicableError, match="scaled features by different factors"):
        list(trilateration(other, NOTHING))


# ------------------------------------------------------------------------------------------ secret frames


@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_public_rows_recover_a_secret_frame(offset: float) -> None:
    rows, public = skewed(600, 10, 0), skewed(800, 10, 1)
    keyed = turned(rows) + offset
    side = Side(public=public + offset)
    anchors = keyed[:12] + 0.1 * np.random.default_rng(3).standard_normal((12, 10))
    *_, found = distribution_alignment(anchored(keyed, anchors), side)
    errors = scored(found, rows + offset).errors
    assert errors.centred.median < 0.25 * errors.centred_guess.median


def test_few_public_rows_do_not_recover_a_secret_frame() -> None:
    """Without third moments, a dozen rows reveal nothing about the frame."""
    rows = random(300, 12, 0)
    with pytest.raises(NotApplicableError, match="20 public rows"):
        list(distribution_alignment(anchored(turned(rows), random(14, 12, 1)), Side(public=rows[:0])))
    alike = np.random.default_rng(1).standard_normal((300, 12))
    keyed, public = turned(alike), np.random.default_rng(2).standard_normal((24, 12))
    *_, found = distribution_alignment(anchored(keyed, keyed[:14] + 0.1), Side(public=public))
    errors = scored(found, alike).errors
    assert errors.centred.median > 0.9 * errors.centred_guess.median


def test_curve_over_public_rows_tries_each_count_once() -> None:
    keyed = turned(skewed(100, 6, 0))
    found = list(distribution_alignment(anchored(keyed, keyed[:8] + 0.1), Side(public=skewed(700, 6, 1))))
    assert [one.numbers["public_rows"] for one in found] == [30, 100, 300, 700]


def test_d_plus_one_known_records_recover_all_dimensions() -> None:
    rows = random(80, 6, 0)
    keyed = turned(rows)
    view = anchored(keyed, turned(random(9, 6, 1)))
    known = np.random.default_rng(0).permutation(80)[:7]
    side = Side(public=random(400, 6, 2), known=known, values=rows[known], counts=(0, 1, 3, 5, 7))
    medians = []
    for found in known_sample(view, side):
        left = np.setdiff1d(np.arange(80), known)
        medians.append(float(np.median(scored(found, rows).centred[left])))
        if found.numbers["known_records"] == 7:
            assert scored(found, rows).errors.exact == 1.0
    assert medians == sorted(medians, reverse=True)
    assert medians[0] > 0.9
    assert medians[-1] < 1e-9


def test_known_records_attack_needs_one_record() -> None:
    rows = random(40, 4, 0)
    known = np.arange(5)
    side = Side(public=rows[:0], known=known, values=rows[:5], counts=(0, 1, 5))
    found = list(known_sample(anchored(turned(rows), turned(random(6, 4, 1))), side))
    assert [one.numbers["known_records"] for one in found] == [1, 5]
    assert scored(found[-1], rows).errors.exact == 1.0


def test_distances_to_unknown_points_give_the_geometry() -> None:
    rows, points = random(200, 4, 0), random(30, 4, 1)
    shape = unfolded(np.asarray(squared_distances(rows, points)))
    np.testing.assert_allclose(squared_distances(shape, shape), squared_distances(rows, rows), atol=1e-6)


def test_known_records_recover_the_others_despite_hidden_anchors() -> None:
    rows, anchors = random(200, 4, 0), random(30, 4, 1)
    view = hide_points(anchored(rows, anchors))
    known = np.arange(5)
    side = Side(public=rows[:0], known=known, values=rows[:5], counts=(5,))
    (found,) = distance_geometry(view, side)
    assert scored(found, rows).errors.exact > 0.99
    (found,) = known_sample(view, side)  # the geometry is recovered
    assert scored(found, rows).errors.exact > 0.99
    with pytest.raises(NotApplicableError, match="no known records to place the unfolded points"):
        list(distance_geometry(view, NOTHING))


def test_clouds_of_clients_with_own_anchors_are_merged() -> None:
    rows = random(40, 5, 0)
    found = cloud(each_with_its_own(cut(rows), 1.0))
    np.testing.assert_array_equal(found.rows, np.arange(40))
    np.testing.assert_allclose(
        squared_distances(found.points, found.points), squared_distances(rows, rows), atol=1e-3
    )


def test_rows_of_20000_features_are_recovered() -> None:
    draw = np.random.default_rng(0)
    mixing = draw.standard_normal((3, 20_000))
    public = (draw.gamma(1.0, 1.0, (60, 3)) * [4.0, 2.0, 1.0] @ mixing).astype(np.float32)
    axes = principal_axes(public, 3, 0)
    dense = np.linalg.svd(public - public.mean(axis=0), full_matrices=False)[2][:3]
    np.testing.assert_allclose(np.abs(axes.basis @ dense.T), np.eye(3), atol=1e-4)
    piece = aligned(np.arange(60), axes.coordinates(public), public, 0)
    errors = scored(
        Reconstruction(uses=(), knows="", estimate=Estimate((piece,)), guess=axes.mean), public
    ).errors
    assert errors.centred.median < 1e-2


# ------------------------------------------------------------------------------------- small clients


@pytest.mark.parametrize("size", [1, 2])
def test_gradient_reveals_records_of_a_small_client(size: int) -> None:
    rows, landmarks = random(4 * size, 6, 0), random(20, 6, 1)
    request = StepRequest(landmarks=landmarks, gamma=0.05, step=1.0, local_steps=1, share="gradient")
    view = view_of(cut(rows, 4), request, mean=True)
    (found,) = gradient_matching(view, Side(public=random(50, 6, 2)))
    assert isinstance(found, Unordered)
    assert sorted(found.parts) == [0, 1, 2, 3]
    (verdict,) = judged(
        ATTACKS["gradient-matching"], view, Side(public=random(50, 6, 2)), truth_of(rows), lambda kind: 4
    )
    assert verdict.errors is not None
    assert verdict.errors.centred.q90 < 0.05
    assert verdict.errors.beats_guessing


def test_gradient_attack_skips_sums_and_large_clients() -> None:
    rows, request = (
        random(8, 6, 0),
        StepRequest(landmarks=random(20, 6, 1), gamma=0.05, step=1.0, local_steps=1, share="gradient"),
    )
    federation, transcript = federation_seen(cut(rows, 4), packed=True)
    federation.mean(request)
    with pytest.raises(NotApplicableError, match="no single client's gradient"):
        list(
            gradient_matching(
                View(transcript=transcript, sizes=federation.sizes, embedding=np.zeros((8, 2))),
                Side(public=rows),
            )
        )
    with pytest.raises(NotApplicableError, match="more than 8 records"):
        list(gradient_matching(view_of(cut(random(40, 6, 0)), request, mean=True), Side(public=rows)))


def test_gradient_attack_refuses_several_local_steps() -> None:
    request = StepRequest(landmarks=random(20, 6, 1), gamma=0.05, step=1.0, local_steps=3, share="landmarks")
    view = view_of(cut(random(4, 6, 0), 4), request, mean=True)
    with pytest.raises(NotApplicableError, match="several local steps"):
        list(gradient_matching(view, Side(public=random(50, 6, 2))))


def test_noisy_gradient_hides_the_record_of_a_small_client() -> None:
    rows, landmarks = random(60, 6, 0), random(20, 6, 1)
    noise = GaussianNoise(on="gradient", multiplier=1.0)
    request = StepRequest(
        landmarks=landmarks,
        gamma=0.05,
        step=1.0,
        local_steps=1,
        share="gradient",
        mechanism=noise,
        objective=False,
    )
    view, side = view_of(cut(rows, 60), request, mean=True), Side(public=random(500, 6, 2))
    (verdict,) = judged(ATTACKS["gradient-matching"], view, side, truth_of(rows), lambda kind: 4)
    assert verdict.errors is not None
    assert verdict.errors.centred.median > 0.9 * verdict.errors.centred_guess.median
    assert verdict.errors.centred.minimum > 0.2


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_recovered_records_fit_the_gradient_exactly(scale: float) -> None:
    """Results do not depend on the unit or the offset of the data."""
    rows, landmarks = scale * (random(2, 4, 0) + 20.0), scale * (random(10, 4, 1) + 20.0)
    view = view_of(
        [rows],
        StepRequest(landmarks=landmarks, gamma=0.05 / scale**2, step=1.0, local_steps=1, share="gradient"),
        mean=True,
    )
    (found,) = gradient_matching(view, Side(public=rows[:0]))
    order = [0, 1] if np.linalg.norm(found.parts[0][0] - rows[0]) < 0.1 * scale else [1, 0]
    np.testing.assert_allclose(found.parts[0][order], rows, rtol=0.0, atol=1e-3 * scale)


def test_least_squares_starts_with_the_spread_of_landmarks_and_an_exact_slope(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three fits of 8 records with 50 features each; landmarks are on one line."""
    starts = []

    def checked(loss: Callable[..., Any], start: Float64Array, **options: Any) -> Any:
        starts.append(start)
        slope = loss(start)[1]
        for entry in range(0, len(start), 40):
            step = 1e-5 * np.eye(1, len(start), entry)[0]
            assert (loss(start + step)[0] - loss(start - step)[0]) / 2e-5 == pytest.approx(
                slope[entry], rel=1e-4
            )
        return minimize(loss, start, **options)

    monkeypatch.setattr("scipy.optimize.minimize", checked)
    monkeypatch.setattr("raydr.attacks.gradient_matching._ITERATIONS", 2)
    landmarks = np.linspace(-2.0, 2.0, 9)[:, None] * np.ones(50)
    request = StepRequest(landmarks=landmarks, gamma=0.01, step=1.0, local_steps=1, share="gradient")
    list(gradient_matching(view_of([random(8, 50, 0)], request, mean=True), NOTHING))
    assert len(starts) == 3
    spread = (np.reshape(starts, (24, 50)) * 10.0).std(axis=0)  # in units of the kernel's width
    assert spread.mean() == pytest.approx(landmarks.std(axis=0).mean(), rel=0.1)


def test_record_is_found_at_the_reach_of_the_kernel() -> None:
    """Kernels are about 1e-7 at the second record, and 0 at the third, of whose gradient nothing is left."""
    landmarks = 0.2 * random(8, 4, 1)
    rows = np.array([[1.0], [2.0], [50.0]]) * [1.0, -1.0, 1.0, 1.0]
    request = StepRequest(landmarks=landmarks, gamma=1.0, step=1.0, local_steps=1, share="gradient")
    (found,) = gradient_matching(view_of(cut(rows), request, mean=True), Side(public=rows[:0]))
    assert list(found.parts) == [0, 1]
    np.testing.assert_allclose(np.concatenate([found.parts[0], found.parts[1]]), rows[:2], rtol=1e-3)
    with pytest.raises(NotApplicableError, match="or zeros, which reveal nothing"):
        list(gradient_matching(view_of([rows[2:]], request, mean=True), Side(public=rows[:0])))


def test_clients_of_one_to_eight_records_are_attacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raydr.attacks.gradient_matching._ITERATIONS", 2)
    rows, landmarks = random(18, 4, 0) + 3.0, random(6, 4, 1) + 3.0
    request = StepRequest(landmarks=landmarks, gamma=0.05, step=1.0, local_steps=1, share="gradient")
    view = view_of([rows[:1], rows[1:9], rows[9:]], request, mean=True)
    (found,) = gradient_matching(view, Side(public=rows[:0]))
    assert {client: part.shape for client, part in found.parts.items()} == {0: (1, 4), 1: (8, 4)}
    assert (found.variant, found.numbers) == ("Step", {"clients": 2, "records": 9})
    assert found.knows == "the row counts of clients"
    np.testing.assert_allclose(found.guess, landmarks.mean(axis=0))
    np.testing.assert_allclose(found.parts[0], rows[:1], atol=1e-6)
    (found,) = gradient_matching(view, Side(public=random(50, 4, 2)))
    assert found.knows == "the row counts of clients, and the mean of 50 rows of similar data"
    np.testing.assert_allclose(found.guess, random(50, 4, 2).mean(axis=0))
    (found,) = gradient_matching(replace(view, keyed=True), Side(public=rows[:0]))
    np.testing.assert_array_equal(found.guess, np.zeros(4))
    (found,) = gradient_matching(replace(view, sizes=(0, 8, 10)), Side(public=rows[:0]))
    assert list(found.parts) == [1]


def test_two_local_steps_are_not_inverted() -> None:
    view = view_of(
        cut(random(3, 4, 0)),
        StepRequest(landmarks=random(6, 4, 1), gamma=0.05, step=1.0, local_steps=2, share="landmarks"),
        mean=True,
    )
    with pytest.raises(NotApplicableError, match="several local steps"):
        list(gradient_matching(view, NOTHING))


def trained(
    sizes: tuple[int, ...], hidden: tuple[int, ...], change: Float64Array, control: Float64Array
) -> View:
    """Return the view of one round of training in which client 0 uploads this change."""
    training = Training(
        hidden=hidden,
        neighbors=3,
        batch=8,
        local_epochs=1,
        negatives=1,
        mixing=0.0,
        proximity=0.0,
        most_steps=1,
        rows=sum(sizes),
        together=False,
    )
    request = asked_to_train(
        np.zeros(change.size, np.float32),
        training=training,
        learning_rate=0.1,
        control=np.zeros(control.size, np.float32),
    )
    transcript = Transcript()
    transcript.add(
        Seen(
            number=1,
            round=1,
            request=request,
            client=0,
            reply=Change(change, 0.0, control, np.zeros(0, np.uint8)),
        )
    )
    return View(transcript=transcript, sizes=sizes, embedding=np.zeros((0, 2)))


@pytest.mark.parametrize("scale", [0.01, 100.0])
@pytest.mark.parametrize("by_control", [False, True])
def test_hidden_units_moved_by_one_record_reveal_it(scale: float, by_control: bool) -> None:
    """One record changed three units, another two, both one; four units hardly changed."""
    records = scale * random(2, 4, 0)
    offsets = 100.0 * np.array([0.9, 0.7, 0.6, -0.5, 0.4, 0.3, *[1e-4] * 4])
    means = records[[0, 0, 0, 1, 0, 1, 0, 0, 0, 0]] + 1e-4 * scale * random(10, 4, 1)
    means[1] = records.mean(axis=0)
    means[6:] = 5.0 * scale
    layer = np.concatenate([(means.T * offsets).ravel(), offsets, random(1, 43, 2)[0]])
    other = random(1, len(layer), 3)[0]
    view = trained((2,), (10, 3), *((other, layer) if by_control else (layer, other[:0])))
    (found,) = gradient_matching(view, Side(public=random(5, 4, 4)))
    assert (found.variant, found.uses) == ("Change", (Change,))
    np.testing.assert_allclose(found.parts[0], records, atol=2e-3 * scale)


def test_estimates_repeated_by_more_hidden_units_rank_first() -> None:
    first, second, third = np.array([0.0, 3.0, 10.0])[:, None] * np.eye(1, 3)
    means = np.concatenate([np.tile(first, (4, 1)), np.tile(second, (3, 1)), np.tile(third, (2, 1))])
    layer = np.concatenate([means.T.ravel(), np.ones(9)])
    (found,) = gradient_matching(trained((3,), (9,), layer, layer[:0]), Side(public=np.zeros((5, 3))))
    np.testing.assert_allclose(found.parts[0], [first, second, third])


@pytest.mark.parametrize(("others", "chosen"), [(4, 0), (5, 1)])
def test_repeated_estimates_agree_within_a_twentieth_of_the_distance(others: int, chosen: int) -> None:
    """Two units half a twentieth apart, or some 1.2 twentieths apart; each counts as exp(-(distance)^2) of another."""
    draw = np.eye(12)
    # A distance of 100 between different ones.
    places = np.sqrt(0.5) * 100.0 * draw[[0, 0, *[1] * others, 2, 3, 4]]
    places[:2] += np.array([[0.0], [2.5]]) * draw[5]
    places[2 : 2 + others] += np.sqrt(0.5) * 6.0 * draw[6 : 6 + others]
    layer = np.concatenate([places.T.ravel(), np.ones(len(places))])
    (found,) = gradient_matching(
        trained((1,), (len(places),), layer, layer[:0]), Side(public=np.zeros((5, 12)))
    )
    assert found.parts[0][0, chosen] > 70.0


def test_the_64_most_changed_hidden_units_are_used() -> None:
    """Of these 63 say the first record and one the second; the last unit, which moved least, says another."""
    first, second, other = 10.0 * np.eye(3)
    offsets = np.linspace(1.0, 2.0, 65)
    means = np.concatenate([[other], [second], np.tile(first, (63, 1))])
    layer = np.concatenate([(means.T * offsets).ravel(), offsets])
    (found,) = gradient_matching(trained((3,), (65,), layer, layer[:0]), Side(public=np.zeros((5, 3))))
    np.testing.assert_allclose(found.parts[0], [first, second, first])


def test_one_hidden_unit_gives_one_record_and_none_gives_none() -> None:
    record, side = random(1, 4, 0)[0], Side(public=random(5, 4, 4))
    layer = np.concatenate([record * 0.3, [0.3]])
    (found,) = gradient_matching(trained((1,), (1,), layer, layer[:0]), side)
    np.testing.assert_allclose(found.parts[0], record[None])
    for hidden, change in (((), layer), ((1,), np.zeros(5))):
        with pytest.raises(NotApplicableError, match="cannot undo"):
            list(gradient_matching(trained((1,), hidden, change, layer[:0]), side))
    with pytest.raises(NotApplicableError, match="no public rows to make a guess from"):
        list(gradient_matching(trained((1,), (1,), layer, layer[:0]), Side(public=side.public[:0])))


def test_field_reveals_the_place_and_values_of_a_single_record() -> None:
    """With a linear encoder of two features, the map is all that the attack knows about a record."""
    rows, public = random(6, 2, 0), random(4000, 2, 1)
    weights = np.concatenate([np.eye(2).ravel(), np.zeros(2)]).astype(np.float32)
    view = view_of(cut(rows, 6), DensityRequest(weights=weights, hidden=(), reach=16.0, nodes=65), mean=True)
    (found,) = surrogate_inversion(view, Side(public=public))
    scores = [float(np.linalg.norm(found.parts[row][0] - rows[row])) for row in range(6)]
    assert max(scores) < 0.3 < 0.3 * float(np.linalg.norm(rows - public.mean(axis=0), axis=1).mean())
    with pytest.raises(NotApplicableError, match="public rows"):
        list(surrogate_inversion(view, Side(public=public[:10])))


# --------------------------------------------------------------------------------- membership


def test_per_record_posts_reveal_membership() -> None:
    rows, others = random(300, 5, 0), random(300, 5, 1)
    side = Side(public=rows[:0], candidates=np.concatenate([rows, others]))
    (found,) = membership(anchored(rows, random(7, 5, 2)), side)
    reported = membership_of(found.scores, np.arange(600) < 300)
    assert reported.auc > 0.999
    assert reported.tpr == 1.0


def test_noisy_mean_embedding_hides_membership_and_a_bare_one_does_not() -> None:
    rows, others = random(200, 5, 0), random(1000, 5, 1)
    side = Side(public=rows[:0], candidates=np.concatenate([rows, others]))
    aucs = {}
    for name, noise in (("bare", None), ("noisy", GaussianNoise(on="embedding", multiplier=3.7))):
        request = MeanEmbeddingRequest(
            seed=3,
            count=512,
            gamma=5.0,
            centre=np.zeros(5),
            axes=None,
            witnesses=witnesses(),
            mechanism=noise,
        )
        found = next(
            one
            for one in membership(view_of(cut(rows, 2), request, mean=True), side)
            if MeanEmbedding in one.uses
        )
        aucs[name] = membership_of(found.scores, np.arange(1200) < 200).auc
    assert aucs["bare"] > 0.75
    assert abs(aucs["noisy"] - 0.5) < 0.1


def test_membership_scores_compare_messages_with_each_candidate() -> None:
    """Scores by places and by cells of a private map equal explicit sums over all pairs."""
    rows, candidates = random(30, 4, 0), random(12, 4, 1)
    side = Side(public=rows[:0], candidates=candidates)
    points = random(40, 4, 2)
    found = {one.variant: one for one in membership(view_of(cut(rows), DistanceRequest(points)), side)}
    few = points[np.round(np.linspace(0, 39, 16)).astype(int)]
    own, there = (np.linalg.norm(some[:, None] - few, axis=2) for some in (candidates, rows))
    nearest = -np.linalg.norm(own[:, None] - there, axis=2).min(axis=1)
    np.testing.assert_allclose(found["distances posted"].scores, nearest, rtol=1e-6)
    assert found["distances posted"].numbers == {"candidates": 12}

    sight = Sight(0.5, 1e6, None, None, 4)
    frame = Frame(sight, np.full(4, 0.25), np.eye(4)[:, :2])
    centres = random(5, 2, 3)
    sums = CellSumsRequest(frame, centres, 1e6, 30)
    federation, transcript = federation_seen(cut(rows))
    counts = federation.sum(sums).counts / COUNT_WEIGHT
    view = View(transcript=transcript, sizes=federation.sizes, embedding=np.zeros((0, 2)))
    found = {one.variant: one for one in membership(view, side)}
    apart = ((candidates[:, None, :2] - 0.75 - centres) ** 2).sum(axis=2)
    np.testing.assert_allclose(found["cells' centres"].scores, -apart.min(axis=1), rtol=1e-6)
    width = np.median(apart.min(axis=1))
    density = np.log((counts * np.exp(-apart / (2.0 * width))).sum(axis=1))
    np.testing.assert_allclose(found["cells and their counts"].scores, density, rtol=1e-6)


def test_membership_uses_the_last_encoder_and_landmarks() -> None:
    """Scores use the nearest place and the nearest landmark of the last request."""
    rows, candidates = random(30, 3, 0), random(12, 3, 1)
    side = Side(public=rows[:0], candidates=candidates)
    draw = np.random.default_rng(2)
    requests = [
        PositionRequest(draw.normal(size=size).astype(np.float32), hidden)
        for size, hidden in ((8, ()), (26, (4,)), (32, (5,)))
    ]
    view = view_of([rows], *requests)
    with pytest.raises(NotApplicableError, match="nothing to compare a record with"):
        list(membership(replace(view, embedding=np.zeros((0, 2))), side))
    view = replace(view, embedding=draw.normal(size=(30, 2)))
    (found,) = membership(view, side)
    placed = positions_of(candidates.astype(np.float32), requests[-1].weights, (5,)).astype(np.float64)
    apart = np.linalg.norm(placed[:, None] - view.embedding, axis=2)
    assert (found.variant, found.uses) == ("encoder and published map", (Positions,))
    np.testing.assert_allclose(found.scores, -apart.min(axis=1), rtol=1e-5)

    landmarks = [random(4, 3, seed) for seed in (3, 4, 5)]
    federation, transcript = federation_seen(cut(rows), packed=True)
    for points in landmarks:
        federation.mean(StepRequest(landmarks=points, gamma=0.1, step=1.0, local_steps=1, share="gradient"))
    (found,) = membership(
        View(transcript=transcript, sizes=federation.sizes, embedding=np.zeros((0, 2))), side
    )
    apart = np.linalg.norm(candidates[:, None] - landmarks[-1], axis=2)
    assert (found.variant, found.uses) == ("learnt landmarks", (Step,))
    np.testing.assert_allclose(found.scores, -(apart**2).min(axis=1), rtol=1e-9)


def test_membership_uses_the_client_with_the_nearest_distances() -> None:
    """A client without rows posts nothing and does not count."""
    rows, candidates = random(20, 3, 0), random(12, 3, 1)
    points = [random(6, 3, seed) for seed in (2, 3, 4)]
    parts = [rows[:9], rows[:0], rows[9:]]
    requests = [DistanceRequest(points[0]), DistanceRequest(points[1]), KernelRequest(points[2], 0.1)]
    transcript = Transcript()
    for client, (part, request) in enumerate(zip(parts, requests, strict=True)):
        sent = view_of([part], request).transcript if len(part) else ()
        reply = [seen.reply for seen in sent][-1] if sent else Distances(np.zeros((0, 6)))
        transcript.add(Seen(number=client + 1, round=0, request=request, client=client, reply=reply))
    view = View(transcript=transcript, sizes=(9, 0, 11), embedding=np.zeros((0, 2)))
    (found,) = membership(view, Side(public=rows[:0], candidates=candidates))
    apart = []
    for part, there in ((parts[0], points[0]), (parts[2], points[2])):
        own, posts = (np.linalg.norm(some[:, None] - there, axis=2) for some in (candidates, part))
        apart.append(np.linalg.norm(own[:, None] - posts, axis=2).min(axis=1))
    np.testing.assert_allclose(found.scores, -np.minimum(*apart), rtol=1e-6)
    assert found.uses == (Distances, Kernels)


def test_membership_gives_a_reason_if_it_does_not_apply() -> None:
    view, rows = anchored(random(30, 3, 0), random(5, 3, 1)), random(4, 3, 2)
    with pytest.raises(NotApplicableError, match="records of the source that are not in the run"):
        list(membership(view, Side(public=rows)))
    with pytest.raises(NotApplicableError, match="nothing to compare a record with"):
        list(membership(replace(view, transcript=Transcript()), Side(public=rows, candidates=rows)))


def witnesses() -> Float64Array:
    from raydr.methods.landmarks.features import fourier_features

    return fourier_features(3, 512, 5.0, np.zeros(5)).frequencies[-1, -4:]


def test_auc_and_false_alarms_equal_counting() -> None:
    draw = np.random.default_rng(0)
    scores, members = np.round(draw.normal(size=400), 1), draw.random(400) < 0.3
    inside, outside = scores[members], scores[~members]
    pairs = np.sign(inside[:, None] - outside[None, :])
    reported = membership_of(scores, members)
    assert reported.auc == pytest.approx(float((pairs == 1).mean() + 0.5 * (pairs == 0).mean()))
    assert reported.tpr == float((inside > outside.max()).mean())


# -------------------------------------------------------------------------------------- units and scores


def test_scaling_by_the_method_is_undone() -> None:
    rows = random(30, 4, 0) + 50.0
    parts = cut(rows)
    shift, factor = np.full(4, 50.0), np.array([0.5, 0.5, 0.0, 2.0])
    view = view_of(parts, ScaleRows(shift, factor))
    inside = view.fed(rows)
    np.testing.assert_allclose(inside, (rows - shift) * factor)
    np.testing.assert_allclose(view.unfed(inside)[:, [0, 1, 3]], rows[:, [0, 1, 3]])
    scaled = View(transcript=view.transcript, sizes=view.sizes, embedding=view.embedding, scaled=True)
    assert scaled.own_scaling is None  # that one was from the scenario


def test_errors_are_relative_to_length_and_distance_from_mean() -> None:
    rows = np.array([[10.0, 0.0], [10.0, 2.0], [10.0, -2.0], [10.0, 0.0]])
    estimate = Estimate((Piece(np.arange(4), np.array([10.0, 0.0]), np.zeros((4, 0)), np.zeros((0, 2))),))
    found = Reconstruction(uses=(), knows="", estimate=estimate, guess=np.array([0.0, 0.0]))
    scores = scored(found, rows)
    np.testing.assert_allclose(scores.relative, [0.0, 2.0 / np.sqrt(104), 2.0 / np.sqrt(104), 0.0])
    np.testing.assert_allclose(scores.centred, [0.0, 1.0, 1.0, 0.0])  # the mean itself divides by no zero
    assert scores.errors.relative_guess.median == pytest.approx(1.0)
    assert scores.errors.exact == 0.5


def test_known_records_are_not_scored() -> None:
    rows = random(20, 3, 0)
    known = np.arange(10)
    side = Side(public=rows[:10], known=known, values=rows[:10], counts=(10,))
    (verdict,) = judged(
        ATTACKS["known-sample"], anchored(rows, random(5, 3, 1)), side, truth_of(rows), lambda kind: 3
    )
    assert verdict.errors is not None
    assert verdict.errors.records == 10
    assert verdict.messages == {"AnchorDistances": 3}
    assert {int(example.row) for example in verdict.examples} <= set(range(10, 20))
    spared = Side(public=rows[:10], spared=np.arange(20))
    (verdict,) = judged(
        ATTACKS["trilateration"], anchored(rows, random(5, 3, 1)), spared, truth_of(rows), lambda kind: 3
    )
    assert "already knows every record" in verdict.why
