"""The catalogue: built-in tables match their description, and absent ones have an explanation."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.datasets

from raydr.data import DATASETS, Dataset, fetching, load
from raydr.data.german_credit import CATEGORIES
from raydr.errors import DataError

BUNDLED = [dataset for dataset in DATASETS.values() if dataset.origin == "bundled"]
OTHERS = [dataset for dataset in DATASETS.values() if dataset.origin != "bundled"]


def named(dataset: Dataset) -> str:
    return dataset.name


@pytest.fixture
def no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RAYDR_DATA", raising=False)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "cache"))


@pytest.mark.parametrize("dataset", BUNDLED, ids=named)
def test_bundled_tables_equal_scikit_learns(dataset: Dataset) -> None:
    bunch = getattr(sklearn.datasets, f"load_{dataset.name}")()
    table = load(source=dataset.name)
    np.testing.assert_array_equal(table.rows, bunch.data)
    np.testing.assert_array_equal(table.labels, bunch.target)
    assert table.label_names == tuple(str(name) for name in bunch.target_names)
    assert table.features == tuple(bunch.feature_names)
    assert table.rows.shape == (dataset.rows, dataset.features)
    assert len(table.label_names) == dataset.classes


@pytest.mark.parametrize("dataset", OTHERS, ids=named)
def test_folder_tables_are_what_the_catalogue_says(dataset: Dataset, data_dir: Path) -> None:
    path = data_dir / f"{dataset.file or dataset.name}.npz"
    if not path.is_file():
        pytest.skip(f"RAYDR_DATA has no {path.name}")
    table = load(source=dataset.name)
    assert table.rows.shape == (dataset.rows, dataset.features)
    assert table.rows.dtype == np.float32
    assert table.labels is not None
    assert len(np.unique(table.labels)) == len(table.label_names) == dataset.classes
    with np.load(path, allow_pickle=False) as archive:
        np.testing.assert_array_equal(table.labels, archive["y"])
        if not dataset.file:
            np.testing.assert_array_equal(table.rows[::97], archive["X"][::97])
    for key in dataset.client_keys:
        assert load(source=dataset.name, client=key).client_keys is not None


def test_attributes_of_german_credit_have_the_columns_that_they_are_made_from(data_dir: Path) -> None:
    """Numbers are equal, and one-hot columns of the places give the columns of the file back."""
    with np.load(data_dir / "german_credit.npz", allow_pickle=False) as archive:
        columns, names = archive["X_onehot"], archive["onehot_names"].tolist()
    table = load(source="german_credit_20").rows
    at = 0
    for number, (feature, categories) in enumerate(zip(table.T, CATEGORIES, strict=True), start=1):
        own = columns[:, at : at + categories]
        assert all(code.startswith(f"A{number}") for code in names[at : at + categories])
        if categories == 1:
            np.testing.assert_array_equal(feature, own[:, 0])
        else:
            np.testing.assert_array_equal(np.eye(categories)[feature.astype(int)], own)
        at += categories
    assert at == columns.shape[1]


def test_airports_have_their_degree_and_a_constant(data_dir: Path) -> None:
    """As HGCN counts: ones of a row of the adjacency matrix."""
    with np.load(data_dir / "airport.npz", allow_pickle=False) as archive:
        own, edges = archive["X"], archive["edges"]
    adjacency = np.zeros((len(own), len(own)))
    adjacency[edges[:, 0], edges[:, 1]] = adjacency[edges[:, 1], edges[:, 0]] = 1.0
    table = load(source="airport_11")
    np.testing.assert_array_equal(table.rows[:, :4], own)
    np.testing.assert_array_equal(table.rows[:, 4:10].sum(axis=1), 1.0)
    np.testing.assert_array_equal(
        table.rows[:, 4:10].argmax(axis=1), np.minimum(adjacency.sum(axis=1), 5).astype(int)
    )
    np.testing.assert_array_equal(table.rows[:, 10], 1.0)
    assert table.features[4:] == (*(f"degree_{count}" for count in range(5)), "degree_from_5", "constant")


@pytest.mark.usefixtures("data_dir")
def test_natural_client_key_of_the_mice() -> None:
    table = load(source="mice_protein", client="mouse")
    assert table.client_keys is not None
    assert len(table.client_names) == 72
    np.testing.assert_array_equal(np.bincount(table.client_keys), np.full(72, 15))


def test_entries_are_found_by_their_names_and_described() -> None:
    for name, dataset in DATASETS.items():
        assert dataset.name == name
        assert dataset.description
        assert dataset.licence
        assert dataset.published.startswith("https://")


def test_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(DataError, match=r"did you mean digits.*data\.path"):
        load(source="digit")


@pytest.mark.usefixtures("no_folder")
def test_absent_dataset_says_where_and_how() -> None:
    with pytest.raises(DataError) as caught:
        load(source="mice_protein")
    for part in (
        "archive.ics.uci.edu",
        "mice_protein.npz",
        "(1080, 77)",
        "mouse (1080,)",
        "--data-dir",
        "RAYDR_DATA",
    ):
        assert part in str(caught.value)


@pytest.mark.usefixtures("no_folder")
def test_data_folder_by_argument_and_by_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    matrix = np.random.default_rng(0).random((210, 7)).astype(np.float32)
    np.savez(tmp_path / "seeds.npz", X=matrix, y=np.arange(210) % 3)
    np.testing.assert_array_equal(load(source="seeds", data_dir=tmp_path).rows, matrix)
    monkeypatch.setenv("RAYDR_DATA", str(tmp_path))
    table = load(source="seeds", features=["x3"])
    np.testing.assert_array_equal(table.rows, matrix[:, 3:4])
    assert table.name == "seeds"


@pytest.mark.usefixtures("no_folder")
def test_folder_that_is_absent_or_holds_other_data(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        load(source="seeds", data_dir=tmp_path / "nowhere")
    np.savez(tmp_path / "seeds.npz", X=np.eye(7), y=np.arange(7))
    with pytest.raises(DataError, match="is not the built-in seeds"):
        load(source="seeds", data_dir=tmp_path)


@pytest.mark.usefixtures("no_folder")
@pytest.mark.parametrize(
    "fault", [urllib.error.URLError("no route"), TimeoutError("slow"), ValueError("md5")]
)
def test_offline_names_both_remedies(monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    def offline(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", offline)
    with pytest.raises(DataError) as caught:
        load(source="mnist")
    for part in ("network", "mnist.npz", "--data-dir", "RAYDR_DATA", "openml.org"):
        assert part in str(caught.value)


@pytest.mark.usefixtures("no_folder")
def test_public_source_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fetched(name: str, **_: Any) -> tuple[np.ndarray, np.ndarray]:
        calls.append(name)
        pixels = np.zeros((70_000, 784), dtype=np.uint8)
        pixels[:, 0] = np.arange(70_000) % 256
        return pixels, np.array([str(row % 10) for row in range(70_000)], dtype=object)

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetched)
    first, again = (load(source="fashion_mnist", rows=500) for _ in range(2))
    assert calls == ["Fashion-MNIST"]
    np.testing.assert_array_equal(first.rows, again.rows)
    np.testing.assert_array_equal(first.rows[:, 0], first.ids % 256)
    assert first.label_names[9] == "Ankle boot"
    np.testing.assert_array_equal(first.labels, first.ids % 10)
    split = load(source="fashion_mnist", marks="split")
    assert (split.mark_names, calls) == (("0", "1"), ["Fashion-MNIST"])
    np.testing.assert_array_equal(split.marks, split.ids >= 60_000)


def medmnist(rows: tuple[int, int, int]) -> dict[str, np.ndarray]:
    """Write an archive like MedMNIST's, in colour, in which every pixel encodes split and row."""
    archive = {}
    for number, (split, count) in enumerate(zip(("train", "test", "val"), rows, strict=True)):
        images = np.zeros((count, 28, 28, 3), dtype=np.uint8)
        images[:, 1, 2, 0], images[:, 0, 0, 2] = np.arange(count) % 200, number
        archive[f"{split}_images"] = images
        archive[f"{split}_labels"] = (np.arange(count) % 5)[:, None].astype(np.uint8)
    return archive


@pytest.mark.usefixtures("no_folder")
def test_an_archive_of_medmnist_is_rows_with_their_split(monkeypatch: pytest.MonkeyPatch) -> None:
    file, asked = io.BytesIO(), []
    np.savez_compressed(file, **medmnist((1080, 400, 120)))
    content = file.getvalue()

    def urlopen(url: str, timeout: float) -> io.BytesIO:
        asked.append(url)
        return io.BytesIO(content)

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    with pytest.raises(DataError, match=r"retinamnist could not be downloaded .* but expected") as caught:
        load(source="retinamnist")
    assert "--data-dir" in str(caught.value)
    monkeypatch.setitem(fetching._MEDMNIST, "retinamnist", hashlib.md5(content).hexdigest())
    table = load(source="retinamnist", marks="split")
    assert table.rows.shape == (1600, 2352)
    np.testing.assert_array_equal(np.bincount(table.marks), [1080, 400, 120])
    np.testing.assert_array_equal(table.rows[:, 2], table.marks)
    within = np.concatenate([np.arange(count) for count in (1080, 400, 120)])
    np.testing.assert_array_equal(table.rows[:, (28 + 2) * 3], within % 200)
    np.testing.assert_array_equal(table.labels, within % 5)
    load(source="retinamnist")
    assert len(asked) == 2, "what came as it should is kept"
    assert asked[0].endswith("/retinamnist.npz?download=1")


def test_import_is_light() -> None:
    heavy = "{'sklearn', 'pyarrow', 'pandas', 'ray', 'numba', 'scipy', 'matplotlib'}"
    code = f"import sys, raydr.data, raydr.partition; print({heavy} & set(sys.modules) or '')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
