"""One scenario, one map, to the bit: whatever carries the calls, however clients are packed, run after run."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_bits import bits, bits_of_run, scenario

from raydr.front.api import run

TSNE: dict[str, Any] = {
    "kind": "fed-tsne",
    "landmarks": 40,
    "rounds": 4,
    "early_iterations": 20,
    "iterations": 30,
}
FRAME: dict[str, Any] = {"kind": "fed-tsne", "landmarks": 20, "early_iterations": 20, "iterations": 30}
RANDOM_FRAME: dict[str, Any] = FRAME | {"landmarks_from": "random"}
RELEASE: dict[str, Any] = FRAME | {"share": "embedding", "random_features": 256, "momentum": 0.5, "rounds": 4}
UMAP: dict[str, Any] = {"kind": "fed-umap", "landmarks": 40, "rounds": 4, "epochs": 20}


INLINE = {"federation": "inline"}
METHODS = [
    pytest.param(TSNE, id="fed-tsne"),
    pytest.param(FRAME, id="fed-tsne, principal", marks=pytest.mark.slow),
    pytest.param(RANDOM_FRAME, id="fed-tsne, random", marks=pytest.mark.slow),
    pytest.param(RELEASE, id="fed-tsne, embedding"),
    # compiling takes UMAP many seconds in every process
    pytest.param(UMAP, id="fed-umap", marks=pytest.mark.slow),
]
ON_RAY = [
    pytest.param(RELEASE, id="fed-tsne, embedding"),  # its clients have a state
    *(
        pytest.param(*method.values, id=method.id, marks=pytest.mark.slow)
        for method in METHODS
        if method.id != "fed-tsne, embedding"
    ),
]
Reference = Callable[[dict[str, Any]], dict[str, str]]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """Bits of a method on the inline federation, computed once."""
    folder = tmp_path_factory.mktemp("reference")
    numbers = itertools.count()
    return cache_by_method(lambda method: bits_of_run(folder / str(next(numbers)), method, INLINE))


def cache_by_method(of: Reference) -> Reference:
    known: dict[str, dict[str, str]] = {}

    def cached(method: dict[str, Any]) -> dict[str, str]:
        name = repr(method)
        if name not in known:
            known[name] = of(method)
        return known[name]

    return cached


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("method", ON_RAY)
@pytest.mark.parametrize("actors", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_ray_matches_the_inline_federation(
    reference: Reference, tmp_path: Path, method: dict[str, Any], actors: int
) -> None:
    runtime = {"federation": "ray", "actors": actors}
    assert bits_of_run(tmp_path / "run", method, runtime) == reference(method)


@pytest.mark.parametrize("method", METHODS)
def test_a_seed_repeats_its_bits_and_another_seed_changes_them(
    reference: Reference, tmp_path: Path, method: dict[str, Any]
) -> None:
    assert bits_of_run(tmp_path / "again", method, INLINE) == reference(method)
    other = bits_of_run(tmp_path / "other", method, INLINE, seed=1)
    assert other["embedding.parquet"] != reference(method)["embedding.parquet"]


@pytest.mark.parametrize("threads", [1, 3])
def test_the_bits_do_not_depend_on_the_number_of_threads(
    reference: Reference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr("raydr.methods.outcome.cores", lambda: threads)
    assert bits_of_run(tmp_path / "run", TSNE, INLINE) == reference(TSNE)


@pytest.mark.slow  # test_run_folder.py::test_scenario_of_a_run_folder_repeats_the_run
def test_the_scenario_in_a_run_folder_repeats_the_run(reference: Reference, tmp_path: Path) -> None:
    """The scenario that a run writes, defaults and all, is that run again."""
    first = run(scenario(TSNE, INLINE), out=tmp_path / "first").folder
    again = run(first / "scenario.yaml", out=tmp_path / "again").folder
    assert bits(again) == bits(first) == reference(TSNE)


def test_the_bits_do_not_depend_on_numpys_global_seed(reference: Reference, tmp_path: Path) -> None:
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(12345)  # noqa: NPY002
    try:
        assert bits_of_run(tmp_path / "run", TSNE, INLINE) == reference(TSNE)
    finally:
        np.random.set_state(before)  # noqa: NPY002
