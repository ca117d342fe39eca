"""Novelty by principal axes: counts by score, and p-values that hold for rows drawn like the mapped ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from inline_federations import federate
from memory import peak_memory
from scipy.sparse import csr_array

import raydr
from raydr.arrays import Float64Array
from raydr.federation import Client
from raydr.front.cli import status
from raydr.methods.fed_pca import FedPCA, serve
from raydr.methods.novelty import AXES, EACH, MOMENTS, NOVEL, NOVELTY, SCORED, SCORES, UNITS
from raydr.methods.novelty_by_axes import ScoreCountsRequest, count_scores, novelty_by_axes
from raydr.runfolder.model import read_model
from raydr.sparse_rows import SparseRows


def table(rows: int, features: int = 8, seed: int = 0) -> Float64Array:
    """Return skewed rows far from the origin, with unlike deviations and a constant column."""
    random = np.random.default_rng(seed)
    values = random.exponential(size=(rows, features)) * np.linspace(3.0, 0.5, features)
    values[:, -1] = 0.0
    return 100.0 + values @ np.linalg.qr(np.random.default_rng(5).normal(size=(features, features)))[0]


def model_of(rows: Any, **options: Any) -> dict[str, Any]:
    parts = [rows[:40], rows[40:40], rows[40:]]
    return dict(serve(federate(parts), FedPCA(**options)).model)


def scores(rows: Float64Array, mapped: Float64Array, count: int = 2) -> Float64Array:
    """Return the scores of rows by the moments of the mapped ones."""
    mean = mapped.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(mapped.T, bias=True))
    values, axes = values[::-1], vectors[:, ::-1]
    along = (((rows - mean) @ axes[:, :count]) ** 2 / values[:count]).sum(axis=1)
    away = (((rows - mean) @ axes[:, count:]) ** 2).sum(axis=1) / values[count:].sum()
    return np.sqrt(along + np.sqrt(count * (len(values) - count)) * away)


@pytest.mark.parametrize("rows", [45, 300, 2600])
def test_p_value_counts_the_mapped_rows_that_score_as_high(rows: int) -> None:
    """It is never below the exact one, and above it by five rows and those of a bin, which is 1.1% wide."""
    mapped, new = table(rows), table(400, seed=1)
    model = model_of(mapped)
    scored = min(rows, 2000)
    assert model[SCORED].tolist() == [scored]
    assert len(model[SCORES]) == scored // EACH
    p = novelty_by_axes(model, new - model["mean"])
    own, found = scores(mapped, mapped), scores(new, mapped)
    exact, wide = (
        (1 + rows * (own[None] >= found[:, None] / width).mean(axis=1)) / (1 + rows)
        for width in (1.0 - 1e-9, 1.011)
    )
    assert p is not None
    assert (p >= exact - 1e-3).all()
    assert (p <= wide + (EACH + 1) / (1 + scored))[p < 1.0].all()
    np.testing.assert_allclose(model[MOMENTS], [mapped.mean(axis=0), mapped.std(axis=0)], rtol=1e-9)


def test_false_alarms_are_five_in_a_hundred() -> None:
    """Over repetitions; the axes follow from the mapped rows, so it may be slightly more."""
    shares = []
    for seed in range(20):
        model = model_of(table(400, seed=seed))
        p = novelty_by_axes(model, table(1000, seed=100 + seed) - model["mean"])
        assert p is not None
        shares.append((p <= NOVEL).mean())
    assert 0.04 < np.mean(shares) < 0.057


def test_rows_away_from_degenerate_rows_are_novel() -> None:
    """Mapped rows on a line: any other row is unlike them, and rounding is no distance."""
    line = 1e6 + np.outer(np.random.default_rng(0).normal(size=200), [1.0, 2.0, 3.0])
    model = model_of(line)
    assert model[AXES].shape == (3, 1)
    beside = line[:50] + np.array([1e-3, 0.0, 0.0])
    p = novelty_by_axes(model, np.concatenate([line[:50], beside]) - model["mean"])
    assert p is not None
    assert (p[:50] <= NOVEL).mean() < 0.1
    assert (p[50:] <= NOVEL).all()


def test_as_many_axes_as_features_leave_nothing_out() -> None:
    mapped = table(200)[:, :2]
    model = model_of(mapped)
    assert model[UNITS][-1] == 0.0
    p = novelty_by_axes(model, mapped + 50.0 - model["mean"])
    assert p is not None
    assert (p <= NOVEL).all()


def test_sparse_rows_are_counted_like_dense_ones() -> None:
    dense = np.where(np.random.default_rng(0).random((150, 9)) < 0.3, table(150, 9), 0.0)
    found = model_of(SparseRows.of(csr_array(dense)))
    for name in NOVELTY:
        np.testing.assert_allclose(found[name], model_of(dense)[name], rtol=1e-6, atol=1e-9)


def test_few_wide_rows_take_little_memory() -> None:
    """At clients, blocks are not filled up to one size: four rows of 800,000 columns would take 800 MB."""
    rows = np.random.default_rng(0).normal(size=(4, 100_000))
    request = ScoreCountsRequest(np.zeros(100_000), np.eye(100_000, 2), np.array([1.0, 1.0, 300.0]), 4)
    with peak_memory() as peak:
        counts = count_scores(Client(index=0, rows=rows, seed=0, round=0), request).counts
    assert counts.sum() == 4
    assert peak.bytes < 4 * rows.nbytes


@pytest.mark.parametrize("why", ["bounds", "few rows", "noise"])
def test_runs_that_cannot_tell_say_so(why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = table(60 if why == "noise" else 19 if why == "few rows" else 60)
    np.savez(tmp_path / "rows.npz", X=rows)
    noise = {"privacy": {"noise": {"on": "data", "level": 0.1}}}
    run = raydr.run(
        {
            "name": "unknown",
            "data": {"path": str(tmp_path / "rows.npz")},
            "clients": {"count": 2},
            "method": {"kind": "fed-pca", **({"bounds": [0, 200]} if why == "bounds" else {})},
            "metrics": [],
            "runtime": {"federation": "inline"},
            **(noise if why == "noise" else {}),
        },
        out=tmp_path / "run",
    )
    assert not set(NOVELTY) & set(read_model(run.folder).arrays)
    assert "ScoreCounts" not in {entry["kind"] for entry in run.ledger}
    out = tmp_path / "out.csv"
    assert status(["transform", str(run.folder), str(tmp_path / "rows.npz"), "--out", str(out)]) == 0
    assert "novelty" not in out.read_text()
    assert (
        "The file has no column novelty: with these settings, the run keeps nothing"
        in capsys.readouterr().err
    )


def test_damaged_arrays_are_refused() -> None:
    model = model_of(table(60))
    rows = table(5) - model["mean"]
    for name, values in ((AXES, model[AXES][:-1]), (UNITS, model[UNITS][:-1])):
        with pytest.raises(ValueError, match="must fit"):
            novelty_by_axes({**{key: model[key] for key in model if key != MOMENTS}, name: values}, rows)


@pytest.mark.parametrize("publish", ["server", "local"])
def test_a_joining_site_keeps_its_novelty(publish: str, tmp_path: Path) -> None:
    """It equals that of transform, and the ledger has nothing of it that leaves the site."""
    np.savez(tmp_path / "rows.npz", X=table(200))
    np.savez(tmp_path / "new.npz", X=table(80, seed=3) * np.linspace(1.0, 1.5, 80)[:, None])
    run = raydr.run(
        {
            "name": "joined",
            "data": {"path": str(tmp_path / "rows.npz")},
            "clients": {"count": 2},
            "method": {"kind": "fed-pca", "publish": publish},
            "metrics": [],
            "runtime": {"federation": "inline"},
        },
        out=tmp_path / "run",
    )
    raydr.transform(run.folder, tmp_path / "new.npz", out=tmp_path / "out.parquet")
    joined = raydr.join(run.folder, tmp_path / "new.npz", site="south").joined[-1]
    np.testing.assert_array_equal(joined.novelty, pq.read_table(tmp_path / "out.parquet")["novelty"])
    assert {entry.kind for entry in joined.left} - {"Enrolment"} == (
        {"SitePlaces"} if publish == "server" else set()
    )
