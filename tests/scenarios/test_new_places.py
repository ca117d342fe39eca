"""Placing new rows: each place depends on its row alone, and the model stores no mapped row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from placed import CASES, folder_of, irises
from scipy.spatial.distance import cdist

import raydr
from raydr.arrays import FloatArray
from raydr.methods import METHODS
from raydr.runfolder.model import KEYED, read_model
from raydr.scenarios.afterwards.transforming import place
from raydr.statistics.scaling import Scaling, scale_rows

LOOSE = {"fed-tsne, nystrom", "private-map", "dsne", "sense, noisy distances", "fed-tsne, noisy"}
"""Methods with rough places: noise, a non-metric estimate, or few reference rows."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_method_that_places_rows_is_tested() -> None:
    able = {name for name, method in METHODS.items() if method.settings.offers("transform")}
    assert able - {"central"} == {str(case["method"]["kind"]) for case in CASES.values()}


def test_place_of_a_row_does_not_depend_on_other_rows(case: str, root: Path) -> None:
    """Bits are the same alone, in a batch of 7, and in reverse order."""
    folder, table = folder_of(case, root), irises()
    places = place(folder, table).places
    backwards = np.arange(len(table.rows))[::-1]
    np.testing.assert_array_equal(place(folder, table.take(backwards)).places, places[backwards])
    for rows in ([140], list(range(7)), [3, 149, 60]):
        np.testing.assert_array_equal(place(folder, table.take(np.array(rows))).places, places[rows])


def test_mapped_row_is_placed_near_its_point(case: str, root: Path) -> None:
    folder = folder_of(case, root)
    mapped = raydr.Result(folder)
    ids = mapped.to_frame("pyarrow")["row"].to_numpy()
    places = place(folder, irises().take(ids)).places
    far = cdist(places, mapped.embedding)
    nearer = (far < np.diagonal(far)[:, None]).mean(axis=1)  # rows of the map nearer to it than its own place
    assert np.median(nearer) < (0.25 if case in LOOSE else 0.1)


def test_model_stores_no_mapped_row(case: str, root: Path) -> None:
    """References are means of at least five rows, or public rows; this includes scaled rows."""
    folder = folder_of(case, root)
    model = read_model(folder)
    ids = raydr.Result(folder).to_frame("pyarrow")["row"].to_numpy()
    rows = irises().take(ids).rows
    scaled = rows if KEYED in model.arrays else scale_rows(rows, Scaling.of(model.arrays))
    for name, values in model.arrays.items():
        if values.ndim == 2 and values.shape[1] == rows.shape[1]:
            assert not equal_rows(values, np.concatenate([rows, scaled])), name


def equal_rows(some: FloatArray, others: FloatArray) -> bool:
    """Return whether two sets share a row, in float32."""
    return bool((cdist(some.astype(np.float64), others.astype(np.float64)) < 1e-6).any())
