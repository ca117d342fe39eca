"""Metrics of each site's own rows, against brute force and against the metrics of all rows."""

from __future__ import annotations

import numpy as np
import pytest

from raydr.arrays import Float64Array, Int64Array
from raydr.metrics import Evidence, evaluate
from raydr.metrics.site_scores import LEAST_ROWS, SiteScore

NAMES = ["npa_10", "trustworthiness", "continuity", "npa_50"]
NEVER = 0
"""Largest table of which all rows are used: none, so that a sample is drawn."""


def evidence(sites: Int64Array | None) -> Evidence:
    """Return rows and a map on which the rows of the last site lie at random."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(300, 4))
    embedding = rows[:, :2].copy()
    if sites is not None:
        last = sites == sites.max()
        embedding[last] = random.normal(size=(int(last.sum()), 2))
    return Evidence(rows=rows, embedding=embedding, sites=sites)


SITES = np.repeat([4, 0, 7], [200, 40, 60])


def ranks(points: Float64Array) -> Int64Array:
    distances = np.linalg.norm(points[:, None] - points, axis=2)
    return np.argsort(np.argsort(distances, axis=1), axis=1)  # a row itself has rank 0


def test_site_scores_equal_brute_force() -> None:
    given = evidence(SITES)
    found = evaluate(NAMES, given, threads=1)
    true, mapped = ranks(given.rows), ranks(given.embedding)
    np.fill_diagonal(true, 1000)
    np.fill_diagonal(mapped, 1000)
    kept = ((true <= 10) & (mapped <= 10)).sum(axis=1) / 10
    penalties = np.where(mapped <= 5, np.maximum(true - 5, 0), 0).sum(axis=1)
    trusted = 1 - penalties * 2 / (5 * (2 * 300 - 3 * 5 - 1))
    assert [(each.site, each.rows, each.measured) for each in found.sites] == [
        (0, 40, 40),
        (4, 200, 200),
        (7, 60, 60),
    ]
    for each in found.sites:
        own = each.site == SITES
        assert list(each.means) == ["npa_10", "trustworthiness"]  # npa_50 is further from ten neighbours
        assert each.means["npa_10"] == pytest.approx(kept[own].mean())
        assert each.means["trustworthiness"] == pytest.approx(trusted[own].mean())
        assert each.deviations["npa_10"] == pytest.approx(kept[own].std(ddof=1))
    for name in ("npa_10", "trustworthiness"):
        weighted = sum(each.rows * each.means[name] for each in found.sites) / 300
        assert weighted == pytest.approx(found.values[name])


def test_full_sample_gives_the_exact_site_scores() -> None:
    exact = evaluate(NAMES, evidence(SITES), threads=1).sites
    sampled = evaluate(NAMES, evidence(SITES), threads=1, exact_rows=NEVER, sampled_rows=300).sites
    for one, other in zip(exact, sampled, strict=True):
        assert one.means == pytest.approx(other.means)
        assert one.deviations == pytest.approx(other.deviations)


def test_estimates_of_a_site_spread_as_their_standard_error_states() -> None:
    exact = {each.site: each.means["npa_10"] for each in evaluate(["npa_10"], evidence(SITES)).sites}
    off = []
    for seed in range(40):
        given = evidence(SITES)
        given = Evidence(rows=given.rows, embedding=given.embedding, sites=SITES, seed=seed)
        for each in evaluate(["npa_10"], given, threads=1, exact_rows=NEVER, sampled_rows=150).sites:
            assert (each.rows, each.measured) == ((each.site == SITES).sum(), each.rows // 2)
            variance = each.deviations["npa_10"] ** 2 / each.measured * (1 - each.measured / each.rows)
            off.append((each.means["npa_10"] - exact[each.site]) / np.sqrt(variance))
    assert 0.8 < np.std(off) < 1.25


def test_sites_of_few_measured_rows_have_no_score() -> None:
    sites = np.repeat([0, 1, 2], [LEAST_ROWS, LEAST_ROWS - 1, 300 - 2 * LEAST_ROWS + 1])
    assert [each.site for each in evaluate(["npa_10"], evidence(sites)).sites] == [0, 2]
    sampled = evaluate(["npa_10"], evidence(sites), threads=1, exact_rows=NEVER, sampled_rows=150).sites
    assert [each.site for each in sampled] == [2]


@pytest.mark.parametrize(
    ("names", "sites"), [(["npa_10"], None), (["npa_10"], np.zeros(300, int)), (["continuity"], SITES)]
)
def test_no_site_scores_without_sites_or_their_metrics(names: list[str], sites: Int64Array | None) -> None:
    found: tuple[SiteScore, ...] = evaluate(names, evidence(sites), threads=1).sites
    assert found == ()
