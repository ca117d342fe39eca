"""Sparse tables from files and in memory: the same maps as dense ones, and what cannot stay sparse."""

from __future__ import annotations

import gzip
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.io import mmwrite
from scipy.sparse import csr_array, csr_matrix
from sklearn.base import clone

import raydr
from raydr import memory
from raydr.arrays import FloatArray
from raydr.data import load
from raydr.data.in_memory import in_memory
from raydr.data.loading import read_file
from raydr.data.survey.columns import Choice
from raydr.errors import DataError
from raydr.methods.landmarks.maps import LandmarkMap
from raydr.scenarios.afterwards import auditing, transforming
from raydr.scenarios.runner import run
from raydr.scenarios.running.backend import InlineBackend
from raydr.scenarios.running.client_data import dealt_out
from raydr.scenarios.running.site_files import from_sites
from raydr.scenarios.running.sparsity import why_dense
from raydr.scenarios.schema.reading import read
from raydr.sparse_rows import SparseRows

assert_close = partial(assert_allclose, rtol=1e-9, atol=1e-9)
METHODS: dict[str, dict[str, Any]] = {
    "FedPCA": {},
    "FedUMAP": {"epochs": 20, "landmarks": 20, "rounds": 3, "landmarks_from": "learnt"},
    "FedTSNE": {"perplexity": 5, "iterations": 20, "landmarks_from": "k-means", "landmarks": 10},
    "FedSpectralClustering": {
        "clusters": 3,
        "landmarks": 10,
        "embedder": {"kind": "tsne", "perplexity": 5, "iterations": 8},
    },
    "SENSE": {  # residuals that are free to turn follow the last bits
        "anchors": 8,
        "alignment": "none",
        "embedder": {"kind": "tsne", "perplexity": 5, "iterations": 8},
    },
}
SAME: dict[str, Any] = {"FedPCA": assert_close, "SENSE": partial(assert_allclose, rtol=1e-6, atol=1e-6)}
"""Comparisons for methods whose clients use sparse products, which are equal up to rounding."""
SETTINGS: list[tuple[str, str]] = [("none", "euclidean"), ("maxabs", "cosine"), ("none", "hellinger")]


@pytest.fixture(scope="module")
def counts() -> FloatArray:
    """Return counts of genes in cells of three kinds."""
    random = np.random.default_rng(0)
    kinds = random.gamma(0.3, 2.0, (3, 40))
    return random.poisson(kinds[np.arange(60) % 3] * 0.4).astype(np.float32)


def never_dense(estimator: Any, X: Any, y: Any = None) -> Any:
    """Fit an estimator, and fail if a whole sparse table is made dense."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a sparse table was made dense")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparseRows, "__array__", refuse)
        return estimator.fit(X, y)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("scale", "metric"), SETTINGS)
def test_the_map_of_a_sparse_table_is_that_of_the_dense_one(
    counts: FloatArray, method: str, scale: str, metric: str
) -> None:
    def fitted(X: Any) -> Any:
        estimator = getattr(raydr, method)(
            n_clients=3,
            federation="inline",
            metric=metric,
            scale=scale,
            metrics=["trustworthiness"],
            **METHODS[method],
        )
        return never_dense(estimator, X)

    dense, sparse = fitted(counts), fitted(csr_matrix(counts))
    same = SAME.get(method, assert_array_equal)
    same(dense.embedding_, sparse.embedding_)
    scores = [each.metrics_["federated"]["trustworthiness"] for each in (dense, sparse)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-12)
    sent = [
        [one for one in each.ledger_ if one["direction"] != "simulation-only"] for each in (dense, sparse)
    ]
    assert sent[0] == sent[1]
    same(dense.transform(counts[:5]), sparse.transform(csr_array(counts[:5])))


@pytest.mark.parametrize(
    ("method", "clients"),
    [
        ({"regime": "pointwise"}, {"partition": {"kind": "pointwise"}}),
        ({"visibility": "partial", "solver": "smacof", "iterations": 3}, {"count": 2}),
        ({"anchors": 30}, {"count": 2}),  # residuals have fewer dimensions than a client has rows
    ],
)
def test_sense_and_its_pooled_map_read_sparse_tables(
    counts: FloatArray, method: dict[str, Any], clients: dict[str, Any]
) -> None:
    estimator = raydr.SENSE(
        federation="inline",
        metrics=["trustworthiness"],
        scenario={"clients": clients, "compare": ["central"]},
        **METHODS["SENSE"] | method,
    )
    dense, sparse = (never_dense(clone(estimator), table) for table in (counts, csr_matrix(counts)))
    SAME["SENSE"](dense.embedding_, sparse.embedding_)
    assert dense.metrics_["central"] == sparse.metrics_["central"] != {}


def test_pooled_clusters_of_a_sparse_table_are_those_of_the_dense_one(counts: FloatArray) -> None:
    estimator = raydr.FedSpectralClustering(
        n_clients=2,
        federation="inline",
        metrics=["trustworthiness", "clustering_nmi"],
        scenario={"compare": ["central"]},
        **METHODS["FedSpectralClustering"],
    )
    dense, sparse = (
        never_dense(clone(estimator), table, np.arange(60) % 3).metrics_["central"]
        for table in (counts, csr_matrix(counts))
    )
    assert dense.keys() == sparse.keys() != set()
    assert dense == pytest.approx(sparse, abs=1e-9)


def test_tables_of_sites_can_be_sparse(counts: FloatArray) -> None:
    def places(parts: list[Any]) -> FloatArray:
        found: FloatArray = raydr.FedPCA(federation="inline", metrics=[]).fit_transform(parts)
        return found

    cut = [counts[:20], counts[20:]]
    assert_close(places(cut), places([csr_matrix(part) for part in cut]))


@pytest.mark.parametrize("name", ["cells.mtx", "cells.mtx.gz"])
def test_matrix_market_files_stay_sparse(tmp_path: Path, counts: FloatArray, name: str) -> None:
    path = tmp_path / name
    with gzip.open(path, "wb") if name.endswith("gz") else path.open("wb") as file:
        mmwrite(file, csr_matrix(counts.astype(np.float64)), precision=17)
    clients, method = {"count": 2}, {"kind": "fed-pca"}
    scenario = read({"name": "cells", "data": {"path": str(path)}, "clients": clients, "method": method})
    data = dealt_out(scenario, None)
    assert all(isinstance(part, SparseRows) for part in data.parts)
    assert np.array_equal(np.asarray(data.pooled()), counts)
    assert np.array_equal(load(path=path).rows, counts)


def test_h5ad_files_stay_sparse(tmp_path: Path, counts: FloatArray) -> None:
    anndata, pandas = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    obs, var = (
        pandas.DataFrame(
            index=pandas.Index([f"n{place}" for place in range(size)], dtype=object)
        )  # always writable
        for size in counts.shape
    )
    for form in (csr_matrix(counts), csr_matrix(counts).tocsc()):
        anndata.AnnData(form, obs=obs, var=var).write_h5ad(tmp_path / "cells.h5ad")
        table = load(path=tmp_path / "cells.h5ad", sparse=True)
        assert isinstance(table.rows, SparseRows)
        assert np.array_equal(np.asarray(table.rows), counts)
        assert isinstance(load(path=tmp_path / "cells.h5ad").rows, np.ndarray)


def test_anndata_in_memory_stays_sparse(counts: FloatArray) -> None:
    anndata = pytest.importorskip("anndata")
    estimator = raydr.FedPCA(federation="inline", n_clients=2, metrics=[])
    places = estimator.fit_transform(anndata.AnnData(csr_matrix(counts)))
    assert_close(places, estimator.fit_transform(counts))


def test_genes_of_sparse_anndata_are_found_by_name(counts: FloatArray) -> None:
    anndata = pytest.importorskip("anndata")
    cells = anndata.AnnData(csr_matrix(counts))
    cells.var_names = [f"gene{place}" for place in range(counts.shape[1])]
    estimator = raydr.FedPCA(federation="inline", n_clients=2, metrics=[]).fit(cells)
    assert_close(estimator.transform(cells[:5, ::-1]), estimator.transform(cells[:5]))
    others = cells[:5].copy()
    others.var_names = [f"other{place}" for place in range(counts.shape[1])]
    with pytest.raises(ValueError, match="feature names should match"):
        estimator.transform(others)
    with pytest.raises(ValueError, match="feature names should match"):
        raydr.FedPCA(federation="inline", metrics=[]).fit([cells, cells[:, ::-1]])


def test_wide_tables_stay_sparse_for_an_encoder_of_projected_rows(counts: FloatArray) -> None:
    base = {"name": "cells", "clients": {"count": 2}, "metrics": []}
    scenario = read(base | {"data": {"path": "cells.mtx"}, "method": {"kind": "fedne"}})
    for wide in (False, True):
        cells = np.tile(counts, (1, 30)) if wide else counts
        table = in_memory({"X": SparseRows.of(csr_matrix(cells))})  # type: ignore[dict-item]
        kept = dealt_out(scenario, None, table)
        assert all(isinstance(part, SparseRows) == wide for part in kept.parts)
        assert any("more columns than rows" in notice for notice in kept.notices) != wide


NEEDS_DENSE = [
    ({"scale": "standard"}, {}, "set data.scale to maxabs"),
    ({"metric": "correlation"}, {}, "set data.metric to"),
    ({"missing": "mean"}, {}, "set data.missing to"),
    ({}, {"method": {"kind": "dsne"}}, "choose fed-umap"),
    ({}, {"method": {"kind": "sense", "geometry": "hyperbolic"}}, "set method.geometry to euclidean"),
    ({}, {"method": {"kind": "landmark-ne"}, "compare": ["central"]}, "leave compare out"),
    (
        {},
        {"method": {"kind": "fed-spectral", "clusters": 2, "affinity": "rbf"}, "compare": ["central"]},
        "leave compare out",
    ),
]


@pytest.mark.parametrize(("data", "rest", "remedy"), NEEDS_DENSE)
def test_what_needs_dense_rows_says_so_and_what_to_do(
    tmp_path: Path,
    counts: FloatArray,
    monkeypatch: pytest.MonkeyPatch,
    data: dict[str, Any],
    rest: dict[str, Any],
    remedy: str,
) -> None:
    mmwrite(tmp_path / "cells.mtx", csr_matrix(counts))
    path = {"path": str(tmp_path / "cells.mtx")}
    base = {"name": "cells", "clients": {"count": 2}, "method": {"kind": "fed-pca"}, "metrics": []}
    scenario = read(base | {"data": path | data} | rest)
    assert remedy in str(why_dense(scenario))
    made = dealt_out(scenario, None)
    assert not any(isinstance(part, SparseRows) for part in made.parts)
    assert any("was made dense" in notice and remedy in notice for notice in made.notices)
    monkeypatch.setattr(memory, "available_memory_bytes", lambda: 0)
    with pytest.raises(DataError, match=remedy.replace(".", r"\.")):
        in_small_memory(scenario, counts)


def test_sparse_files_of_sites_stay_sparse_or_a_notice_says_why(tmp_path: Path, counts: FloatArray) -> None:
    for name, part in (("east", counts[:25]), ("west", counts[25:])):
        mmwrite(tmp_path / f"{name}.mtx", csr_matrix(part))
    sites = [{"path": str(tmp_path / f"{name}.mtx")} for name in ("east", "west")]
    base = {"name": "cells", "clients": {"sites": sites}, "method": {"kind": "fed-pca"}, "metrics": []}
    kept = from_sites(read(base | {"data": {"scale": "maxabs"}}), InlineBackend())
    assert not any("dense" in notice for notice in kept.notices)
    assert isinstance(kept.pooled(), SparseRows)
    made = from_sites(read(base | {"data": {"scale": "standard"}}), InlineBackend())
    assert not isinstance(made.pooled(), SparseRows)
    assert [notice for notice in made.notices if "dense" in notice] == [
        "2 of 2 sites' files are stored sparse and were made dense (18.75 KiB in all), because data.scale standard"
        " moves zeros: set data.scale to maxabs or none."
    ]


def test_new_rows_in_sparse_files_are_placed_as_dense_ones(
    tmp_path: Path, counts: FloatArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run has a scaling that moves zeros; its own table was dense."""
    method = {"kind": "fed-umap", **METHODS["FedUMAP"]}
    np.save(tmp_path / "cells.npy", counts)
    data = {"path": str(tmp_path / "cells.npy"), "scale": "standard"}
    base = {"name": "cells", "data": data, "clients": {"count": 2}, "method": method, "metrics": []}
    run(read(base | {"runtime": {"federation": "inline"}}), out=tmp_path / "run")
    np.save(tmp_path / "new.npy", counts[:7])
    mmwrite(tmp_path / "new.mtx", csr_matrix(counts[:7]))
    monkeypatch.setattr(transforming, "_VALUES", 2 * counts.shape[1])  # two rows at a time
    placed = []
    for kind in ("npy", "mtx"):
        raydr.transform(tmp_path / "run", tmp_path / f"new.{kind}", out=tmp_path / f"{kind}.csv")
        placed.append(np.loadtxt(tmp_path / f"{kind}.csv", delimiter=",", skiprows=1))
    assert_allclose(placed[0], placed[1], rtol=1e-5)  # values of one file are in double precision
    raydr.join(tmp_path / "run", tmp_path / "new.mtx", site="late")


def test_an_audit_makes_a_sparse_table_dense_with_a_warning_or_refuses(
    tmp_path: Path, counts: FloatArray, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mmwrite(tmp_path / "cells.mtx", csr_matrix(counts))
    data = {"path": str(tmp_path / "cells.mtx"), "scale": "none"}
    base = {"name": "cells", "data": data, "clients": {"count": 2}, "method": {"kind": "fed-pca"}}
    run(read(base | {"metrics": [], "runtime": {"federation": "inline"}}), out=tmp_path / "run")
    raydr.audit(tmp_path / "run")
    assert "sparse table dense: 18.75 KiB" in caplog.text
    monkeypatch.setattr(auditing, "lacking_memory", lambda _: "little is free")
    with pytest.raises(DataError, match=r"little is free\. Audit a run of fewer rows"):
        raydr.audit(tmp_path / "run")


def test_held_out_rows_of_a_sparse_table_are_placed_by_dense_blocks(
    counts: FloatArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = LandmarkMap.transform

    def transform(self: LandmarkMap, model: Any, rows: Any) -> FloatArray:
        assert isinstance(rows, np.ndarray)
        return whole(self, model, rows)

    monkeypatch.setattr(LandmarkMap, "transform", transform)
    estimator = raydr.FedUMAP(
        n_clients=2,
        federation="inline",
        metrics=["new_trustworthiness"],
        scenario={"data.holdout": {"rows": 12}, "compare": ["central"]},
        **METHODS["FedUMAP"],
    )
    scores = [clone(estimator).fit(table).metrics_ for table in (counts, csr_matrix(counts))]
    assert scores[0]["federated"]["new_trustworthiness"] is not None
    assert scores[0] == scores[1]


def in_small_memory(scenario: Any, counts: FloatArray) -> None:
    dealt_out(scenario, None, in_memory({"X": SparseRows.of(csr_matrix(counts))}))  # type: ignore[dict-item]


def test_gaps_and_infinities_of_sparse_tables_are_named(counts: FloatArray, tmp_path: Path) -> None:
    for value, words in ((np.nan, "missing value"), (np.inf, "infinite value")):
        broken = counts.copy()
        broken[4, 7] = value
        with pytest.raises(DataError, match=words) as error:
            in_memory({"X": SparseRows.of(csr_matrix(broken))}, fills=False)  # type: ignore[dict-item]
        assert "'x7' on row 4" in str(error.value)


def test_gaps_of_sparse_tables_are_filled_in_as_those_of_dense_ones(counts: FloatArray) -> None:
    broken = counts.copy()
    broken[4, 7] = np.nan
    maps = [raydr.FedPCA(metrics=(), scale="maxabs").fit(each) for each in (csr_matrix(broken), broken)]
    np.testing.assert_allclose(maps[0].embedding_, maps[1].embedding_, atol=1e-6)


def test_a_matrix_market_file_that_claims_too_much_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.mtx"
    path.write_text("%%MatrixMarket matrix array real general\n1000000000 1000000\n1\n")
    with pytest.raises(DataError, match="memory is needed"):
        read_file(path, Choice())
    path.write_text("no matrix\n")
    with pytest.raises(DataError, match=r"cannot be read as a MatrixMarket file.*mmwrite"):
        read_file(path, Choice())


def test_sums_of_wide_tables_use_nonzero_numbers_alone() -> None:
    from raydr.federation import Client
    from raydr.statistics.principal_axes import CovarianceRequest, covariance_product

    random = np.random.default_rng(0)
    dense = np.where(random.random((50, 300)) < 0.05, 1.0 + random.random((50, 300)), 0.0)
    for centre in (None, dense.mean(axis=0)):
        request = CovarianceRequest(random.normal(size=(300, 4)), np.full(300, 2.0), centre)
        found, expected = (
            covariance_product(Client(index=0, rows=rows, seed=0), request).product
            for rows in (SparseRows.of(csr_matrix(dense)), dense)
        )
        assert np.allclose(found, expected, rtol=1e-12, atol=1e-13)
