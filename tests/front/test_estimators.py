"""Estimators: same bits as a scenario, scikit-learn's conventions, and no stored row."""

from __future__ import annotations

import importlib.util
import pickle
import re
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from places import DOCS
from quick_estimators import QUICK, SHORT
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import (
    check_clusterer_compute_labels_predict,
    check_clustering,
    parametrize_with_checks,
)

import raydr
from raydr.errors import DataError, OutputError, ScenarioError
from raydr.front import estimators
from raydr.front.estimators import FederatedMap, PlacingMap, estimator_names
from raydr.methods import METHODS
from raydr.runfolder.model import read_model

FEATURES = ["age", "glucose", "bmi", "insulin", "weight"]


def quick(name: str = "FedTSNE", **parameters: Any) -> Any:
    return getattr(raydr, name)(**{**QUICK[name], "metrics": (), **parameters})


@pytest.fixture(scope="module", name="X")
def _rows() -> Any:
    return np.random.default_rng(0).normal(size=(60, 5))


@pytest.fixture(scope="module", autouse=True)
def _references(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Write the public rows that dSNE needs."""
    file = tmp_path_factory.mktemp("public") / "references.npy"
    np.save(file, np.random.default_rng(1).normal(size=(12, 5)))
    QUICK["DSNE"]["reference_path"] = str(file)


HOSPITAL = np.array(["north", "east", "west"])[np.arange(60) % 3]
SICK = np.where(np.arange(60) % 2, "yes", "no")


def patients(X: Any) -> pd.DataFrame:
    return pd.DataFrame(X, columns=FEATURES).assign(hospital=HOSPITAL, sick=SICK)


# --- the same as a run ------------------------------------------------------------------------------------------------


def test_fit_is_bit_identical_to_a_run_of_a_file(X: Any, tmp_path: Path) -> None:
    patients(X).to_parquet(tmp_path / "patients.parquet")
    scenario = {
        "name": "file",
        "seed": 3,
        "data": {"path": str(tmp_path / "patients.parquet"), "label": "sick"},
        "clients": {"partition": {"kind": "by-column", "column": "hospital"}},
        "method": {"kind": "fed-tsne", **QUICK["FedTSNE"]},
        "runtime": {"federation": "inline"},
        "metrics": ["npa_10", "sc"],
    }
    scenario["data"] |= {"scale": "standard", "categories": "one-hot"}  # the defaults for data frames
    run = raydr.run(scenario, out=tmp_path / "run")
    found = quick(random_state=3, label="sick", metrics=("npa_10", "sc"))
    found.fit(patients(X), sites="hospital")
    np.testing.assert_array_equal(found.embedding_, run.embedding)
    assert (found.metrics_, found.ledger_) == (run.metrics, run.ledger)
    assert found.to_frame().equals(run.to_frame())
    new = patients(X).sample(10, random_state=0)
    new.to_parquet(tmp_path / "new.parquet", index=False)
    raydr.transform(run.folder, tmp_path / "new.parquet", out=tmp_path / "placed.parquet")
    placed = pq.read_table(tmp_path / "placed.parquet")
    np.testing.assert_array_equal(found.transform(new), np.column_stack([placed["x"], placed["y"]]))


def test_rows_without_sites_are_split_like_in_a_scenario(X: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", X)
    scenario = {
        "name": "file",
        "data": {"path": str(tmp_path / "rows.npy")},
        "clients": {"count": 10},
        "method": {"kind": "fed-pca"},
        "runtime": {"federation": "inline"},
        "metrics": [],
    }
    run = raydr.run(scenario, out=tmp_path / "run")
    found = quick("FedPCA").fit(X)
    np.testing.assert_array_equal(found.embedding_, run.embedding)
    assert len(set(quick("FedPCA").fit(X[:23]).clients_)) == 4
    assert len(set(quick("FedPCA", n_clients=7).fit(X).clients_)) == 7


@pytest.mark.slow
def test_ray_matches_inline(X: Any, cluster: None) -> None:
    one, other = (quick(federation=name).fit(X, sites=HOSPITAL) for name in ("inline", "ray"))
    np.testing.assert_array_equal(one.embedding_, other.embedding_)
    np.testing.assert_array_equal(one.transform(X), other.transform(X))


def frames(X: Any) -> Any:
    return patients(X)


def polars_frames(X: Any) -> Any:
    return pytest.importorskip("polars").DataFrame(patients(X).to_dict("list"))


def arrow_tables(X: Any) -> Any:
    return pa.Table.from_pandas(patients(X))


def cells(X: Any, matrix: Callable[[Any], Any] = np.asarray) -> Any:
    anndata = pytest.importorskip("anndata")
    obs = patients(X)[["hospital", "sick"]].astype(object)
    names = pd.Index([f"cell {row}" for row in range(60)], dtype=object)
    return anndata.AnnData(
        matrix(X), obs=obs.set_index(names), var=pd.DataFrame(index=pd.Index(FEATURES, dtype=object))
    )


@pytest.mark.parametrize("table", [frames, polars_frames, arrow_tables, cells])
def test_every_table_type_gives_the_same_bits(table: Callable[[Any], Any], X: Any) -> None:
    bare = quick().fit(X, SICK, sites=HOSPITAL)
    found = quick(label="sick", scale="none").fit(table(X), sites="hospital")
    np.testing.assert_array_equal(found.embedding_, bare.embedding_)
    assert list(found.to_frame()["label"]) == list(SICK)
    assert list(found.clients_) == list(HOSPITAL)
    assert list(found.feature_names_in_) == FEATURES
    np.testing.assert_array_equal(found.transform(table(X)), found.transform(frames(X)[FEATURES]))


def test_list_of_tables_has_one_table_per_site(X: Any) -> None:
    parts = [np.flatnonzero(name == HOSPITAL) for name in ("east", "north", "west")]
    order = np.concatenate(parts)
    whole = quick().fit(X[order], SICK[order], sites=HOSPITAL[order])
    found = quick().fit([X[part] for part in parts], [SICK[part] for part in parts])
    np.testing.assert_array_equal(found.embedding_, whole.embedding_)
    assert list(found.clients_) == [f"site-{place}" for place in range(3) for _ in range(20)]
    assert list(found.to_frame()["label"]) == list(SICK[order])
    of_frames = quick(label="sick", scale="none").fit(
        [frames(X).iloc[part].drop(columns="hospital") for part in parts]
    )
    np.testing.assert_array_equal(of_frames.embedding_, whole.embedding_)
    assert list(of_frames.to_frame()["row"]) == list(order)  # the index tells them apart
    with pytest.raises(ValueError, match="feature names"):
        quick().fit([frames(X)[FEATURES], frames(X)[FEATURES[::-1]]])


def test_site_may_have_one_row(X: Any) -> None:
    found = quick().fit([X[:1], X[1:]])
    assert list(found.clients_[:2]) == ["site-0", "site-1"]
    assert found.transform([X[:1], X[1:2]]).shape == (2, 2)


def test_scaled_map_does_not_depend_on_an_offset(X: Any) -> None:
    halves = np.round(X * 64) / 64  # exact with the offset added
    near, far = (quick(scale="standard").fit(halves + offset) for offset in (0.0, 1e8))
    assert np.abs(near.embedding_ - far.embedding_).max() < 1e-3 * np.abs(near.embedding_).max()


def test_fit_and_transform_do_not_change_the_input(X: Any) -> None:
    mine = X.copy()
    quick(scale="standard").fit(mine).transform(mine)
    np.testing.assert_array_equal(mine, X)
    assert mine.flags.writeable


def test_small_integers_equal_float32(X: Any) -> None:
    small = (X * 50).astype(np.int16)
    as_numbers = quick().fit(small).embedding_
    np.testing.assert_array_equal(as_numbers, quick().fit(small.astype(np.float32)).embedding_)


# --- what goes in -----------------------------------------------------------------------------------------------------


def test_continuous_y_is_not_a_label(X: Any) -> None:
    assert "label" not in quick().fit(X, X[:, 0]).to_frame()
    assert set(quick().fit(X, np.arange(60) % 3).to_frame()["label"]) == {"0", "1", "2"}


def test_random_state_is_the_seed(X: Any) -> None:
    one = quick(random_state=5).fit(X)
    again = quick(random_state=np.int64(5)).fit(X)
    np.testing.assert_array_equal(one.embedding_, again.embedding_)
    drawn = quick(random_state=None).fit(X)
    np.testing.assert_array_equal(quick(random_state=drawn.seed_).fit(X).embedding_, drawn.embedding_)
    assert not np.array_equal(drawn.embedding_, one.embedding_)
    seeds = [quick(random_state=np.random.RandomState(1)).fit(X).seed_ for _ in range(2)]
    assert seeds[0] == seeds[1]


def test_scenario_parameter_sets_other_keys(X: Any) -> None:
    found = quick(metrics=("npa_10",), scenario={"compare": ["central"], "clients.participation": 0.5}).fit(X)
    assert found.metrics_["central"]["npa_10"] > 0
    private = quick(privacy={"secure_aggregation": True}).fit(X)
    assert any(entry["secure"] for entry in private.ledger_)


@pytest.mark.parametrize(
    ("parameters", "fit", "error", "message"),
    [
        ({"landmarks": 1}, {}, ScenarioError, "method.landmarks is 1"),
        ({"aggregation": "meen"}, {}, ScenarioError, "method.aggregation"),
        ({"label": "sick"}, {"y": SICK}, DataError, "both give classes: leave one of them out"),
        ({"label": "sik"}, {}, DataError, "no such column"),
        ({"n_clients": 3}, {"sites": "hospital"}, ScenarioError, "leave one of them out"),
        ({"scenario": {"audit": True}}, {}, ScenarioError, "audit repeats a run"),
        ({}, {"sites": HOSPITAL[:50]}, ValueError, "inconsistent numbers of samples"),
        ({}, {"sites": [*HOSPITAL[:59], None]}, DataError, "1 rows without a site"),
    ],
)
def test_unusable_input_is_refused(
    parameters: dict[str, Any], fit: dict[str, Any], error: type[Exception], message: str, X: Any
) -> None:
    table = patients(X)[
        [*FEATURES, *{"hospital"} & {fit.get("sites") if isinstance(fit.get("sites"), str) else ""}]
    ]
    if parameters.get("label") == "sick":
        table["sick"] = SICK
    with pytest.raises(error, match=message):
        quick(**parameters).fit(table, **fit)


def test_sense_anchors_may_not_be_mapped_rows(X: Any) -> None:
    assert len(quick("SENSE").fit(X).embedding_) == 60
    with pytest.raises(DataError, match="sets 4 rows apart"):
        quick("SENSE", anchor_source="sample").fit(X)


def test_dsne_references_may_not_be_mapped_rows(X: Any) -> None:
    with pytest.raises(DataError, match="or set method"):
        quick("DSNE", reference_path=None).fit(X)


@pytest.mark.parametrize("repeat", [raydr.audit, raydr.stability])
def test_a_run_of_rows_in_memory_is_not_repeated(repeat: Any, X: Any) -> None:
    found = quick().fit(X)
    with pytest.raises(DataError, match="which are not stored"):
        repeat(found.result_.folder)


# --- what comes out ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", QUICK)
def test_no_row_is_stored(name: str, X: Any) -> None:
    found = quick(name).fit(X, sites=HOSPITAL)
    kept = [pickle.dumps(found)]
    kept += [path.read_bytes() for path in found.result_.folder.rglob("*") if path.is_file()]
    for row in X:
        for bits in (row.tobytes(), row.astype(np.float32).tobytes()):
            assert not any(bits in content for content in kept)
    for values in read_model(found.result_.folder).arrays.values():
        if values.ndim == 2 and values.shape[1] == X.shape[1]:
            assert np.abs(values[:, None] - X).max(axis=-1).min() > 1e-6
    # Rows in a pickle would be found.
    assert X[7].tobytes() in pickle.dumps((found, X))


@pytest.mark.parametrize("name", QUICK)
def test_unpickled_estimator_is_equal(name: str, X: Any) -> None:
    found = quick(name).fit(X, SICK)
    folder, content, placed = found.result_.folder, pickle.dumps(found), None
    if isinstance(found, PlacingMap):
        placed = found.transform(X[:5])
    del found
    assert not folder.exists()  # it is deleted with the estimator
    again = pickle.loads(content)
    assert again.embedding_.shape == (60, 2)
    assert again.result_.metrics == again.metrics_
    if placed is not None:
        np.testing.assert_array_equal(again.transform(X[:5]), placed)


def test_run_folder_lives_as_long_as_its_result(X: Any) -> None:
    result = quick().fit(X).result_
    assert result.embedding.shape == (60, 2)
    copied = pickle.loads(pickle.dumps(result))
    folder = result.folder
    del result
    assert not folder.parent.exists()
    assert copied.embedding.shape == (60, 2)
    assert copied.report.is_file()


def test_failed_fit_leaves_no_fit_and_no_folder(
    X: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = quick()
    with pytest.raises(DataError, match="all 60 rows are equal"):
        found.fit(np.ones_like(X))
    with pytest.raises(ScenarioError, match="only 4 rows"):
        found.fit(X[:4])
    with pytest.raises(NotFittedError):
        _ = found.report_
    assert not list(tmp_path.iterdir())


def test_out_keeps_the_run_folder(X: Any, tmp_path: Path) -> None:
    found = quick(out=tmp_path / "run").fit(X)
    assert found.report_ == tmp_path / "run" / "report.html"
    assert found.report_.is_file()
    with pytest.raises(OutputError):
        found.fit(X)
    del found
    assert raydr.Result(tmp_path / "run").embedding.shape == (60, 2)


def test_notebook_shows_the_map(X: Any) -> None:
    before, found = quick()._repr_html_(), quick().fit(X, SICK)
    picture = found.result_._repr_html_()
    assert "data:image/png;base64," in picture
    assert "60 rows of 10 clients, coloured by label" in picture
    assert "<img" not in before
    assert found._repr_mimebundle_()["text/html"].endswith(picture)
    assert len(picture) < 200_000


def test_to_frame_uses_an_installed_library(X: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = quick().fit(X, SICK)
    assert list(found.to_frame("pyarrow").column_names) == ["row", "client", "x", "y", "label"]
    assert isinstance(found.to_frame(), pd.DataFrame)
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match="pip install polars"):
        found.to_frame("polars")
    with pytest.raises(DataError, match="library 'dask'"):
        found.to_frame("dask")
    find = importlib.util.find_spec
    without = {"pandas", "polars"}
    monkeypatch.setattr("raydr.front.exports.find_spec", lambda name: None if name in without else find(name))
    assert found.to_frame().num_rows == 60


def test_missing_anndata_is_named(X: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anndata", None)
    with pytest.raises(ImportError, match=r"pip install 'raydr\[anndata\]'"):
        quick().fit(X).to_anndata()


def test_to_anndata_survives_its_file(X: Any, tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata")
    found = quick(label="sick").fit(cells(X), sites="hospital")
    for adata, before in ((found.to_anndata(), ""), (found.to_anndata(cells(X)), "raydr_")):
        adata.write_h5ad(tmp_path / "map.h5ad")
        read = anndata.read_h5ad(tmp_path / "map.h5ad")
        np.testing.assert_array_equal(read.obsm["X_raydr"], found.embedding_)
        assert list(read.obs_names) == list(found.to_frame()["row"])
        assert list(read.obs[f"{before}client"]) == list(HOSPITAL)
        for column in ("client", "label"):
            colours = read.uns[f"{before}{column}_colors"]
            assert len(colours) == len(read.obs[f"{before}{column}"].cat.categories)
            assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in colours)
        assert read.uns["raydr"]["ledger"] == (found.result_.folder / "ledger.json").read_text()
    np.testing.assert_array_equal(read.X, X)
    with pytest.raises(DataError, match="in number or names"):
        found.to_anndata(cells(X)[::-1])
    assert "X_raydr" not in cells(X).obsm


def test_sparse_anndata_equals_dense(X: Any) -> None:
    from scipy import sparse

    dense, thin = (quick().fit(cells(X, matrix)) for matrix in (np.asarray, sparse.csr_matrix))
    np.testing.assert_array_equal(dense.embedding_, thin.embedding_)


def test_a_sparse_data_frame_is_a_sparse_matrix_with_names(X: Any) -> None:
    from scipy import sparse

    frame = pd.DataFrame.sparse.from_spmatrix(
        sparse.csr_matrix(X), columns=[f"gene {at}" for at in range(X.shape[1])]
    )
    found = quick().fit(frame)
    np.testing.assert_array_equal(found.embedding_, quick().fit(sparse.csr_matrix(X)).embedding_)
    assert list(found.feature_names_in_) == list(frame.columns)
    whole = pd.DataFrame(X, columns=frame.columns)
    partly, dense = (each.assign(age=np.arange(len(X))) for each in (frame, whole))
    np.testing.assert_array_equal(quick().fit(partly).embedding_, quick().fit(dense).embedding_)


def test_an_array_with_words_is_read_like_a_data_frame() -> None:
    random = np.random.default_rng(0)
    cells = random.normal(size=(40, 3)).astype(object)
    cells[3, 1], cells[:, 2] = None, random.choice(["red", "green"], 40)
    found, expected = (raydr.FedPCA(metrics=()).fit(each) for each in (cells, pd.DataFrame(cells)))
    np.testing.assert_array_equal(found.embedding_, expected.embedding_)
    np.testing.assert_allclose(found.transform(cells[:5]), found.embedding_[:5], atol=1e-12)
    with pytest.raises(ValueError, match="3 features"):
        found.transform(cells[:5, :2])
    texts = np.array([["1.5", "red"], ["2.5", "green"], ["7", "red"]] * 6)
    assert raydr.FedPCA(metrics=()).fit(texts).embedding_.shape == (18, 2)


@pytest.mark.parametrize("kind", ["float64", "float32", "object", "list"])
def test_gaps_of_an_array_are_filled_in_and_change_nothing_else(X: Any, kind: str) -> None:
    """One missing number must not change the scaling."""
    cells = X.astype(np.float64)
    filled = cells.copy()
    filled[3, 1] = np.median(np.delete(cells[:, 1], 3))
    cells[3, 1] = np.nan
    gaps = cells.astype("object" if kind == "list" else kind)
    if gaps.dtype == object:
        gaps[3, 1] = None
    gaps = gaps.tolist() if kind == "list" else gaps
    found, expected = (raydr.FedPCA(metrics=(), n_clients=2).fit(each) for each in (gaps, filled))
    np.testing.assert_allclose(found.embedding_, expected.embedding_, atol=1e-4)
    np.testing.assert_allclose(found.transform(gaps[:5]), found.embedding_[:5], atol=1e-4)
    with pytest.raises(DataError, match="missing"):
        expected.transform(gaps[:5])


# --- scikit-learn -----------------------------------------------------------------------------------------------------


def test_every_method_has_an_estimator_with_its_settings() -> None:
    for name, kind in estimator_names().items():
        estimator, settings = getattr(raydr, name), METHODS[kind].settings
        parameters = signature(estimator).parameters
        assert set(settings.model_fields) - {"kind"} <= set(parameters)
        required = {key for key, field in settings.model_fields.items() if field.is_required()}
        assert {key for key, found in parameters.items() if found.default is found.empty} == required
        assert all(re.search(rf"^{key} : ", estimator.__doc__, re.MULTILINE) for key in parameters)


@pytest.mark.parametrize("name", QUICK)
def test_defaults_are_those_of_the_settings(name: str, X: Any) -> None:
    """The scenario of an estimator has every key, so both can be compared."""
    given = {
        key: QUICK[name][key]
        for key in ("epsilon", "clip", "clusters", "reference_path")
        if key in QUICK[name]
    }
    estimator = getattr(raydr, name)(**given)
    content = estimator._content(estimators.in_memory({"X": X}), 0)
    settings = METHODS[estimator._kind].settings
    assert settings.model_validate(content["method"]) == settings(**given)


def test_parameters_are_stored_unchanged_and_cloned() -> None:
    embedder = {"kind": "umap"}
    estimator = raydr.SENSE(embedder=embedder, privacy={"isometry_key": True})
    assert estimator.embedder is embedder
    assert clone(estimator).get_params() == estimator.get_params()
    assert estimator.set_params(anchors=5).get_params()["anchors"] == 5
    assert repr(raydr.FedTSNE(perplexity=10)) == "FedTSNE(perplexity=10)"
    with pytest.raises(TypeError, match="perplexty"):
        raydr.FedTSNE(perplexty=10)


def test_estimator_works_in_a_pipeline(X: Any) -> None:
    pipeline = make_pipeline(StandardScaler(), quick())
    found = pipeline.fit_transform(X, SICK, fedtsne__sites=HOSPITAL)
    alone = quick().fit(StandardScaler().fit_transform(X), sites=HOSPITAL)
    np.testing.assert_array_equal(found, alone.embedding_)
    np.testing.assert_array_equal(
        pipeline.transform(X[:3]), alone.transform(StandardScaler().fit(X).transform(X[:3]))
    )
    as_frames = clone(pipeline).set_output(transform="pandas").fit(X)
    assert list(as_frames.transform(X[:3]).columns) == ["fedtsne0", "fedtsne1"]


def test_methods_that_cannot_place_rows_have_no_transform() -> None:
    for name in QUICK:
        assert hasattr(quick(name), "transform") == METHODS[estimator_names()[name]].settings.offers(
            "transform"
        )
        assert isinstance(quick(name), FederatedMap)
    with pytest.raises(AttributeError, match=r"LocalNE has no transform.*: each client draws its own map"):
        quick("LocalNE").transform  # noqa: B018


def test_predict_assigns_the_cluster_of_near_rows() -> None:
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1, 2], 30)
    X = rng.normal(size=(90, 5)) + 20.0 * groups[:, None]
    found = quick("FedSpectralClustering", landmarks=None).fit(X)
    new = rng.normal(size=(9, 5)) + 20.0 * np.repeat([0, 1, 2], 3)[:, None]
    wanted = [found.labels_[np.flatnonzero(groups == group)[0]] for group in np.repeat([0, 1, 2], 3)]
    assert found.predict(new).tolist() == wanted
    assert not hasattr(quick("FedTSNE"), "predict")


_PLACES = "transform places rows by the model alone, near where the map has them; fit_transform gives the map"
_NOISE = "every fit draws new noise, which is what its epsilon is for"
_PLACED = {"check_transformer_data_not_an_array": _PLACES, "check_transformer_general": _PLACES}
EXCLUDED: dict[str, dict[str, str]] = {
    "FedTSNE": _PLACED,
    "FedUMAP": _PLACED,
    "FedSpectralClustering": _PLACED,
    "SENSE": _PLACED,
    "PrivateMap": {"check_fit_idempotent": _NOISE},
}
"""Checks of scikit-learn that do not apply, with the reason."""


@cache
def _folder_of_references() -> tempfile.TemporaryDirectory[str]:
    """Return the folder of public rows, which lasts until this process ends."""
    return tempfile.TemporaryDirectory(prefix="raydr-references-")


class DSNEAmongReferences(raydr.DSNE):  # type: ignore[misc]
    """dSNE with public rows as wide as its input: scikit-learn's checks use tables of many widths."""

    def _content(self, table: Any, seed: int) -> dict[str, Any]:
        content = super()._content(table, seed)
        file = Path(_folder_of_references().name) / f"{table.rows.shape[1]}.npy"
        np.save(file, np.random.default_rng(1).normal(size=(12, table.rows.shape[1])))
        content["method"]["reference_path"] = str(file)
        return content


def _checked(name: str) -> Any:
    match name:
        case "DSNE":
            return DSNEAmongReferences(**SHORT, metrics=(), reference_path="of any width")
        case "SENSE":
            return quick("SENSE", anchors=2)  # at most the number of dimensions
    return quick(name)


def _excluded(estimator: Any) -> dict[str, str]:
    return EXCLUDED.get(type(estimator).__name__, {})


ONE_OF_EACH = ("FedPCA", "LocalNE")
"""The quickest of each class of estimators. FedSpectralClustering only adds what makes it a clustering."""


@pytest.fixture
def _maps_have_two_dimensions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore n_components: scikit-learn's checks set it to 1."""
    monkeypatch.setattr(estimators, "OTHER_NAMES", {"n_neighbors": "neighbors"})


@pytest.mark.usefixtures("_maps_have_two_dimensions")
@parametrize_with_checks([_checked(name) for name in ONE_OF_EACH], expected_failed_checks=_excluded)
def test_scikit_learn_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.parametrize("check", [check_clustering, check_clusterer_compute_labels_predict])
def test_scikit_learn_checks_of_clusterings(check: Callable[[str, Any], None]) -> None:
    check("FedSpectralClustering", _checked("FedSpectralClustering"))


@pytest.mark.slow
@pytest.mark.usefixtures("_maps_have_two_dimensions")
@parametrize_with_checks(
    [_checked(name) for name in QUICK if name not in ONE_OF_EACH], expected_failed_checks=_excluded
)
def test_scikit_learn_checks_of_other_estimators(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def test_every_estimator_class_is_checked() -> None:
    assert set(QUICK) == set(estimator_names())
    bases = [type(quick(name)).__mro__[1] for name in QUICK]
    assert {type(quick(name)).__mro__[1] for name in (*ONE_OF_EACH, "FedSpectralClustering")} == set(bases)


# --- the page ---------------------------------------------------------------------------------------------------------


def test_estimators_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (DOCS / "estimators.md").read_text()
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        if "anndata" in block and importlib.util.find_spec("anndata") is None:
            continue
        exec(block, names)
    assert names["exposed"]
    assert capsys.readouterr().out.startswith("site-0")
    assert set(re.findall(r"`(\w+)`", page.partition("## What goes in")[0])) >= set(estimator_names())


# ------------------------------------------------------------------------------------------ names of other packages


def test_names_of_umap_and_scikit_learn_are_taken(X: Any) -> None:
    """A name of another package gives the same bits, also through clone and set_params."""
    ours = quick("FedUMAP", neighbors=7, dimensions=3, min_dist=0.3, random_state=4).fit_transform(X)
    theirs = quick("FedUMAP", n_neighbors=7, n_components=3, min_dist=0.3, random_state=4)
    assert ours.shape == (60, 3)
    assert np.array_equal(clone(theirs).fit_transform(X), ours)
    assert theirs.get_params()["n_neighbors"] == 7
    later = quick("FedUMAP", min_dist=0.3).set_params(n_neighbors=7, n_components=3, random_state=4)
    assert np.array_equal(later.fit_transform(X), ours)
    assert np.array_equal(later.set_params(neighbors=7).fit_transform(X), ours)


def test_two_names_with_different_values_are_refused(X: Any) -> None:
    with pytest.raises(ScenarioError, match="n_neighbors is 7 and neighbors is 9, but they are two names"):
        quick("FedUMAP", n_neighbors=7, neighbors=9).fit(X)


@pytest.mark.parametrize(
    ("name", "given", "nearest"),
    [
        ("FedUMAP", "n_neighbours", r"\(did you mean n_neighbors\?\)"),
        ("FedUMAP", "n_epochs", r"\(did you mean epochs\?\)"),
        ("FedTSNE", "perplexty", r"\(did you mean perplexity\?\)"),
        ("FedTSNE", "seed", r"\(did you mean random_state\?\)"),
        ("FedNE", "n_components", "its maps have two dimensions"),
    ],
)
def test_wrong_names_get_the_nearest_right_one(name: str, given: str, nearest: str) -> None:
    with pytest.raises(TypeError, match=f"{name} has no parameter '{given}'.*{nearest}"):
        getattr(raydr, name)(**{given: 3})
    with pytest.raises(ValueError, match=f"Invalid parameter '{given}'.*{nearest}"):
        getattr(raydr, name)().set_params(**{given: 3})


def test_metric_compares_rows_after_scaling(X: Any) -> None:
    directions = X / np.linalg.norm(X, axis=1, keepdims=True)
    found = quick(metric="cosine").fit(X)
    assert np.array_equal(found.embedding_, quick().fit_transform(directions))
    assert np.array_equal(found.transform(X[:3]), quick().fit(directions).transform(directions[:3]))
    assert np.array_equal(quick(scale="unit").fit_transform(X), found.embedding_)
