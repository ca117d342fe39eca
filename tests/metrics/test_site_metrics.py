"""Do sites stand apart on the map? Against maps of which it is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import silhouette_score
from tiny import tiny

import raydr
from raydr.arrays import FloatArray, Int64Array
from raydr.errors import DataError
from raydr.metrics import Evidence, evaluate

RANDOM = np.random.default_rng(0)
SIZES = (100, 60, 40)
SITES = np.repeat(np.arange(3), SIZES)


def scores(embedding: FloatArray, sites: Int64Array | None) -> dict[str, float]:
    return evaluate(
        ["site_mixing", "site_mixing_10", "site_silhouette"],
        Evidence(rows=embedding, embedding=embedding, sites=sites),
    ).values


def test_sites_that_stand_apart_do_not_mix() -> None:
    apart = 100.0 * SITES[:, None] + RANDOM.normal(size=(200, 2))
    found = scores(apart, SITES)
    assert found["site_mixing"] == found["site_mixing_10"] == 0.0
    assert found["site_silhouette"] > 0.95


def test_sites_dealt_at_random_mix_as_chance_has_it() -> None:
    values = [scores(RANDOM.normal(size=(200, 2)), RANDOM.permutation(SITES)) for _ in range(20)]
    assert np.mean([value["site_mixing"] for value in values]) == pytest.approx(1.0, abs=0.02)
    assert np.mean([value["site_mixing_10"] for value in values]) == pytest.approx(1.0, abs=0.02)
    assert np.mean([value["site_silhouette"] for value in values]) == pytest.approx(0.0, abs=0.05)


def test_by_brute_force() -> None:
    embedding = RANDOM.normal(size=(200, 2)) + 0.7 * SITES[:, None]
    names = np.array([7, -3, 100])[SITES]
    distances = np.linalg.norm(embedding[:, None] - embedding, axis=2)
    np.fill_diagonal(distances, np.inf)
    shares, chances = [], []
    for row in range(200):
        near = np.argsort(distances[row])[:10]
        shares.append(np.mean(SITES[near] != SITES[row]))
        chances.append(np.sum(SITES[row] != SITES) / 199)
    found = scores(embedding, names)
    assert found["site_mixing_10"] == pytest.approx(np.mean(shares) / np.mean(chances))
    equal = np.arange(198) // 66
    assert scores(embedding[:198], equal)["site_silhouette"] == pytest.approx(
        silhouette_score(embedding[:198], equal)
    )


def test_every_site_counts_the_same_in_the_silhouette() -> None:
    """One row more or less of the large site changes what its rows come to, and not how much they count."""
    small, large = RANDOM.normal(size=(20, 2)), 50.0 + RANDOM.normal(size=(2_000, 2))
    inside = large[:20] + 0.01  # a third site, within the large one
    embedding = np.concatenate([small, large, inside])
    sites = np.repeat([0, 1, 2], [20, 2_000, 20])
    found = scores(embedding, sites)["site_silhouette"]
    assert found < 0.5, "the small site alone stands apart"


def test_one_client_or_nobody_that_says_who_is_no_question_of_sites() -> None:
    embedding = RANDOM.normal(size=(50, 2))
    for sites, said in (
        (None, "it is not known which client"),
        (np.zeros(50, int), "all rows belong to one client"),
    ):
        reasons = evaluate(
            ["site_mixing", "site_silhouette"], Evidence(rows=embedding, embedding=embedding, sites=sites)
        ).not_computed
        assert all(said in reason for reason in reasons.values())
        assert len(reasons) == 2
    reasons = evaluate(
        ["site_silhouette"], Evidence(rows=embedding, embedding=embedding, sites=np.arange(50))
    ).not_computed
    assert "from 2 to 49 clusters" in reasons["site_silhouette"]
    with pytest.raises(DataError, match="column of sites has 49"):
        Evidence(rows=embedding, embedding=embedding, sites=np.zeros(49, int))


def test_runs_of_natural_sites_have_them_by_default_and_others_when_asked(tmp_path: Path) -> None:
    rows = np.column_stack([RANDOM.normal(size=(90, 3)), np.arange(90) % 3])
    path = tmp_path / "rows.csv"
    np.savetxt(path, rows, delimiter=",", header="a,b,c,site", comments="")
    scenario = tiny() | {"data": {"path": str(path)}, "compare": ["central"], "metrics": "default"}
    natural = {"clients": {"partition": {"kind": "by-column", "column": "site"}}}
    by_site = raydr.run(scenario | natural, out=tmp_path / "natural").metrics
    assert {"site_mixing", "site_silhouette"} <= set(by_site["federated"]) & set(by_site["central"])
    assert by_site["federated"]["site_mixing"] == pytest.approx(1.0, abs=0.2)
    dealt = raydr.run(scenario, out=tmp_path / "dealt").metrics["federated"]
    assert not {"site_mixing", "site_silhouette"} & set(dealt)
    asked = raydr.run(scenario | {"metrics": ["site_mixing"]}, out=tmp_path / "asked").metrics["federated"]
    assert asked["site_mixing"] == pytest.approx(1.0, abs=0.2)
