"""PHATE from a neighbour graph: the package's own kernel and map, reproducibility, no output, and errors."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from embedded import digest, digits, exact_graph, prepared
from places import SUPPORT
from pydantic import ValidationError
from scipy.spatial.distance import pdist

from raydr.arrays import Float64Array
from raydr.embedding import PHATE, principal_components
from raydr.embedding.phate import affinities
from raydr.errors import DataError, ScenarioError

phate = pytest.importorskip("phate", reason="the extra raydr[phate] is not installed")


@pytest.mark.parametrize(("knn", "decay"), [(5, 40.0), (9, 15.0)])
def test_kernel_equals_graphtools(knn: int, decay: float) -> None:
    import graphtools

    reference = graphtools.Graph(digits(300), knn=knn, decay=decay, thresh=1e-4, n_pca=None, verbose=-3).K
    ours = affinities(exact_graph(digits(300), 200), knn, decay)
    # float32 distances against float64, raised to a high power.
    np.testing.assert_allclose(ours.toarray(), reference.toarray(), atol=2e-4)
    np.testing.assert_array_equal(ours.toarray(), ours.toarray().T)
    np.testing.assert_array_equal(ours.diagonal(), 1.0)


@pytest.mark.filterwarnings("ignore:Graph is disconnected")  # by the package, called directly
@pytest.mark.parametrize("width", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_map_equals_phate(width: int) -> None:
    coordinates = digits(250)
    seed = int(np.random.SeedSequence(7).generate_state(1)[0])
    reference = phate.PHATE(n_components=width, n_pca=None, random_state=seed, verbose=-3).fit_transform(
        coordinates
    )
    ours = PHATE().embed(exact_graph(coordinates, 50), principal_components(coordinates, width), seed=7)
    assert ours.shape == (250, width)
    assert np.corrcoef(pdist(ours), pdist(reference))[0, 1] > 0.9999


@pytest.mark.parametrize("landmarks", [2000, 60])
def test_threads_and_progress_change_no_bit(landmarks: int) -> None:
    settings = PHATE(landmarks=landmarks)
    graph, start = prepared(settings, digits(150))
    layouts = [settings.embed(graph, start, seed=3, threads=threads) for threads in (1, 1, 2)]
    done: list[tuple[int, int]] = []
    layouts.append(settings.embed(graph, start, seed=3, progress=lambda *report: done.append(report)))
    assert len({digest(layout) for layout in layouts}) == 1
    assert done == [(0, 1), (1, 1)]
    assert digest(settings.embed(graph, start, seed=2**40)) != digest(layouts[0])


_FRESH_PROCESS = """
import numpy as np
from raydr.embedding import PHATE
from embedded import digits, prepared
coordinates = np.concatenate((digits(60), digits(60) + 1000.0))  # two parts without an edge between them
before = np.random.get_state()[1].copy()
PHATE(landmarks=50).embed(*prepared(PHATE(), coordinates), seed=0)
PHATE(solver="smacof").embed(*prepared(PHATE(), coordinates), seed=0)
assert (before == np.random.get_state()[1]).all()
"""


def test_prints_nothing_and_keeps_the_global_random_state() -> None:
    # In its own process: phate's logger keeps the standard output of its import.
    done = subprocess.run(
        [sys.executable, "-c", _FRESH_PROCESS],
        cwd=SUPPORT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_extra_neighbors_change_nothing() -> None:
    wide, start = exact_graph(digits(150), 60), principal_components(digits(150))
    assert PHATE().neighbors_needed(150) == 50
    assert digest(PHATE().embed(wide, start, seed=0)) == digest(
        PHATE().embed(wide.nearest(50), start, seed=0)
    )


def test_landmarks_keep_the_map() -> None:
    """Compare with the distance of the common initialization."""
    graph, start = prepared(PHATE(), digits(300))
    whole = pdist(PHATE(t=10).embed(graph, start, seed=0))
    by_landmarks = pdist(PHATE(t=10, landmarks=150).embed(graph, start, seed=0))
    unlike = 1 - np.corrcoef([whole, by_landmarks, pdist(start)])[0]
    assert unlike[1] < unlike[2] / 4


@pytest.mark.parametrize("rows", [4, 10])
@pytest.mark.parametrize("width", [2, 3])
def test_few_rows_in_two_and_three_dimensions(rows: int, width: int) -> None:
    coordinates = np.random.default_rng(0).normal(size=(rows, 4))
    graph, _ = prepared(PHATE(), coordinates)
    layout = PHATE().embed(graph, principal_components(coordinates, width), seed=0)
    assert layout.shape == (rows, width)
    assert layout.dtype == np.float64
    assert np.isfinite(layout).all()
    assert len(np.unique(layout, axis=0)) == rows


@pytest.mark.parametrize(
    "coordinates",
    [np.zeros((40, 3)), np.eye(40), np.repeat(np.eye(20), 8, axis=0)],
    ids=["one-point", "equidistant", "duplicates"],
)
def test_rows_without_any_structure_stay_finite(coordinates: Float64Array) -> None:
    graph, start = prepared(PHATE(), coordinates)
    assert np.isfinite(PHATE().embed(graph, start, seed=0)).all()


@pytest.mark.parametrize(
    "settings", [PHATE(solver="smacof"), PHATE(knn=3, decay=10.0, t=5, gamma=0.0), PHATE(gamma=-1.0)]
)
def test_every_setting_reaches_phate(settings: PHATE) -> None:
    graph, start = prepared(PHATE(), digits(150))
    layout = settings.embed(graph, start, seed=0)
    assert np.isfinite(layout).all()
    assert digest(layout) != digest(PHATE().embed(graph, start, seed=0))


# Errors


def test_missing_package_error_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raydr.extras.find_spec", lambda name: None)
    with pytest.raises(ScenarioError, match=r"pip install 'raydr\[phate\]'"):
        PHATE().neighbors_needed(100)


@pytest.mark.parametrize(
    "settings",
    [
        {"knn": 0},
        {"decay": 0.0},
        {"t": 0},
        {"gamma": 2.0},
        {"landmarks": 3},
        {"solver": "exact"},
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=rf"PHATE\n{next(iter(settings))}\n"):
        PHATE(**settings)


def test_too_large_a_knn_and_too_few_rows_are_refused() -> None:
    with pytest.raises(
        ScenarioError, match=r"knn is 10, but each of 10 rows has only 9 others\. The largest knn"
    ):
        PHATE(knn=10).neighbors_needed(10)
    with pytest.raises(DataError, match=r"PHATE cannot embed 3 rows\. Give it at least 4"):
        PHATE().neighbors_needed(3)
