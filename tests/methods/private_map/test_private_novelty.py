"""Novelty of new rows on a private map: one noisy count for each record, and p-values that noise makes larger."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from inline_federations import federate
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits

from raydr.federation import Client
from raydr.methods import METHODS, Outcome
from raydr.methods.novelty import EACH, SCORED, SCORES, Compared, ranked
from raydr.methods.private_map.messages import Frame, View
from raydr.methods.private_map.novelty import (
    ScoreCountsRequest,
    edges_of,
    kept_scores_of,
    score_counts,
    scores_of,
)
from raydr.methods.private_map.server import PrivateMap
from raydr.privacy.accounting import Budget
from raydr.privacy.statement import statement

ROWS = np.asarray(load_digits().data)


def outcome(rows: Any = ROWS[:1200], **more: Any) -> tuple[Outcome, PrivateMap, Any]:
    values: dict[str, Any] = {"epsilon": 8.0, "bounds": (0.0, 16.0), "novelty_share": 0.1, "iterations": 10}
    settings = PrivateMap(**values | {"early_iterations": 10, "placing_iterations": 5} | more)
    federation = federate(np.array_split(rows, 4))
    return METHODS["private-map"].serve(federation, settings), settings, federation


def frame(clip: float = 40.0) -> Frame:
    axes = np.linalg.qr(np.random.default_rng(0).normal(size=(64, 5)))[0]
    return Frame(View(8.0, clip, None, None, 64), np.full(64, 0.5), axes)


def test_score_is_the_distance_to_the_nearest_landmark() -> None:
    """Where nothing is clipped, it is the distance in all features to a landmark on the frame's plane."""
    whole = frame(clip=1e6)
    centres = np.random.default_rng(1).normal(scale=20.0, size=(9, 5))
    points = whole.mean + centres @ whole.axes.T
    expected = cdist(ROWS[:50] - 8.0, points).min(axis=1)
    assert_allclose(scores_of(ROWS[:50], whole, centres), expected, rtol=1e-6)


def test_a_clipped_row_scores_what_clipping_takes_away() -> None:
    clipped = frame(clip=40.0)
    centres = np.zeros((1, 5))
    near, far = 8.0 + 4.0 * np.ones((1, 64)), 8.0 + 40.0 * np.ones((1, 64))
    scores = [float(scores_of(rows, clipped, centres)[0]) for rows in (near, far)]
    assert scores[0] < 40.0
    assert scores[1] > 320.0 - 40.0


def test_a_record_changes_one_count_by_one() -> None:
    request = ScoreCountsRequest(frame(), np.zeros((3, 5)), edges_of(10.0), len(ROWS))

    def counts(rows: Any) -> Any:
        return score_counts(Client(index=0, rows=rows, seed=0), request).counts

    whole = counts(ROWS)
    assert whole.sum() == len(ROWS)
    far = ROWS.copy()
    far[3] = 1e9
    assert np.linalg.norm(whole - counts(ROWS[1:])) == 1.0 <= request.sensitivity(1)
    assert np.linalg.norm(whole - counts(far)) <= request.replace_sensitivity(1)


def test_p_values_without_noise_are_ranks_by_bin() -> None:
    """A row's p-value is never below its rank among the mapped rows, and at most that of its bin's lower edge."""
    scores = np.random.default_rng(2).gamma(3.0, size=1000)
    edges = np.geomspace(0.05, 30.0, 32)
    counts = np.bincount(np.searchsorted(edges, scores, side="right"), minlength=33).astype(float)
    model = kept_scores_of(counts, edges, len(scores), 0.0)
    kept = model[SCORES]
    assert len(kept) == len(scores) // EACH
    assert (kept[1:] <= kept[:-1]).all()
    new = np.linspace(0.06, 25.0, 400)
    found = ranked(Compared(kept, int(model[SCORED][0]), None), new)
    exact = np.array([1 + (scores >= value).sum() for value in new]) / 1001
    lower = edges[np.searchsorted(edges, new, side="right") - 1]
    of_edge = np.array([1 + (scores >= value).sum() for value in lower]) / 1001
    assert (found >= exact - 1e-12).all()
    assert (found <= of_edge + 2 * EACH / 1001).all()


def test_noise_makes_p_values_larger() -> None:
    random = np.random.default_rng(3)
    scores, edges = random.gamma(3.0, size=2000), np.geomspace(0.05, 30.0, 32)
    counts = np.bincount(np.searchsorted(edges, scores, side="right"), minlength=33).astype(float)
    at = np.quantile(scores, [0.9, 0.95, 0.99])
    exact = np.array([0.1, 0.05, 0.01])
    smaller = 0
    for _ in range(200):
        model = kept_scores_of(counts + 8.0 * random.standard_normal(33), edges, 2000, 8.0)
        smaller += int((ranked(Compared(model[SCORES], 2000, None), at) < exact - 0.002).any())
    assert smaller <= 15, "too small by two deviations once in 44 times for each"


def test_far_rows_are_novel_and_rows_of_the_run_are_not() -> None:
    found, settings, _ = outcome()
    new = ROWS[1200:]
    own = settings.novelty(found.model, new)
    far = settings.novelty(found.model, 8.0 + 10.0 * (new - 8.0))
    assert own is not None
    assert far is not None
    assert (own <= 0.05).mean() <= 0.05
    assert (far <= 0.05).mean() >= 0.95


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_the_run_keeps_its_epsilon(relation: Any) -> None:
    _, _, federation = outcome(relation=relation)
    reported = statement(federation.ledger, Budget())
    assert reported.infinite == ()
    assert reported.epsilon_by_adversary["client"].accounted == pytest.approx(8.0, rel=1e-6)
    shares = {release.kind: release.share for release in reported.releases}
    assert shares["ScoreCounts"] == pytest.approx(0.1)


def test_a_map_on_which_noise_hides_all_distances_keeps_none() -> None:
    """Otherwise a row ten times as large as all others would be called like them."""
    found, settings, _ = outcome(ROWS[:100], epsilon=0.1)
    assert SCORES not in found.model
    assert settings.novelty(found.model, ROWS[1200:]) is None


def test_a_map_without_the_share_says_how_to_get_novelty() -> None:
    found, settings, _ = outcome(novelty_share=0.0)
    assert settings.novelty(found.model, ROWS) is None
    assert "method.novelty_share" in settings.no_novelty
