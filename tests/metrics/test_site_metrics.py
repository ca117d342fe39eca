"""Separation of sites on the map, against maps with known answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import silhouette_score
from tiny import tiny

from raydr.arrays import FloatArray, Int64Array
from raydr.errors import DataError
from raydr.front.api import Result
from raydr.metrics import Evidence, evaluate
from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import read

RANDOM = np.random.default_rng(0)
SIZES = (100, 60, 40)
SITES = np.repeat(np.arange(3), SIZES)


def scores(embedding: FloatArray, sites: Int64Array | None) -> dict[str, float]:
    return evaluate(
        ["site_mixing", "site_mixing_10", "site_silhouette"],
        Evidence(rows=embedding, embedding=embedding, sites=sites),
    ).values


def test_separate_sites_do_not_mix() -> None:
    apart = 100.0 * SITES[:, None] + RANDOM.normal(size=(200, 2))
    found = scores(apart, SITES)
    assert found["site_mixing"] == found["site_mixing_10"] == 0.0
    assert found["site_silhouette"] > 0.95


def test_random_sites_mix_at_chance_level() -> None:
    values = [scores(RANDOM.normal(size=(200, 2)), RANDOM.permutation(SITES)) for _ in range(20)]
    assert np.mean([value["site_mixing"] for value in values]) == pytest.approx(1.0, abs=0.02)
    assert np.mean([value["site_mixing_10"] for value in values]) == pytest.approx(1.0, abs=0.02)
    assert np.mean([value["site_silhouette"] for value in values]) == pytest.approx(0.0, abs=0.05)


def test_site_metrics_equal_brute_force() -> None:
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


def test_every_site_has_equal_weight_in_the_silhouette() -> None:
    """One row more of the large site must not change the weight of its rows."""
    small, large = RANDOM.normal(size=(20, 2)), 50.0 + RANDOM.normal(size=(2_000, 2))
    inside = large[:20] + 0.01  # a third site, within the large one
    embedding = np.concatenate([small, large, inside])
    sites = np.repeat([0, 1, 2], [20, 2_000, 20])
    found = scores(embedding, sites)["site_silhouette"]
    assert found < 0.5, "only the small site is separate"


def test_one_site_or_unknown_sites_are_reported_as_reasons() -> None:
    embedding = RANDOM.normal(size=(50, 2))
    for sites, reason_text in (
        (None, "it is not known which client"),
        (np.zeros(50, int), "all rows belong to one client"),
    ):
        reasons = evaluate(
            ["site_mixing", "site_silhouette"], Evidence(rows=embedding, embedding=embedding, sites=sites)
        ).not_computed
        assert all(reason_text in reason for reason in reasons.values())
        assert len(reasons) == 2
    reasons = evaluate(
        ["site_silhouette"], Evidence(rows=embedding, embedding=embedding, sites=np.arange(50))
    ).not_computed
    assert "from 2 to 49 clusters" in reasons["site_silhouette"]
    with pytest.raises(DataError, match="column of sites has 49"):
        Evidence(rows=embedding, embedding=embedding, sites=np.zeros(49, int))


def test_site_metrics_are_a_default_for_natural_sites_only(tmp_path: Path) -> None:
    rows = np.column_stack([RANDOM.normal(size=(60, 3)), np.arange(60) % 3])
    path = tmp_path / "rows.csv"
    np.savetxt(path, rows, delimiter=",", header="a,b,c,site", comments="")
    scenario = tiny() | {"data": {"path": str(path)}, "compare": ["central"], "metrics": "default"}
    natural = {"clients": {"partition": {"kind": "by-column", "column": "site"}}}

    def metrics(name: str, **changes: Any) -> dict[str, dict[str, float]]:
        return Result(run(read(scenario | changes), out=tmp_path / name, report=False)).metrics

    by_site = metrics("natural", **natural)
    assert {"site_mixing", "site_silhouette"} <= set(by_site["federated"]) & set(by_site["central"])
    assert by_site["federated"]["site_mixing"] == pytest.approx(1.0, abs=0.2)
    dealt = metrics("dealt", compare=[])["federated"]
    assert not {"site_mixing", "site_silhouette"} & set(dealt)
    asked = metrics("asked", compare=[], metrics=["site_mixing"])["federated"]
    assert asked["site_mixing"] == pytest.approx(1.0, abs=0.2)
