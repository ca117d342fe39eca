"""Parts of the bound from a canary, compared with explicit sums on a replay of a few small releases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from half_noise import HalfTheNoise
from inline_federations import known

from raydr.arrays import Float64Array, FloatArray
from raydr.attacks import NotApplicableError, Side, View, canary
from raydr.attacks.canary import WHOLE, CanaryCandidates, Noise, bounds
from raydr.federation import ClientHost, Context, Federation, HostedClient, InlineTransport, fingerprint
from raydr.federation.blurring import blur_records
from raydr.federation.replay import Replay
from raydr.federation.transcript import Release, Transcript
from raydr.federation.wire import Call, Sharing, SumCall
from raydr.methods.landmarks.learning import StepRequest
from raydr.privacy.accounting import gaussian_epsilon
from raydr.privacy.canaries import most_deviation
from raydr.privacy.gaussian import GaussianNoise
from raydr.privacy.ledger import RECORDS
from raydr.statistics.second_moments import SecondMomentsRequest

DELTA = 1e-5
DRAWS = 600
ROWS = [
    np.random.default_rng(size).normal((5.0, -2.0, 1.0), (3.0, 1.0, 0.3), (size, 3)) for size in (12, 8, 5)
]
"""Rows of three clients away from the origin, most variable in the first feature."""


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary, "_REPLIES", DRAWS)


def replay_of(*multipliers: float, rows: Sequence[FloatArray] = ROWS, **noise: Any) -> Replay:
    """Return a replay with one release of second moments per noise: uploads of clients, or their mean."""
    hosted = [HostedClient(index, part, fingerprint(part)) for index, part in enumerate(rows)]
    hosts = [ClientHost(hosted=[each], seed=0, host_secrets=known([each])) for each in hosted]
    steps: list[Call | Release] = []
    for multiplier in multipliers:  # in a separate federation, since a request is sent once per round
        transcript = Transcript()
        federation = Federation(InlineTransport(hosts), len(rows), Context(seed=0), transcript=transcript)
        mechanism = GaussianNoise(on="embedding", multiplier=multiplier, **noise)
        federation.ask(SecondMomentsRequest(np.zeros(3), 9.0, mechanism))
        steps += transcript.steps
    return Replay(hosts, steps)


def reported(replay: Replay, index: int, clients: tuple[int, ...]) -> Replay:
    """Return the same releases, one of them of only some clients."""
    steps: list[Call | Release] = list(replay.steps)
    step = steps[index]
    assert isinstance(step, Release)
    steps[index] = replace(step, call=replace(step.call, clients=clients))
    return Replay(replay.hosts, steps)


def test_candidates_lie_along_the_widest_axes_at_fixed_distances() -> None:
    made = canary._candidates(replay_of(1.0))
    rows = np.concatenate(ROWS)
    mean = rows.mean(axis=0)
    centred = rows - mean
    np.testing.assert_allclose(made[0], rows[np.linalg.norm(centred, axis=1).argmax()])
    width = np.sqrt((centred**2).sum(axis=1).mean())
    seen = (made[1:] - mean) / width
    _, _, axes = np.linalg.svd(centred)
    singles = np.eye(3)[np.argsort(-centred.var(axis=0))]
    reaches = (0.75, 1.5, 3.0, 1000.0)
    found = seen.reshape(-1, 2 * len(reaches), 3)
    assert len(found) == 6
    for axis, of_axis in zip((*axes, *singles), found, strict=True):
        ways = np.outer(reaches, np.sign(of_axis[0] @ axis) * axis)  # an axis has no sign
        np.testing.assert_allclose(of_axis[0::2], ways, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(of_axis[1::2], -ways, rtol=1e-9, atol=1e-9)


def test_candidates_lie_along_three_principal_axes_and_three_single_features() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 5)) * (5.0, 4.0, 3.0, 2.0, 1.0)
    made = canary._candidates(cast(Replay, SimpleNamespace(rows=lambda client: rows, sizes=(40,))))
    assert len(made) == 1 + (3 + 3) * 4 * 2


def test_missing_values_count_as_the_column_mean() -> None:
    rows = [part.copy() for part in ROWS]
    rows[1][3, 0] = np.nan
    made = canary._candidates(replay_of(rows=rows))
    assert np.isfinite(made).all()
    np.testing.assert_allclose(made[1:].mean(axis=0), np.nanmean(np.concatenate(rows), axis=0), rtol=1e-9)


def test_equal_rows_give_different_candidates() -> None:
    made = canary._candidates(replay_of(1.0, rows=[np.ones((4, 3)), np.ones((3, 3))]))
    np.testing.assert_allclose(np.linalg.norm(made[1:] - 1.0, axis=1).min(), min(canary._REACHES))


def test_candidates_use_the_first_rows_of_each_client() -> None:
    rows = [np.random.default_rng(0).normal(size=(canary._SOME + 50, 3)) for _ in range(2)]
    rows[0][canary._SOME :] += 1e6
    assert np.abs(canary._candidates(replay_of(1.0, rows=rows))[0]).max() < 100.0


def test_canary_is_at_the_least_protected_client() -> None:
    replay = replay_of(1.0, 1.0)
    deviations = [replay.deviation(replay.releases[0], client) for client in range(3)]
    assert CanaryCandidates.of(replay).client == int(np.argmin(deviations))
    assert CanaryCandidates.of(reported(reported(replay, 0, (2,)), 1, (2,))).client == 2


@pytest.mark.parametrize(("deviation", "client"), [(1.35, 1), (1.7, 0)])
def test_two_noisier_releases_can_protect_less_than_one(
    monkeypatch: pytest.MonkeyPatch, deviation: float, client: int
) -> None:
    """The cost is the sum of inverse squared deviations: 2 / 1.35^2 is above 1, 2 / 1.7^2 below."""
    replay = reported(reported(replay_of(1.0, 1.0), 0, (0, 1)), 1, (1,))
    monkeypatch.setattr(Replay, "deviation", lambda self, release, client: deviation if client else 1.0)
    assert CanaryCandidates.of(replay).client == client


def test_all_candidates_are_replayed_through_the_run() -> None:
    """Candidates may outnumber the rows of the client; their order is kept."""
    replay = replay_of(1.0)
    np.testing.assert_allclose(
        CanaryCandidates.of(replay).candidates[0], canary._candidates(replay), rtol=1e-6
    )


def test_client_without_rows_has_no_canary() -> None:
    rows = [np.zeros((0, 3)), *ROWS[1:]]
    assert CanaryCandidates.of(replay_of(1.0, rows=rows)).client != 0


def test_candidate_distances_equal_their_shifts() -> None:
    canaries = CanaryCandidates.of(replay_of(2.0))
    count = len(canaries.candidates[0])
    found = canaries._distances(0)
    assert found.shape == (count + 1, count + 1)
    for one, other in ((0, count), (3, 7), (count, 5), (12, 12), (1, 40)):
        shift = canaries.shift(0, one, other)
        assert found[one, other] == pytest.approx(canary._dot(shift, shift), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_chosen_canary_moves_the_releases_most(relation: str) -> None:
    """A release of other clients moves by 0; several releases add up."""
    replay = reported(replay_of(2.0, 1.0, 3.0, relation=relation), 1, (1, 2))
    canaries = CanaryCandidates.of(replay)
    absent = len(canaries.candidates[0])
    moved = np.zeros((absent + 1, absent + 1))
    for index in range(3):
        shifts = [canaries.shift(index, candidate, absent)["packed"] for candidate in range(absent + 1)]
        moved += ((np.stack(shifts)[:, None] - np.stack(shifts)) ** 2).sum(axis=2)
    allowed = moved[:absent, :absent] if relation == "replace-one" else moved[absent]
    one, other = canaries.worst(np.ones(3, np.bool_))
    assert (absent in (one, other)) == (relation == "zero-out")
    assert moved[one, other] == pytest.approx(allowed.max(), rel=1e-6)


def test_canary_choice_uses_first_middle_and_last_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    canaries = CanaryCandidates.of(replay_of(*[1.0] * 7))
    compared: list[int] = []
    distances = canaries._distances
    monkeypatch.setattr(
        CanaryCandidates, "_distances", lambda self, index: compared.append(index) or distances(index)
    )
    canaries.worst(np.ones(7, np.bool_))
    assert compared == [0, 3, 6]


def test_release_without_the_canary_client_does_not_move() -> None:
    client = CanaryCandidates.of(replay_of(1.0)).client
    canaries = CanaryCandidates.of(reported(replay_of(1.0, 100.0), 1, ((client + 1) % 3,)))
    assert canaries.client == client
    there, absent = canaries.shift(0, 3, 5), canaries.shift(1, 3, 5)
    assert there["packed"].any()
    assert absent["packed"].shape == there["packed"].shape
    assert not absent["packed"].any()


def test_replacement_canary_is_chosen_even_if_it_moves_little() -> None:
    canaries = CanaryCandidates.of(replay_of(1e4, relation="replace-one"))
    assert canaries._distances(0).max() < 1.0
    assert len(canaries.candidates[0]) not in canaries.worst(np.ones(1, np.bool_))


def test_absent_only_record_contributes_nothing() -> None:
    replay = reported(replay_of(1.0, rows=[ROWS[0][:1], ROWS[1]]), 0, (0,))
    canaries = CanaryCandidates.of(replay)
    absent = len(canaries.candidates[0])
    assert not canaries._value(0, absent)["packed"].any()
    assert canaries._value(0, 0)["packed"].any()


def test_shift_is_in_units_of_the_charged_deviation() -> None:
    replay = replay_of(2.0)
    canaries = CanaryCandidates.of(replay)
    rows, client = replay.rows(canaries.client), canaries.client
    release = replay.releases[0]
    absent = len(canaries.candidates[0])

    def moments(of: FloatArray) -> Float64Array:
        request = release.call.request
        clipped = of * np.minimum(1.0, 9.0 / np.linalg.norm(of, axis=1, keepdims=True)) / 9.0
        square = clipped.T @ clipped
        assert request.clip == 9.0
        return np.concatenate([clipped.sum(axis=0), square[np.triu_indices(3)]]) / len(rows)

    candidate = 5
    held = np.concatenate([rows[:-1], canaries.candidates[0][candidate][None]])
    change = moments(held) - moments(rows[:-1])
    shift = canaries.shift(0, candidate, absent)["packed"]
    np.testing.assert_allclose(shift, change / replay.deviation(release, client), rtol=1e-4, atol=1e-6)


def noise_of(canaries: CanaryCandidates, draws: int) -> tuple[Noise, dict[str, Any]]:
    shifts = {"far": canaries.shift(0, 3, len(canaries.candidates[0]))}
    return Noise.of(canaries, 0, draws, shifts), shifts["far"]


def test_noise_is_in_units_of_the_charged_deviation() -> None:
    canaries = CanaryCandidates.of(replay_of(2.0))
    noise, shift = noise_of(canaries, DRAWS)
    ((squares, count),) = noise.squares.values()
    size = shift["packed"].size
    assert count == DRAWS * size
    assert squares / count == pytest.approx(1.0, abs=6.0 * np.sqrt(2.0 / count))
    assert noise.shifts["far"] == pytest.approx(float((shift["packed"] ** 2).sum()))
    along = noise.along["far"]
    assert len(along) == DRAWS
    assert along @ along / DRAWS == pytest.approx(noise.shifts["far"], rel=6.0 * np.sqrt(2.0 / DRAWS))
    assert noise.most(1) == 1.0
    assert noise.pilot == 1.0


def test_half_the_noise_is_measured_as_half() -> None:
    """The bounds use the first half of the draws (pilot), all draws, and draws along the shift."""
    replay = replay_of(2.0)
    (release,) = replay.releases
    half = replace(release, mechanism=HalfTheNoise.model_construct(**dict(release.mechanism)))
    canaries = CanaryCandidates.of(Replay(replay.hosts, [half]))
    noise, _ = noise_of(canaries, DRAWS)
    ((squares, count),) = noise.squares.values()
    (first,) = noise_of(canaries, DRAWS // 2)[0].squares.values()
    assert noise.pilot == pytest.approx(most_deviation(*first), rel=1e-9)
    assert noise.most(1) == pytest.approx(most_deviation(squares, count), rel=1e-9)
    assert noise.most(1) < noise.most(1000) < 0.6
    found = {one.variant: one for one in bounds(canaries.replay, DELTA)}
    claimed = found[WHOLE].claimed
    assert claimed == pytest.approx(gaussian_epsilon(2.0, DELTA), rel=1e-6)
    tests = 2 + 1
    assert found[WHOLE].measured == pytest.approx(gaussian_epsilon(2.0 * noise.most(tests), DELTA), rel=1e-3)
    assert found[WHOLE].epsilon > claimed


def test_bound_is_shift_over_deviation_of_the_best_statistic() -> None:
    """For two releases, weights come from the first half of the draws and the deviation from the second."""
    canaries = CanaryCandidates.of(replay_of(2.0, 4.0))
    pair = canaries.worst(np.ones(2, np.bool_))
    shifts = [{WHOLE: canaries.shift(index, *pair)} for index in range(2)]
    noise = [Noise.of(canaries, index, DRAWS, shift) for index, shift in enumerate(shifts)]
    lengths = [one.shifts[WHOLE] for one in noise]
    statistic = sum(one.along[WHOLE][DRAWS // 2 :] / one.pilot**2 for one in noise)
    moved = sum(length / one.pilot**2 for length, one in zip(lengths, noise, strict=True))
    expected = moved / most_deviation(float((statistic**2).sum()), DRAWS // 2)
    assert canary._mu(WHOLE, noise, DRAWS) == pytest.approx(expected, rel=1e-9)
    assert 0.8 * np.sqrt(sum(lengths)) < expected < np.sqrt(sum(lengths)) * 1.1


def test_draws_are_even_and_within_both_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    canaries = CanaryCandidates.of(replay_of(2.0, 2.0, 2.0))
    assert canaries.draws == DRAWS // 3
    monkeypatch.setattr(canary, "_REPLIES", DRAWS + 9)
    assert canaries.draws == (DRAWS + 9) // 3 // 2 * 2
    numbers = 3 * 9  # of three releases: means, and a triangle of 3 x 3
    monkeypatch.setattr(canary, "_NUMBERS", numbers * 101)
    assert canaries.draws == 100
    monkeypatch.setattr(canary, "_NUMBERS", numbers)
    assert canaries.draws == 32, "the fewest that bound a deviation"


def test_bounds_name_their_releases() -> None:
    whole, kind = bounds(replay_of(2.0, 2.0), DELTA)
    assert (whole.variant, kind.variant) == (WHOLE, "SecondMoments")
    assert whole.numbers == kind.numbers == {"releases": 2, "draws": DRAWS // 2}
    assert whole.knows.endswith("one record of client 0, present or not")
    (replaced, _) = bounds(replay_of(2.0, relation="replace-one"), DELTA)
    assert replaced.knows.endswith("present or another in its place")
    assert 0.0 < whole.epsilon <= whole.measured == whole.claimed


def summed(replay: Replay, clients: tuple[int, ...], colluding: int) -> Replay:
    """Return the first release as a sum over some clients, some of which may collude."""
    (release, *_) = replay.releases
    sharing = Sharing(clients=len(clients), sensitivity=1.0, colluding=colluding)
    call = SumCall(**vars(replace(release.call, clients=clients)), sharing=sharing)
    return Replay(replay.hosts, [replace(release, call=call, of_sum=True)])


def test_shares_of_colluders_are_excluded_from_sums() -> None:
    """The canary's client does not collude, and one share always remains."""

    def seen(clients: tuple[int, ...], colluding: int) -> list[int]:
        canaries = CanaryCandidates.of(summed(replay_of(2.0), clients, colluding))
        return [part.client.index for part in canaries.seen(0)]

    assert seen((0, 1, 2), 0) == [0, 1, 2]
    assert seen((0, 1, 2), 1) == [0, 2]
    assert seen((0, 1, 2), 5) == [0]
    assert len(seen((1, 2), 5)) == 1
    replay = summed(replay_of(2.0), (1, 2), 2)
    elsewhere = replace(CanaryCandidates.of(replay), client=0)
    assert [part.client.index for part in elsewhere.seen(0)] == [2]
    (release,) = summed(replay_of(2.0), (0, 1, 2), 2).releases
    without_sharing = replace(release, call=replace(release.call, sharing=None))
    canaries = CanaryCandidates.of(Replay(replay.hosts, [without_sharing]))
    assert [part.client.index for part in canaries.seen(0)] == [0, 1, 2]


def test_client_canary_repeats_one_record() -> None:
    """The client may also keep its rows or have none; with none, the release has nothing of it."""
    replay = replay_of(2.0)
    (release,) = replay.releases
    protected = replace(release, charge=replace(release.charge, unit="client"))
    canaries = CanaryCandidates.of(Replay(replay.hosts, [protected]))
    rows, absent = replay.rows(0), len(canaries.candidates[0])
    unit = replay.deviation(release, 0)

    def moments(of: FloatArray) -> Float64Array:
        cut = of * np.minimum(1.0, 9.0 / np.linalg.norm(of, axis=1, keepdims=True)) / 9.0
        return np.concatenate([cut.mean(axis=0), (cut.T @ cut / len(of))[np.triu_indices(3)]])

    def value(candidate: int) -> Float64Array:
        return canaries._value(0, candidate)["packed"] * unit

    assert not value(absent).any()
    np.testing.assert_allclose(value(0), moments(rows), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(value(4), moments(canaries.candidates[0][4][None]), rtol=1e-4, atol=1e-6)


def test_absent_record_does_not_move_landmarks() -> None:
    """A canary adds to a gradient the kernels of its distances to the landmarks."""
    hosted = [HostedClient(index, part, fingerprint(part)) for index, part in enumerate(ROWS)]
    hosts = [ClientHost(hosted=[each], seed=0, host_secrets=known([each])) for each in hosted]
    transcript = Transcript()
    federation = Federation(InlineTransport(hosts), len(ROWS), Context(seed=0), transcript=transcript)
    landmarks, gamma = np.array([[5.0, -2.0, 1.0], [4.0, -1.0, 0.0]]), 0.1
    noise = GaussianNoise(on="gradient", multiplier=2.0)
    federation.ask(
        StepRequest(
            landmarks=landmarks,
            gamma=gamma,
            step=1.0,
            local_steps=1,
            share="gradient",
            mechanism=noise,
            objective=False,
        )
    )
    replay = Replay(hosts, transcript.steps)
    canaries = CanaryCandidates.of(replay)
    (release,), client = replay.releases, canaries.client
    absent = len(canaries.candidates[0])
    for candidate in (0, 3, 9):
        towards = landmarks - canaries.candidates[0][candidate]
        kernel = np.exp(-gamma * (towards**2).sum(axis=1))
        # P1's gradient of -2 mean_ij k(x_i, y_j) over m landmarks, for one of n records
        pull = 4.0 * gamma * kernel[:, None] * towards / (len(replay.rows(client)) * len(landmarks))
        (moved,) = canaries.shift(0, candidate, absent).values()
        np.testing.assert_allclose(
            moved * replay.deviation(release, client), pull, rtol=1e-4, atol=1e-6 * abs(pull).max()
        )


def test_absent_noisy_record_is_zero() -> None:
    hosts = replay_of().hosts
    transcript = Transcript()
    federation = Federation(InlineTransport(hosts), len(ROWS), Context(seed=0), transcript=transcript)
    noise = GaussianNoise(on="data", multiplier=2.0, clip=4.0, stage="all")
    blur_records(federation, noise, 1.0)
    federation.ask(SecondMomentsRequest(np.zeros(3), 9.0))
    replay = Replay(hosts, transcript.steps)
    canaries = CanaryCandidates.of(replay)
    (release,) = replay.releases
    assert release.charge.kind == RECORDS
    for candidate in (0, 5):
        row = canaries.candidates[0][candidate]
        moved = (
            canaries.shift(0, candidate, len(canaries.candidates[0]))["records"] * release.charge.deviation
        )
        np.testing.assert_allclose(moved[:-1], 0.0, atol=1e-9)
        np.testing.assert_allclose(moved[-1], row * min(1.0, 4.0 / np.linalg.norm(row)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("moved", "chosen"), [(8.0, 3), (4.0, 7)])
def test_sampled_releases_represent_their_kind(
    monkeypatch: pytest.MonkeyPatch, moved: float, chosen: int
) -> None:
    """Five releases moved by 1 weigh less than one moved by 8, and more than one moved by 4."""
    replay = replay_of(*[2.0] * 6)
    steps = [
        replace(step, charge=replace(step.charge, kind="other")) if index == 5 else step
        for index, step in enumerate(replay.releases)
    ]
    canaries = CanaryCandidates.of(Replay(replay.hosts, steps))
    absent = len(canaries.candidates[0])

    def distances(self: CanaryCandidates, index: int) -> Float64Array:
        found = np.zeros((absent + 1, absent + 1))
        found[3 if index == 5 else 7, absent] = moved if index == 5 else 1.0
        return found

    monkeypatch.setattr(CanaryCandidates, "_distances", distances)
    assert canaries.worst(np.ones(6, np.bool_)) == (chosen, absent)
    assert canaries.worst(np.arange(6) < 5) == (7, absent)


def drawn(**more: Any) -> Noise:
    """Return noise of four numbers in 50 draws, with the charged deviation."""
    reported: dict[str, Any] = {
        "release": replay_of(2.0).releases[0],
        "squares": {"packed": (200.0, 200)},
        "pilot": 1.0,
        "shifts": {"moved": 4.0},
        "along": {"moved": np.resize([2.0, -2.0], 50)},
    }
    return Noise(**reported | more)


def test_noise_along_the_shift_is_bounded() -> None:
    """Noise along the shift may be below average; a shift of length 0 has no direction."""
    assert drawn().most(1) == 1.0
    less = drawn(shifts={"moved": 0.5}, along={"moved": np.resize([0.1, -0.1], 50)})
    assert less.most(3) == pytest.approx(most_deviation(50 * 0.01 / 0.5, 50, 3), rel=1e-12)
    nowhere = drawn(shifts={"moved": 0.0}, along={"moved": np.zeros(50)})
    assert nowhere.most(1) == 1.0
    assert canary._mu("moved", [nowhere], 50) == 0.0


def test_release_with_less_noise_has_more_weight() -> None:
    noise = [drawn(pilot=0.5), drawn(along={"moved": np.resize([1.0, 3.0], 50)})]
    statistic = 4.0 * noise[0].along["moved"][25:] + noise[1].along["moved"][25:]
    expected = (4.0 * 4.0 + 4.0) / most_deviation(float(statistic @ statistic), 25)
    assert canary._mu("moved", noise, 50) == pytest.approx(expected, rel=1e-12)


def test_canary_needs_a_replay_and_a_charge() -> None:
    replay, rows = replay_of(2.0), np.zeros((0, 3))
    view = View(transcript=Transcript(), sizes=(12, 8, 5), embedding=np.zeros((25, 2)))
    for missing in (None, Replay(replay.hosts, [])):
        with pytest.raises(NotApplicableError, match="nothing is charged"):
            list(canary.canary(replace(view, replay=missing), Side(public=rows)))
    found = list(canary.canary(replace(view, replay=replay, delta=DELTA), Side(public=rows)))
    assert [one.variant for one in found] == [WHOLE, "SecondMoments"]
