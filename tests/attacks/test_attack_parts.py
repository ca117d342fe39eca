"""Parts of attacks: views, side knowledge, estimates, posts and point clouds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
import torch
from attacked import turned, view_of
from scipy.spatial.distance import cdist
from scipy.stats import skew

from raydr.arrays import Float64Array, Int64Array
from raydr.attacks import Estimate, NotApplicableError, Piece, Side, View
from raydr.attacks.attribute_inference import attribute_inference
from raydr.attacks.chosen_landmarks import chosen_landmarks
from raydr.attacks.distance_geometry import distance_geometry
from raydr.attacks.distribution_alignment import (
    _Clouds,
    _nearest,
    _rotation,
    _signs,
    _skewness,
    aligned,
    distribution_alignment,
)
from raydr.attacks.gradient_matching import gradient_matching
from raydr.attacks.known_sample import known_sample, placed
from raydr.attacks.per_record import per_record
from raydr.attacks.point_cloud import Cloud, cloud, unfolded, unfolded_cloud
from raydr.attacks.posted_distances import Posted, posted
from raydr.attacks.principal import principal_axes
from raydr.attacks.projection import projection
from raydr.attacks.scoring import Truth
from raydr.attacks.surrogate_inversion import _drawn_from, _of_network, _rows_at, surrogate_inversion
from raydr.attacks.trilateration import located, trilateration
from raydr.federation import Client, Granularity, Range, Reply, Request, answers
from raydr.federation.blurring import BlurRecords
from raydr.federation.transcript import Seen, Transcript
from raydr.geometry.points import squared_distances
from raydr.methods.fed_pca import ComponentRequest, ComponentsAtHome, ComponentsAtHomeRequest
from raydr.methods.fedne.loss import repulsion, squared_distance
from raydr.methods.fedne.networks import fit_surrogate, initial_surrogate, query_grid, targets
from raydr.methods.fedne.settings import SOFTENING
from raydr.methods.fedne.surrogates import Density, DensityRequest, Surrogate
from raydr.methods.landmarks.learning import StepRequest
from raydr.methods.landmarks.maps import DistanceRequest, Distances
from raydr.methods.landmarks.spectral import KernelRequest, Kernels
from raydr.methods.sense.clients import AnchorDistances, AnchorRequest
from raydr.methods.sense.spaces import EuclideanSpace, HyperbolicSpace
from raydr.privacy.accounting import Budget
from raydr.privacy.gaussian import GaussianNoise
from raydr.statistics.scaling import ScaleRows


def random(rows: int, features: int, seed: int) -> Float64Array:
    return np.random.default_rng(seed).standard_normal((rows, features)) * np.linspace(3.0, 0.5, features)


ROWS, POINTS = random(12, 4, 0), random(5, 4, 1)
EUCLIDEAN = EuclideanSpace()


def bare(view: View) -> View:
    """Return the same view without a published map."""
    return replace(view, embedding=view.embedding[:0])


def each_told(parts: list[Float64Array], *requests: Request) -> View:
    """Return the view of a server that sends each client a different request."""
    transcript = Transcript()
    for client, (part, request) in enumerate(zip(parts, requests, strict=True)):
        for seen in view_of([part], request).transcript:
            transcript.add(
                Seen(
                    number=client + 1,
                    round=0,
                    request=seen.request,
                    client=client,
                    reply=seen.reply,
                    protection=seen.protection,
                )
            )
    return View(transcript=transcript, sizes=tuple(map(len, parts)), embedding=np.zeros((0, 2)))


# ------------------------------------------------------------------------------------------------ views and sides


def test_view_has_the_default_privacy_settings() -> None:
    view = view_of([ROWS])
    assert (view.delta, view.colluding) == (Budget().delta, Budget().colluding)
    assert (view.scaled, view.keyed, view.secure) == (False, False, False)


def test_truth_has_no_classes_or_columns_by_default() -> None:
    truth = Truth(rows=ROWS, names=[], members=np.zeros(0, np.bool_), shown=np.arange(4))
    assert truth.classes.shape == (0,)
    assert truth.columns == ()


def test_side_knows_only_what_it_is_given() -> None:
    side = Side(public=ROWS)
    assert side.known.shape == side.spared.shape == side.classes.shape == (0,)
    assert side.values.shape == side.candidates.shape == (0, 0)
    assert side.counts == side.informed == ()
    assert side.seed == 0


def test_guess_is_the_mean_of_public_or_similar_rows_or_0() -> None:
    np.testing.assert_allclose(Side(public=ROWS).guess(POINTS), ROWS.mean(axis=0))
    np.testing.assert_allclose(Side(public=ROWS[:0]).guess(POINTS), POINTS.mean(axis=0))
    np.testing.assert_array_equal(Side(public=ROWS[:0]).guess(POINTS[:0]), np.zeros(4))


def test_exact_minimum_of_public_rows_is_enough() -> None:
    assert Side(public=ROWS).require_public(12) is ROWS
    with pytest.raises(NotApplicableError, match="it needs 13 public rows of similar data, but there are 12"):
        Side(public=ROWS).require_public(13)


def test_method_scaling_is_undone_at_most_once() -> None:
    first = ScaleRows(np.full(4, 2.0), np.full(4, 0.5))
    second = ScaleRows(np.ones(4), np.array([1.0, 4.0, 0.0, 2.0]))
    with pytest.raises(NotApplicableError, match="scaled the rows more than once"):
        view_of([ROWS], first, second).fed(ROWS)
    view = view_of([ROWS], first, second, scaled=True)  # the first is from the scenario
    np.testing.assert_allclose(view.fed(ROWS), (ROWS - 1.0) * second.factor)
    back = np.where(second.factor == 0.0, 1.0, ROWS)
    np.testing.assert_allclose(view.unfed(view.fed(ROWS)), back)


# ------------------------------------------------------------------------------------------------ estimates


def test_blockwise_estimates_equal_direct_ones() -> None:
    basis, origin = random(2, 4, 2), np.arange(4.0)
    along = Piece(np.arange(3, 6), np.ones(4), random(3, 2, 3), basis)
    estimate = Estimate((along, Piece(np.arange(0), np.ones(4), np.zeros((0, 2)), basis), *_of(ROWS[:2])))
    spelt = np.concatenate([1.0 + along.coordinates @ basis, ROWS[:2]])
    np.testing.assert_array_equal(estimate.rows, [3, 4, 5, 0, 1])
    np.testing.assert_allclose(np.concatenate([values for _, values in estimate.blocks()]), spelt)
    np.testing.assert_allclose(estimate.mean(), spelt.mean(axis=0))
    np.testing.assert_allclose(estimate.lengths(origin), np.linalg.norm(spelt - origin, axis=1))
    np.testing.assert_allclose(Estimate(_of(ROWS[:1])).mean(), ROWS[0])


def _of(values: Float64Array) -> tuple[Piece, ...]:
    return Estimate.of(np.arange(len(values)), values).pieces


def test_estimates_come_in_ordered_blocks() -> None:
    values = random(2500, 2, 0)
    rows, found = zip(*Estimate.of(np.arange(2500)[::-1], values).blocks(), strict=True)
    np.testing.assert_array_equal(np.concatenate(rows), np.arange(2500)[::-1])
    np.testing.assert_array_equal(np.concatenate(found), values)


def test_empty_estimates_have_no_rows() -> None:
    nothing = Estimate(())
    assert nothing.rows.shape == nothing.lengths(np.zeros(4)).shape == (0,)
    assert nothing.mean() == 0.0


# ------------------------------------------------------------------------------------------------ what was posted


@dataclass(frozen=True)
class Lines(
    Reply, granularity=Granularity.PER_RECORD, what="numbers of each record, and some of all of them"
):
    first: Float64Array
    pairs: Float64Array
    total: float
    sums: Float64Array

    @staticmethod
    def ranges(request: LineRequest, rows: int) -> dict[str, Range]:
        return {
            "first": Range((rows,)),
            "pairs": Range((rows, 2, 2)),
            "total": Range(()),
            "sums": Range((request.least,)),
        }


@dataclass(frozen=True)
class LineRequest(Request[Lines], what="how many sums"):
    least: int


@answers(LineRequest)
def lines(client: Client, request: LineRequest) -> Lines:
    rows = client.rows.astype(np.float64)
    pairs = np.stack([rows[:, 1:3], rows[:, 2:4]], axis=1)
    return Lines(rows[:, 0].copy(), pairs, float(rows.sum()), np.ones(request.least))


@dataclass(frozen=True)
class Total(Reply, granularity=Granularity.PER_RECORD, what="one number of all records"):
    total: float

    @staticmethod
    def ranges(request: TotalRequest, rows: int) -> dict[str, Range]:
        return {"total": Range(())}


@dataclass(frozen=True)
class TotalRequest(Request[Total], what="nothing"):
    pass


@answers(TotalRequest)
def total(client: Client, request: TotalRequest) -> Total:
    return Total(1.0)


def test_record_numbers_are_columns_of_arrays_with_one_row_per_record() -> None:
    (posts,) = per_record(bare(view_of([ROWS[:7], ROWS[7:]], LineRequest(20))))
    np.testing.assert_array_equal(posts.values, ROWS[:, [0, 1, 2, 2, 3]])
    assert posts.kinds == (Lines,)
    view = view_of([ROWS], LineRequest(20), TotalRequest())  # numbers of the other message are not per record
    assert [block.kind for block in per_record(bare(view))[0].blocks] == [Lines]
    with pytest.raises(NotApplicableError, match="nothing was posted about single records"):
        per_record(bare(view_of([ROWS], TotalRequest())))


def test_client_without_rows_leaves_other_posts_unchanged() -> None:
    view = bare(view_of([ROWS[:7], ROWS[:0], ROWS[7:]], DistanceRequest(POINTS)))
    (posts,) = per_record(view)
    np.testing.assert_array_equal(posts.rows, np.arange(12))
    np.testing.assert_allclose(posts.values, ((ROWS[:, None] - POINTS) ** 2).sum(axis=2))
    (whole,) = posted(view)
    np.testing.assert_allclose(whole.squared, posts.values)
    np.testing.assert_array_equal(whole.rows, posts.rows)


def test_sums_are_not_posts_of_records() -> None:
    view = bare(
        view_of(
            [ROWS[:7], ROWS[7:]],
            StepRequest(landmarks=POINTS, gamma=0.1, step=1.0, local_steps=1, share="gradient"),
            mean=True,
        )
    )
    with pytest.raises(NotApplicableError, match="nothing was posted about single records"):
        per_record(view)


def test_clients_with_different_points_are_separate_groups() -> None:
    parts = [ROWS[:3], ROWS[3:7], ROWS[7:]]
    shared, own = DistanceRequest(POINTS), DistanceRequest(POINTS[:3])
    view = each_told(parts, shared, own, shared)
    groups = per_record(view)
    assert [posts.rows.tolist() for posts in groups] == [[0, 1, 2, 7, 8, 9, 10, 11], [3, 4, 5, 6]]
    assert [posts.blocks[0].request for posts in groups] == [shared, own]
    assert [one.rows.tolist() for one in posted(view)] == [[0, 1, 2, 7, 8, 9, 10, 11], [3, 4, 5, 6]]


def test_last_reply_of_a_kind_is_used() -> None:
    view = bare(view_of([ROWS], LineRequest(20), LineRequest(30)))
    (posts,) = per_record(view)
    assert posts.blocks[0].request == LineRequest(30)


def test_distances_are_read_from_every_message_kind() -> None:
    squared = ((ROWS[:, None] - POINTS) ** 2).sum(axis=2)
    for request in (
        DistanceRequest(POINTS),
        KernelRequest(POINTS, 0.01),
        AnchorRequest(POINTS, EUCLIDEAN, False),
    ):
        (found,) = posted(view_of([ROWS[:5], ROWS[5:]], request))
        np.testing.assert_allclose(found.squared, squared, rtol=1e-9)
        assert found.points is not None
        np.testing.assert_array_equal(found.points, POINTS)
        assert (found.noise, found.kind, found.space) == (0.0, request.reply, EUCLIDEAN)
    space = HyperbolicSpace()
    (found,) = posted(view_of([0.1 * ROWS], AnchorRequest(0.1 * POINTS, space, False)))
    assert found.space is space


def test_kernels_outside_0_to_1_mean_the_largest_or_zero_distance() -> None:
    seen = Seen(
        number=1,
        round=0,
        request=KernelRequest(POINTS, 0.5),
        client=0,
        reply=Kernels(np.array([[1.2, 1.0, np.exp(-1.0), 0.0, -0.1]])),
    )
    transcript = Transcript()
    transcript.add(seen)
    (found,) = posted(View(transcript=transcript, sizes=(1,), embedding=np.zeros((0, 2))))
    largest = -2.0 * np.log(np.finfo(np.float64).tiny)
    np.testing.assert_allclose(found.squared, [[0.0, 0.0, 2.0, largest, largest]])
    (posts,) = per_record(View(transcript=transcript, sizes=(1,), embedding=np.zeros((0, 2))))
    np.testing.assert_allclose(posts.values, [[-np.log(1.2), 0.0, 1.0, largest / 2.0, largest / 2.0]])


def test_hidden_points_are_unknown_to_the_server() -> None:
    for reply in (
        Kernels(np.exp(-(ROWS[:, :2] ** 2))),
        Distances(ROWS[:, :2] ** 2),
        AnchorDistances(ROWS[:, :2] ** 2, ROWS),
    ):
        transcript = Transcript()
        transcript.add(Seen(number=1, round=0, request=TotalRequest(), client=0, reply=reply))
        (found,) = posted(View(transcript=transcript, sizes=(12,), embedding=np.zeros((0, 2))))
        assert (found.points, found.space) == (None, EUCLIDEAN)
        np.testing.assert_allclose(
            found.squared, ROWS[:, :2] ** 2, rtol=1e-9, atol=1e-12
        )  # of a kernel, in its own unit


def test_distance_noise_is_as_declared() -> None:
    noise = GaussianNoise(on="distances", level=0.25)
    (found,) = posted(view_of([ROWS], AnchorRequest(POINTS, EUCLIDEAN, False, noise)))
    assert found.noise == 0.25
    (seen,) = [
        seen
        for seen, _ in view_of([ROWS], AnchorRequest(POINTS, EUCLIDEAN, False, noise)).transcript.of(
            AnchorDistances
        )
    ]
    transcript = Transcript()
    transcript.add(replace(seen, protection=None))
    assert posted(View(transcript=transcript, sizes=(12,), embedding=np.zeros((0, 2))))[0].noise == 0.25
    reply = view_of([ROWS], DistanceRequest(POINTS)).transcript.of(Distances)[0][1]
    transcript = Transcript()
    other = GaussianNoise(on="data", multiplier=2.0, clip=1.0)
    for client, protection in enumerate((noise, None, other)):
        transcript.add(
            Seen(
                number=client + 1,
                round=0,
                request=DistanceRequest(POINTS),
                client=client,
                reply=reply,
                protection=protection,
            )
        )
    found_ = posted(View(transcript=transcript, sizes=(12, 12, 12), embedding=np.zeros((0, 2))))
    assert [(one.noise, one.covered) for one in found_] == [(0.25, True), (0.0, False), (0.0, True)]


def test_noisy_records_are_never_exact() -> None:
    for noise in (
        GaussianNoise(on="data", multiplier=0.1, clip=100.0, stage="all"),
        GaussianNoise(on="data", level=0.1, stage="all"),
        None,
    ):
        view = view_of([ROWS], *([BlurRecords(noise, 1.0)] if noise else []), DistanceRequest(POINTS))
        (found,) = trilateration(view, Side(public=ROWS[:0]))
        assert (found.certain is None) == (noise is not None)
        assert ("noise" in found.knows) == (noise is not None)


def test_inner_part_is_not_a_number_of_a_record() -> None:
    (posts,) = per_record(bare(view_of([ROWS], AnchorRequest(POINTS[:3], EUCLIDEAN, True))))
    np.testing.assert_allclose(posts.values, ((ROWS[:, None] - POINTS[:3]) ** 2).sum(axis=2))
    assert posts.kinds == (AnchorDistances,)


# ------------------------------------------------------------------------------------------------ principal axes


@pytest.mark.parametrize(("rows", "features"), [(5000, 6), (4200, 3), (40, 30), (60, 1300)])
def test_principal_axes_are_singular_vectors_of_centred_rows(rows: int, features: int) -> None:
    """Cases: several blocks, fewer rows than axes, and too many features for a square matrix."""
    draw = np.random.default_rng(1)
    rank = min(features, 4)
    made = (draw.normal(size=(rows, rank)) * [8.0, 4.0, 2.0, 1.0][:rank]) @ draw.normal(size=(rank, features))
    made += 1e7
    found = principal_axes(made, rank, 0)
    np.testing.assert_allclose(found.mean, made.mean(axis=0))
    left, singular, right = np.linalg.svd(made - made.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(np.abs(found.basis @ right[:rank].T), np.eye(rank), atol=1e-6)
    np.testing.assert_allclose(
        np.abs(found.coordinates(made)), np.abs(left[:, :rank] * singular[:rank]), atol=1e-5
    )


@pytest.mark.parametrize("features", [6, 1300])
@pytest.mark.parametrize("scale", [1e-9, 1e5])
def test_axes_are_at_most_the_rank_of_the_rows(features: int, scale: float) -> None:
    made = scale * random(9, 3, 0) @ random(3, features, 1)
    assert [len(principal_axes(made, count, 0).basis) for count in (2, 3, 6)] == [2, 3, 3]
    assert [len(principal_axes(made[:count], 6, 0).basis) for count in (1, 2, 3)] == [0, 1, 2]
    full = scale * random(4, features, 2)
    assert len(principal_axes(full, 9, 0).basis) == 3
    assert len(principal_axes(random(9, 3, 0), 9, 0).basis) == 3


# ------------------------------------------------------------------------------------------------ clouds


@pytest.mark.parametrize(
    ("rows", "dimensions"), [(9, 1), (16, 2), (24, 2), (25, 3), (35, 3), (36, 4), (99, 4)]
)
@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_unfolding_has_as_many_dimensions_as_rows_allow(rows: int, dimensions: int, scale: float) -> None:
    """At most the dimensions of the data, with twice as many rows as unknowns."""
    squared = squared_distances(random(rows, 4, 0) * scale, random(30, 4, 1) * scale)
    assert unfolded(squared).shape == (rows, dimensions)


def test_too_few_records_cannot_be_unfolded() -> None:
    squared = squared_distances(random(8, 4, 0), random(30, 4, 1))
    with pytest.raises(NotApplicableError, match="8 records are too few"):
        unfolded(squared)
    with pytest.raises(NotApplicableError, match="40 records are too few"):
        unfolded(np.ones((40, 5)))  # all at one place


def test_dimension_below_rounding_is_not_unfolded() -> None:
    draw = np.random.default_rng(0)
    rows, points = draw.normal(size=(80, 2)) * [1e4, 1.0], draw.normal(size=(12, 2)) * [1e4, 1.0]
    assert unfolded(squared_distances(rows, points)).shape == (80, 1)


def test_noisy_distances_are_unfolded_without_imaginary_parts() -> None:
    draw = np.random.default_rng(0)
    squared = squared_distances(random(150, 4, 0), random(12, 4, 1))
    assert np.isfinite(unfolded(squared * draw.uniform(0.2, 1.8, squared.shape))).all()


def test_distances_to_different_points_are_unfolded_separately() -> None:
    view = each_told([ROWS[:6], ROWS[6:]], DistanceRequest(POINTS), DistanceRequest(POINTS + 1.0))
    with pytest.raises(NotApplicableError, match="different points"):
        unfolded_cloud(view)
    found = cloud(view)
    np.testing.assert_array_equal(found.rows, np.arange(12))
    np.testing.assert_allclose(
        squared_distances(found.points, found.points), squared_distances(ROWS, ROWS), atol=1e-4
    )
    curved = view_of([0.1 * ROWS], AnchorRequest(0.1 * POINTS, HyperbolicSpace(), False))
    for unfold in (cloud, unfolded_cloud):
        with pytest.raises(NotApplicableError, match="hyperbolic"):
            unfold(curved)


# ------------------------------------------------------------------------------------------------ alignment


def lopsided(rows: int, features: int, seed: int) -> Float64Array:
    """Return rows with small third moments, equal in every column."""
    draw = np.random.default_rng(seed)
    return (draw.gamma(16.0, 0.25, (rows, features)) - 4.0) * np.linspace(3.0, 1.0, features)


def test_third_moments_are_those_of_scipy_and_0_of_a_constant() -> None:
    rows = np.column_stack([lopsided(200, 3, 0) + 50.0, np.ones(200)])
    np.testing.assert_allclose(_skewness(rows)[:3], skew(rows[:, :3]))
    assert _skewness(rows)[3] == 0.0


@pytest.mark.parametrize("scale", [1e-25, 1.0, 1e25])
def test_nearest_point_is_found_at_any_scale(scale: float) -> None:
    moved, fixed = random(2100, 3, 0), random(40, 3, 1)
    apart = cdist(moved, fixed)
    found = _nearest(moved * scale, fixed * scale)
    np.testing.assert_allclose(apart[np.arange(2100), found], apart.min(axis=1), rtol=1e-3)


def test_axis_signs_come_from_distances_then_third_moments() -> None:
    """Hidden rows have the lower half of two of the first six columns, so third moments mislead."""
    public = lopsided(800, 8, 1)
    flips = np.array([1.0, -1.0, -1.0, 1.0, 1.0, -1.0, -1.0, 1.0])
    hidden = public[(public[:, 1] < 0.0) & (public[:, 5] < 0.0)] * flips
    misled = np.sign(_skewness(hidden) * _skewness(public)) != flips
    np.testing.assert_array_equal(np.flatnonzero(misled), [1, 5])
    np.testing.assert_array_equal(_signs(hidden, public), flips)


@pytest.mark.parametrize("seed", range(4))
def test_axis_signs_minimise_mean_distance_to_public_rows(seed: int) -> None:
    hidden, public = random(30, 4, seed), random(40, 4, seed + 10)
    apart = {
        signs: cdist(hidden * signs, public).min(axis=1).mean() for signs in product((-1.0, 1.0), repeat=4)
    }
    np.testing.assert_array_equal(_signs(hidden, public), min(apart, key=lambda signs: apart[signs]))


@pytest.mark.parametrize(
    ("features", "steps"),
    [
        (3, [3] * 4),
        (20, [20] * 4),
        (21, [20] * 4 + [21] * 4),
        (50, [20] * 4 + [50] * 4),
        (60, [20] * 4 + [50] * 4 + [60] * 8),
    ],
)
def test_alignment_adds_axes_step_by_step(
    features: int, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    axes = []

    def noted(moved: Float64Array, fixed: Float64Array) -> Int64Array:
        axes.append(moved.shape[1])
        return _nearest(moved, fixed)

    clouds = _Clouds(random(70, features, 0), random(70, features, 1))
    monkeypatch.setattr("raydr.attacks.distribution_alignment._nearest", noted)
    _rotation(clouds, 0)
    assert axes[-len(steps) :] == steps
    assert len(axes) == len(steps) + 2 ** min(features, 6)  # the others choose signs


def test_slightly_rotated_cloud_is_rotated_back() -> None:
    public = lopsided(300, 3, 0)
    turn = np.linalg.qr(np.eye(3) + 0.05 * random(3, 3, 1))[0]
    turn *= np.sign(np.diag(turn))
    np.testing.assert_allclose(_rotation(_Clouds(public @ turn.T, public), 0), turn, atol=1e-6)


@pytest.mark.parametrize(("public", "axes"), [(20, [5]), (24, [6]), (27, [6]), (30, [7]), (31, [7, 7])])
def test_frame_has_one_axis_per_four_public_rows(public: int, axes: list[int]) -> None:
    rows = lopsided(60, 9, 0)
    found = list(
        distribution_alignment(
            view_of([rows], DistanceRequest(rows[:12])), Side(public=lopsided(public, 9, 1))
        )
    )
    assert [one.numbers["axes"] for one in found] == axes
    assert [one.numbers["public_rows"] for one in found] == ([30, 31] if public == 31 else [public])
    assert found[-1].variant == f"{public} public rows"


def test_unfolded_distances_use_all_public_rows_and_most_known_records() -> None:
    rows = lopsided(100, 3, 0)
    view = view_of([rows], DistanceRequest(lopsided(8, 3, 1)))
    side = Side(public=lopsided(20, 3, 2), known=np.arange(6), values=rows[:6], counts=(4, 6))
    assert [one.numbers for one in distance_geometry(view, side)] == [
        {"public_rows": 20, "axes": 3},
        {"known_records": 6, "public_rows": 20},
    ]
    few = replace(side, public=side.public[:19])
    assert [one.numbers for one in distance_geometry(view, few)] == [{"known_records": 6, "public_rows": 19}]
    assert [one.numbers for one in distance_geometry(view, replace(side, counts=()))] == [
        {"public_rows": 20, "axes": 3}
    ]
    with pytest.raises(NotApplicableError, match="no known records to place the unfolded points"):
        list(distance_geometry(view, replace(few, counts=())))


# ------------------------------------------------------------------------------------------------ known records


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e6])
def test_d_known_records_and_the_mean_place_a_cloud(scale: float) -> None:
    rows = scale * (random(30, 4, 0) + 2.0)
    found = Cloud(np.arange(30), turned(rows / scale) * scale, Distances)
    places = found.points
    for count, mean in ((4, rows.mean(axis=0)), (5, None), (5, np.zeros(4)), (9, None)):
        piece = placed(found, places[:count], rows[:count], mean)
        np.testing.assert_allclose(piece.spelt(piece.coordinates), rows, rtol=1e-6, atol=1e-7 * scale)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e6])
def test_undetermined_directions_are_estimated_by_the_mean(scale: float) -> None:
    plane = scale * random(8, 2, 1) @ random(2, 4, 2)
    rows = np.concatenate([plane, scale * random(20, 4, 0)])
    piece = placed(Cloud(np.arange(28), turned(rows / scale) * scale, Distances), *_known(rows, scale), None)
    assert piece.basis is not None
    assert piece.basis.shape == (2, 4)
    axes = np.linalg.svd(plane - plane.mean(axis=0))[2][:2]
    nearest = plane.mean(axis=0) + (rows - plane.mean(axis=0)) @ axes.T @ axes
    np.testing.assert_allclose(piece.spelt(piece.coordinates), nearest, rtol=1e-6, atol=1e-7 * scale)


def _known(rows: Float64Array, scale: float) -> tuple[Float64Array, Float64Array]:
    return (turned(rows / scale) * scale)[:8], rows[:8]


def test_known_record_of_a_silent_client_is_not_used() -> None:
    rows = random(30, 3, 0)
    view = replace(bare(view_of([rows[:20]], DistanceRequest(turned(random(5, 3, 1))))), sizes=(20, 10))
    side = Side(
        public=rows[:0],
        known=np.array([25, 20, 29, 3, 8, 1, 2, 19]),
        values=rows[[25, 20, 29, 3, 8, 1, 2, 19]],
    )
    side = replace(side, counts=(0, 3, 4, 8))
    found = list(known_sample(view, side))
    assert [one.variant for one in found] == ["4 known records", "8 known records"]
    np.testing.assert_allclose(
        np.concatenate([values for _, values in found[-1].estimate.blocks()]), rows[:20], atol=1e-6
    )


def test_known_sample_reports_its_knowledge() -> None:
    rows = random(20, 3, 0)
    view = view_of([rows], DistanceRequest(random(5, 3, 1)))
    side = Side(public=rows[:0], known=np.arange(3), values=rows[:3], counts=(1, 3))
    what = "the distances between records that follow from the messages, and "
    one, three = known_sample(view, side)
    assert (one.variant, one.knows) == ("1 known record", what + "1 of the records")
    assert (three.variant, three.knows) == ("3 known records", what + "3 of the records")
    np.testing.assert_allclose(three.guess, rows[:3].mean(axis=0))
    (found,) = known_sample(view, replace(side, public=random(7, 3, 2), counts=(0,)))
    assert found.knows == what + "0 of the records; the mean of 7 rows of similar data"
    np.testing.assert_allclose(found.guess, random(7, 3, 2).mean(axis=0))
    with pytest.raises(NotApplicableError, match="too few records to know some"):
        list(known_sample(view, replace(side, counts=())))


# ------------------------------------------------------------------------------------------------ projections


def test_projection_is_the_nearest_point_in_the_span_of_known_axes() -> None:
    mean, axes = np.arange(4.0), np.zeros((4, 3))  # a three-dimensional map of data of rank two
    axes[[2, 3], 0], axes[0, 1] = np.sqrt(0.5), 1.0
    for parts in ([ROWS], [ROWS[:5], ROWS[5:]]):
        view = view_of(parts, ComponentRequest(mean, axes))
        (found,) = projection(view, Side(public=ROWS[:0]))
        values = np.concatenate([block for _, block in found.estimate.blocks()])
        np.testing.assert_allclose(values, mean + (ROWS - mean) @ axes @ axes.T)
        np.testing.assert_allclose(found.guess, mean)
        assert (found.knows, found.numbers) == ("the mean and the axes", {"axes": 2})
    (found,) = projection(replace(view, keyed=True), Side(public=ROWS[:0]))
    assert found.knows == "the mean and the axes, under a key that it does not have"
    np.testing.assert_array_equal(found.guess, np.zeros(4))


def test_unpublished_places_are_not_projected() -> None:
    transcript = Transcript()
    transcript.add(
        Seen(
            number=1,
            round=0,
            request=ComponentsAtHomeRequest(np.zeros(4), np.eye(4)),
            client=0,
            reply=ComponentsAtHome(ROWS),
        )
    )
    with pytest.raises(NotApplicableError, match="no client posted the coordinates"):
        list(
            projection(
                View(transcript=transcript, sizes=(12,), embedding=np.zeros((0, 2))), Side(public=ROWS[:0])
            )
        )


# ------------------------------------------------------------------------------------------------ surrogates


def shared(places: Float64Array, axis: Float64Array) -> Float64Array:
    """Return the bilinear histogram of places on the grid, (nodes, nodes)."""
    step = axis[1] - axis[0]
    near = np.maximum(0.0, 1.0 - np.abs(places[:, :, None] - axis) / step)
    return np.asarray(np.einsum("ri,rj->ij", near[:, 0], near[:, 1]))


AXIS = np.linspace(-4.0, 4.0, 9)


@pytest.mark.parametrize("scale", [0.01, 1.0])
def test_separate_places_are_read_from_the_grid_exactly(scale: float) -> None:
    """The result does not depend on the sum of the table or on negative noise."""
    places = np.array([[-3.3, 2.2], [0.75, -1.25], [3.1, 3.9], [-3.6, -3.5]])
    table = scale * shared(places, AXIS)
    found = _drawn_from(table, AXIS, 4)
    np.testing.assert_allclose(found[np.argsort(found[:, 0])], places[np.argsort(places[:, 0])], atol=1e-9)
    one = scale * shared(places[:1], AXIS)
    one[8, 0] = -1e-3 * scale
    np.testing.assert_allclose(_drawn_from(one, AXIS, 1), places[:1], atol=1e-2)
    np.testing.assert_array_equal(np.isfinite(_drawn_from(np.zeros((9, 9)), AXIS, 2)), True)


def test_two_records_at_one_place_are_both_found() -> None:
    places = np.array([[1.25, -0.5], [1.25, -0.5], [-2.5, 3.0]])
    found = _drawn_from(shared(places, AXIS) / 2.0, AXIS, 3)
    np.testing.assert_allclose(found[np.lexsort(found.T)], places[np.lexsort(places.T)], atol=1e-9)


def test_mass_below_one_record_leaves_no_negative_rest() -> None:
    """Cells of 0.8 and 0.6 share two nodes, which hold 0.1; the next heaviest cell holds 0.48."""
    table = np.zeros((9, 9))
    table[6, :2], table[7, :2], table[8, :2], table[3, 6], table[1, 1] = 0.35, 0.05, 0.25, 0.48, 0.22
    assert table.sum() == pytest.approx(2.0)
    first, second = _drawn_from(table, AXIS, 2)
    np.testing.assert_allclose(first, [AXIS[6] + 0.1 / 0.8, AXIS[0] + 0.5])
    np.testing.assert_allclose(second, [AXIS[8], AXIS[0] + 0.5])


def test_negative_noisy_mass_moves_no_place() -> None:
    place = np.array([[1.0, -2.0]])  # a node
    table = shared(place, AXIS)
    row, column = np.argwhere(table == 1.0)[0]
    table[row - 1 : row + 2, column - 1 : column + 2] -= 0.05
    np.testing.assert_allclose(_drawn_from(table, AXIS, 1), place)


def test_place_is_found_from_a_repulsion_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = torch.tensor([[12.0, -7.0]])

    def exact(*_: object) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda queries: repulsion(squared_distance(queries, place), SOFTENING)

    monkeypatch.setattr("raydr.methods.fedne.networks.together", exact)
    found = _of_network(Surrogate(np.zeros(0, np.float32)), 1, 0, SOFTENING)
    np.testing.assert_allclose(found, place, atol=5e-3)


def test_row_at_a_place_is_the_mean_of_the_five_nearest() -> None:
    shown, rows, places = random(30, 2, 0), random(30, 4, 1), random(6, 2, 2)
    near = np.argsort(np.linalg.norm(places[:, None] - shown, axis=2), axis=1)[:, :5]
    np.testing.assert_allclose(_rows_at(places, shown, rows), rows[near].mean(axis=1))
    np.testing.assert_allclose(_rows_at(places, shown[:3], rows[:3]), np.tile(rows[:3].mean(axis=0), (6, 1)))
    np.testing.assert_allclose(_rows_at(places, shown[:1], rows[:1]), np.tile(rows[:1], (6, 1)))


def test_network_reveals_the_place_of_a_single_record() -> None:
    at, draw = np.array([[5.0, -4.0]], np.float32), np.random.default_rng(0)
    queries = query_grid(at, 0.5, margin=3.0)
    wanted = targets(queries, at, 1, draw)
    learnt = fit_surrogate(
        initial_surrogate(draw), queries, wanted, epochs=300, learning_rate=1e-2, random=draw
    )
    assert np.linalg.norm(_of_network(Surrogate(learnt), 1, 0, SOFTENING) - at) < 0.5


def test_clients_of_1_to_256_records_are_read_from_their_last_table() -> None:
    """With a linear encoder of two features, each record is at its place."""
    rows, public = np.concatenate([random(3, 2, 0), random(513, 2, 3)]), random(2000, 2, 1)
    early, last = (
        np.concatenate([turn.ravel(), np.zeros(2)]).astype(np.float32) for turn in (-np.eye(2), np.eye(2))
    )
    requests = [DensityRequest(weights=weights, hidden=(), reach=16.0, nodes=65) for weights in (early, last)]
    view = view_of([rows[:1], rows[1:3], rows[3:259], rows[259:]], *requests, mean=True)
    assert view.sizes == (1, 2, 256, 257)
    (found,) = surrogate_inversion(view, Side(public=public))
    assert {client: part.shape for client, part in found.parts.items()} == {0: (1, 2), 1: (2, 2), 2: (256, 2)}
    np.testing.assert_allclose(found.parts[0], rows[:1], atol=0.3)
    np.testing.assert_allclose(found.guess, public.mean(axis=0))
    assert (found.variant, found.uses) == ("field", (Density,))
    assert found.numbers == {"public_rows": 2000, "clients": 3}
    assert found.knows == "2,000 rows of similar data, and where the encoder puts them"
    with pytest.raises(NotApplicableError, match="every client has more than 256 records"):
        list(surrogate_inversion(replace(view, sizes=(300, 300, 300, 300)), Side(public=public)))
    (found,) = surrogate_inversion(replace(view, sizes=(0, 2, 256, 257)), Side(public=public))
    assert list(found.parts) == [1, 2]
    with pytest.raises(NotApplicableError, match="no client uploads a surrogate"):
        list(surrogate_inversion(view_of([rows]), Side(public=public)))
    (found,) = surrogate_inversion(view, Side(public=public[:50]))
    assert found.numbers["public_rows"] == 50


# ------------------------------------------------------------------------------------------------ trilateration


def test_records_are_exact_below_half_a_thousandth_of_uncertainty() -> None:
    """Anchors in a plane; records above and below it, by a part of their distance from the mean of all."""
    parts = np.array([0.0, 2e-4, -4e-4, 4.8e-4, 5.2e-4, 8e-4, -0.5])
    angle, shift = np.linspace(0.0, 2.0 * np.pi, 8)[:7], np.array([1.0, 2.0, 3.0])
    rows = 10.0 * np.column_stack([np.cos(angle), np.sin(angle), parts]) + shift
    plane = np.column_stack([random(5, 2, 0), np.zeros(5)]) + shift
    (found,) = trilateration(view_of([rows[:3], rows[3:]], DistanceRequest(plane)), Side(public=rows[:0]))
    np.testing.assert_array_equal(found.certain, np.abs(parts) < 5e-4)
    assert found.knows == "the 5 points to which distances were posted"
    assert found.numbers == {"points": 5}
    np.testing.assert_allclose(found.guess, plane.mean(axis=0))
    (keyed,) = trilateration(view_of([rows], DistanceRequest(plane), keyed=True), Side(public=rows[:0]))
    assert keyed.certain is None
    assert keyed.knows == "the 5 points to which distances were posted, under a key that it does not have"
    np.testing.assert_array_equal(keyed.guess, np.zeros(3))


def test_shared_points_are_counted_once() -> None:
    view = each_told([ROWS[:5], ROWS[5:]], DistanceRequest(POINTS), DistanceRequest(POINTS[:3].copy()))
    (found,) = trilateration(view, Side(public=ROWS[:0]))
    assert found.numbers == {"points": 5}
    np.testing.assert_allclose(found.guess, np.concatenate([POINTS, POINTS[:3]]).mean(axis=0))
    assert found.uses == (Distances,)


def test_level_noise_is_damped_by_the_mean_distance() -> None:
    """The damping is Wiener's filter for this deviation; it moves records towards the mean of the points."""
    squared = np.asarray(squared_distances(ROWS, POINTS))
    exact, noisy = (
        Posted(
            rows=np.arange(12),
            squared=squared,
            points=POINTS,
            space=EUCLIDEAN,
            noise=noise,
            covered=noise > 0.0,
            kind=Distances,
        )
        for noise in (0.0, 0.5)
    )
    frame = EUCLIDEAN.frame(POINTS - POINTS[0], 0.5 * float(np.sqrt(squared).mean()))
    ((piece,), outside) = located(noisy)
    np.testing.assert_allclose(piece.coordinates, frame.solver.coordinates(squared), rtol=1e-6)
    np.testing.assert_allclose(piece.centre, POINTS.mean(axis=0))
    lengths = [np.linalg.norm(located(one)[0][0].coordinates) for one in (exact, noisy)]
    assert lengths[1] < 0.95 * lengths[0]
    height = squared.mean(axis=1) - ((POINTS - POINTS.mean(axis=0)) ** 2).sum(axis=1).mean()
    np.testing.assert_allclose(outside**2, np.abs(height - (piece.coordinates**2).sum(axis=1)), rtol=1e-6)
    nothing = replace(noisy, rows=np.arange(0), squared=squared[:0])
    assert located(nothing)[1].shape == (0,)
    with pytest.raises(NotApplicableError, match="does not know the points"):
        located(replace(noisy, points=None))


# ------------------------------------------------------------------------------------------------ limits


def test_chosen_points_are_asked_of_at_most_200_records() -> None:
    rows = random(201, 4, 0)
    side = Side(public=rows[:5], known=np.arange(201), values=rows)
    (found,) = chosen_landmarks(bare(view_of([rows], DistanceRequest(POINTS))), side)
    np.testing.assert_array_equal(found.rows, np.arange(200))
    np.testing.assert_allclose(found.inferred(rows[:200])[0], rows[:200], atol=1e-6)


def test_chosen_points_ask_for_at_most_800_columns() -> None:
    rows = random(3, 801, 0)
    side = Side(public=rows, known=np.arange(3), values=rows)
    (found,) = chosen_landmarks(bare(view_of([rows], DistanceRequest(rows[:2] + 1.0))), side)
    np.testing.assert_array_equal(found.columns, np.arange(800))


def test_columns_are_inferred_from_at_most_4000_public_rows() -> None:
    view = bare(view_of([ROWS], DistanceRequest(POINTS)))
    (found,) = attribute_inference(view, Side(public=random(4001, 4, 2)))
    assert (found.variant, found.numbers) == ("4,000 public rows", {"public_rows": 4000})


def test_frame_has_at_most_100_axes() -> None:
    public = random(408, 102, 0)
    piece = aligned(np.arange(50), random(50, 102, 1), public, 0)
    assert piece.coordinates.shape == (50, 100)


def test_alignment_is_tried_with_several_numbers_of_public_rows() -> None:
    rows = lopsided(40, 3, 0)
    view = view_of([rows], DistanceRequest(lopsided(6, 3, 1)))
    found = distribution_alignment(view, Side(public=lopsided(3001, 3, 2)))
    assert [one.numbers["public_rows"] for one in found] == [30, 100, 300, 1000, 3000, 3001]


def test_at_most_forty_small_clients_are_attacked() -> None:
    rows, public = random(41, 2, 0), random(50, 2, 1)
    parts = np.split(rows, 41)
    weights = np.concatenate([np.eye(2).ravel(), np.zeros(2)]).astype(np.float32)
    gradients = view_of(
        parts,
        StepRequest(landmarks=random(5, 2, 2), gamma=0.05, step=1.0, local_steps=1, share="gradient"),
        mean=True,
    )
    fields = view_of(parts, DensityRequest(weights=weights, hidden=(), reach=16.0, nodes=65), mean=True)
    for attack, view in ((gradient_matching, gradients), (surrogate_inversion, fields)):
        (found,) = attack(view, Side(public=public))
        assert sorted(found.parts) == list(range(40))
    with pytest.raises(NotApplicableError, match="it needs 50 public rows"):
        list(surrogate_inversion(fields, Side(public=public[:49])))
