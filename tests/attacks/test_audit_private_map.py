"""The audit of a private map: no attack beats guessing, and no release breaks its claim."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attacked import federation_seen, truth_of

from raydr.arrays import Float64Array
from raydr.attacks import Side, View
from raydr.attacks.landmark_lifting import _deviation, landmark_lifting, lifted
from raydr.attacks.scoring import AttackErrors
from raydr.federation.secure import SecureSums
from raydr.federation.transcript import Seen, Transcript
from raydr.methods import METHODS
from raydr.methods.private_map.messages import (
    CellSums,
    CellSumsRequest,
    FirstMoments,
    FirstMomentsRequest,
    Frame,
)
from raydr.methods.private_map.messages import View as Sight
from raydr.methods.private_map.server import PrivateMap
from raydr.methods.private_map.settings import COUNT_WEIGHT
from raydr.privacy import Quantity
from raydr.privacy.accounting import Budget
from raydr.privacy.gaussian import GaussianNoise
from raydr.report.run.privacy_summary import points
from raydr.runfolder import read_run
from raydr.runfolder.records import LEDGER
from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import read

DRAWN: dict[str, Any] = {"early_iterations": 5, "iterations": 5, "placing_iterations": 5}
QUICK = {f"method.{name}": value for name, value in DRAWN.items()}


def shipped(folder: Path, **more: Any) -> Path:
    """Run the shipped scenario with few iterations and 1,200 rows, which leaves 597 public rows, and a fixed secret."""
    secret = folder.with_suffix(".secret")
    secret.write_bytes(bytes(64))
    secret.chmod(0o600)
    changed = {
        "privacy.secret": str(secret),
        "runtime.federation": "inline",
        "data.rows": 1200,
        "compare": [],
        "metrics": ["npa_10"],
        **QUICK,
        **more,
    }
    return run(read("digits-private-map", changed), out=folder, report=False)


def verdicts(folder: Path) -> list[dict[str, Any]]:
    return [one for one in json.loads((folder / "audit.json").read_text())["verdicts"] if not one["why"]]


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shipped(tmp_path_factory.mktemp("private") / "run", audit=True)


def test_every_attack_is_within_two_percent_of_guessing(audited: Path) -> None:
    found = verdicts(audited)
    assert {one["attack"] for one in found} == {"landmark-lifting", "membership", "canary"}
    for one in found:
        if one["errors"]:
            ratio = one["errors"]["centred"]["median"] / one["errors"]["centred_guess"]["median"]
            assert 0.98 < ratio < 1.02
            assert one["errors"]["exact"] == 0.0
        if one["membership"]:
            reported = one["membership"]
            # By chance, a curve over this many candidates deviates by this much once in 400 times.
            chance = 3.0 * np.sqrt((1.0 / reported["members"] + 1.0 / reported["others"]) / 12.0)
            assert abs(reported["auc"] - 0.5) < max(0.02, chance)


def test_canaries_of_every_release_stay_below_the_claim(audited: Path) -> None:
    bounds = {one["variant"]: one["bound"] for one in verdicts(audited) if one["bound"]}
    assert set(bounds) == {"the whole run", "FirstMoments", "Scatter", "CellSums"}
    for bound in bounds.values():
        assert 0.0 < bound["epsilon"] <= bound["measured"] == bound["claimed"]
    assert bounds["the whole run"]["claimed"] == read_run(audited).privacy.epsilon_accounted
    assert not any(point.title == "Attacks" and point.tone == "bad" for point in points(read_run(audited)))


def test_ledger_has_no_per_record_entry(audited: Path) -> None:
    up = [entry for entry in json.loads((audited / LEDGER).read_text()) if entry["direction"] == "up"]
    assert up
    assert not any(entry["granularity"] == "per-record" for entry in up)
    assert all(entry["secure"] or entry["public"] for entry in up)


@pytest.fixture
def half_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the claims of mechanisms and halve their noise."""
    _with_noise(0.5, monkeypatch)


def _with_noise(part: float, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = GaussianNoise.cover

    def less(self: GaussianNoise, quantity: Quantity, stream: np.random.Generator) -> Float64Array:
        noisy = honest(self, quantity, stream)
        return np.asarray(quantity.values + part * (noisy - quantity.values))

    monkeypatch.setattr(GaussianNoise, "cover", less)


@pytest.mark.usefixtures("half_the_noise")
@pytest.mark.slow  # tests/attacks/test_run_canaries.py halves the noise of each release of a smaller run
@pytest.mark.parametrize("secure", [True, False])
def test_half_the_noise_breaks_the_claim(secure: bool, tmp_path: Path) -> None:
    folder = shipped(
        tmp_path / "run",
        audit={"attacks": ["canary"]},
        **{"privacy.secure_aggregation": secure, "privacy.strict": False},
    )
    bound = verdicts(folder)[0]["bound"]
    assert verdicts(folder)[0]["variant"] == "the whole run"
    assert bound["epsilon"] > bound["claimed"]
    assert bound["measured"] > bound["claimed"]
    (point,) = [point for point in points(read_run(folder)) if point.title == "Attacks"]
    assert point.figure == "claim broken"


# ---------------------------------------------------------------------------------------- lifting


def test_lifted_row_is_the_shortest_with_the_same_view() -> None:
    random = np.random.default_rng(0)
    bucket = random.permutation(np.repeat(np.arange(5), 4))
    sight = Sight(0.5, 1e3, bucket, random.choice(np.array([-1.0, 1.0]), 20), 5)
    seen = random.standard_normal(5)
    row = lifted(seen, sight)
    np.testing.assert_allclose(sight.of(row[None])[0], seen, atol=1e-7)
    spread = np.zeros((5, 20))
    spread[bucket, np.arange(20)] = sight.sign
    np.testing.assert_allclose(row - 0.5, np.linalg.pinv(spread) @ seen, atol=1e-12)
    plain = Sight(0.5, 1e3, None, None, 5)
    np.testing.assert_allclose(plain.of(lifted(seen, plain)[None])[0], seen, atol=1e-12)


@pytest.mark.parametrize("secure", [True, False])
def test_visible_uploads_separate_records_by_client_mean(secure: bool) -> None:
    """Noise per record does not hide the mean of a large, distant client; secure aggregation does."""
    random = np.random.default_rng(0)
    parts = [random.standard_normal((400, 6)) + 8.0 * np.eye(6)[client] for client in range(4)]
    federation, transcript = federation_seen(parts, secure=SecureSums(colluding=0.0) if secure else None)
    METHODS["private-map"].serve(federation, PrivateMap(epsilon=8.0, clip=12.0, **DRAWN))
    rows = np.concatenate(parts)
    view = View(transcript=transcript, sizes=federation.sizes, embedding=np.zeros((0, 2)), secure=secure)
    found = list(landmark_lifting(view, Side(public=rows[:0])))
    ratios = []
    for one in found:
        errors = AttackErrors.of(
            one.estimate, rows.mean(axis=0), truth_of(rows), np.zeros(0, np.int64)
        ).errors
        ratios.append(errors.centred.median / errors.centred_guess.median)
    assert len(ratios) == (1 if secure else 2)
    assert ratios[0] == pytest.approx(1.0, abs=0.05)
    assert secure or ratios[1] < 0.5


SIGHT = Sight(0.5, 4.0, None, None, 3)
FRAME = Frame(SIGHT, np.array([0.1, 0.2, -0.3]), np.eye(3)[:, :2])


def summed(counts: list[float], centres: np.ndarray, client: int | None = None, number: int = 1) -> Seen:
    reply = CellSums(np.zeros(centres.shape), COUNT_WEIGHT * np.array(counts))
    return Seen(
        number=number, round=0, request=CellSumsRequest(FRAME, centres, 4.0, 20), client=client, reply=reply
    )


@pytest.mark.parametrize(
    ("counts", "weights"), [([-2.0, 3.0, 0.5], [0.0, 3.0, 0.5]), ([0.0, -1.0, 0.0], [1.0, 1.0, 1.0])]
)
def test_landmark_lifting_clips_negative_counts(counts: list[float], weights: list[float]) -> None:
    """Lifting uses the last sum, not a client's summand; without a filled cell all weights are equal."""
    centres = np.random.default_rng(0).normal(size=(3, 2))
    transcript = Transcript()
    for seen in (
        summed([9.0, 1.0, 1.0], centres),
        summed(counts, centres, number=2),
        summed([5.0] * 3, centres, 0, 2),
    ):
        transcript.add(seen)
    (found,) = landmark_lifting(
        View(transcript=transcript, sizes=(7, 13), embedding=np.zeros((0, 2))), Side(public=np.zeros((0, 3)))
    )
    mean = FRAME.mean + 0.5
    mean[:2] += np.average(centres, axis=0, weights=weights)
    values = np.concatenate([block for _, block in found.estimate.blocks()])
    np.testing.assert_allclose(values, np.tile(mean, (20, 1)))
    np.testing.assert_allclose(found.guess, mean)
    assert (found.variant, found.numbers) == ("landmarks", {"cells": 3})


def noise(per: str) -> GaussianNoise:
    return GaussianNoise(on="moments", multiplier=2.0, per=per, clip=4.0)


@pytest.mark.parametrize("per", ["client", "sum"])
@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_lifting_assumes_the_noise_of_one_upload(per: str, relation: str) -> None:
    """Records are at the centre and add nothing."""
    request = FirstMomentsRequest(
        Sight(0.0, 4.0, None, None, 2000), 10, noise(per).model_copy(update={"relation": relation})
    )
    federation, transcript = federation_seen([np.zeros((1, 2000))] * 10, budget=Budget(colluding=0.4))
    federation.sum(request)
    uploads = np.array([reply.packed for _, reply in transcript.of(FirstMoments)])
    assert _deviation(request, 10, 0.4) == pytest.approx(uploads.std(), rel=0.05)
    assert _deviation(FirstMomentsRequest(SIGHT, 10), 10, 0.4) == 0.0


def test_client_mean_is_shrunk_by_its_noise_share() -> None:
    """Stein shrinkage: a mean of pure noise becomes 0, and a client without records has none."""
    request = FirstMomentsRequest(SIGHT, 20, noise("client"))
    level = 4.0 * _deviation(request, 3, 0.2) / np.array([100, 1, 2])  # of each client's mean
    own = np.array([[0.5, -0.4, 0.3], [0.0, 0.0, 0.0], [0.02, 0.01, 0.03]])
    transcript = Transcript()
    transcript.add(summed([1.0, 1.0, 1.0], np.zeros((3, 2))))
    for client, count in enumerate((100, 0, 2)):
        packed = np.append((FRAME.mean + own[client]) * count / 4.0, 1.0)
        transcript.add(Seen(number=2, round=0, request=request, client=client, reply=FirstMoments(packed)))
    _, found = landmark_lifting(
        View(transcript=transcript, sizes=(100, 0, 2), embedding=np.zeros((0, 2))),
        Side(public=np.zeros((0, 3))),
    )
    values = np.concatenate([block for _, block in found.estimate.blocks()])
    kept = 1.0 - 3.0 * level[0] ** 2 / 0.5
    assert 0.8 < kept < 0.999
    np.testing.assert_allclose(values[:100], np.tile(FRAME.mean + 0.5 + kept * own[0], (100, 1)))
    np.testing.assert_allclose(values[100:], np.tile(FRAME.mean + 0.5, (2, 1)))
    assert (found.variant, found.numbers) == ("clients' means", {"clients": 2})
