"""One scenario, one map, to the bit: whatever carries the calls, however clients are packed, run after run."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raydr.api import run

TSNE = {"kind": "fed-tsne", "landmarks": 40, "rounds": 4, "early_iterations": 20, "iterations": 30}
UMAP = {"kind": "fed-umap", "landmarks": 40, "rounds": 4, "epochs": 20}


def scenario(method: dict[str, Any], runtime: dict[str, Any], *, seed: int = 0) -> dict[str, Any]:
    return {
        "name": "bits",
        "seed": seed,
        "data": {"source": "digits", "rows": 300},
        "clients": {"count": 10, "partition": {"kind": "dirichlet", "alpha": 0.3, "min_rows": 0}},
        "method": method,
        "runtime": runtime,
        "metrics": ["npa_10"],
    }


def bits(folder: Path) -> dict[str, str]:
    """Hashes of what a run computed: the map, its score, its messages, its model."""
    files = ["embedding.parquet", "metrics.json", "ledger.json", *sorted((folder / "model").iterdir())]
    return {Path(file).name: hashlib.sha256((folder / file).read_bytes()).hexdigest() for file in files}


def bits_of_run(out: Path, method: dict[str, Any], runtime: dict[str, Any], **options: Any) -> dict[str, str]:
    return bits(run(scenario(method, runtime, **options), out=out).folder)


INLINE = {"federation": "inline"}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """The inline federation's bits, of each method once."""
    folder = tmp_path_factory.mktemp("reference")
    return {
        method["kind"]: bits_of_run(folder / method["kind"], method, INLINE)
        for method in (TSNE, UMAP)
    }


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("actors", [1, 2, 10])
def test_ray_gives_the_bits_of_the_inline_federation(
    reference: dict[str, dict[str, str]], tmp_path: Path, actors: int
) -> None:
    found = bits_of_run(tmp_path / "run", TSNE, {"federation": "ray", "actors": actors})
    assert found == reference["fed-tsne"]


@pytest.mark.usefixtures("cluster")
def test_ray_gives_the_bits_of_the_inline_federation_for_umap(
    reference: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    found = bits_of_run(tmp_path / "run", UMAP, {"federation": "ray", "actors": 2})
    assert found == reference["fed-umap"]


def test_two_runs_of_a_seed_have_the_same_bits_and_another_seed_has_others(
    reference: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    for method in (TSNE, UMAP):
        assert bits_of_run(tmp_path / method["kind"] / "again", method, INLINE) == reference[method["kind"]]
        other = bits_of_run(tmp_path / method["kind"] / "other", method, INLINE, seed=1)
        assert other["embedding.parquet"] != reference[method["kind"]]["embedding.parquet"]


@pytest.mark.parametrize("threads", [1, 3])
def test_the_number_of_threads_changes_no_bit(
    reference: dict[str, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr("raydr.methods.outcome.cores", lambda: threads)
    assert bits_of_run(tmp_path / "run", TSNE, INLINE) == reference["fed-tsne"]


def test_a_run_folder_repeats_its_run(reference: dict[str, dict[str, str]], tmp_path: Path) -> None:
    """The scenario that a run writes, defaults and all, is that run again."""
    first = run(scenario(TSNE, INLINE), out=tmp_path / "first").folder
    again = run(first / "scenario.yaml", out=tmp_path / "again").folder
    assert bits(again) == bits(first) == reference["fed-tsne"]


def test_numpys_global_seed_changes_nothing(
    reference: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(12345)  # noqa: NPY002
    try:
        assert bits_of_run(tmp_path / "run", TSNE, INLINE) == reference["fed-tsne"]
    finally:
        np.random.set_state(before)  # noqa: NPY002
