"""What is light stays light: checked in fresh interpreters, by what they loaded and not by how long it took."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from places import ROOT

HEAVY = ("ray", "torch", "numba", "matplotlib", "pandas", "sklearn")
ALSO = ("openTSNE", "umap", "pyarrow", "scipy")


def loaded(program: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded at the end of a program."""
    shown = (
        f"{program}\nimport sys; print('|'.join(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    )
    finished = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    return set(finished.stdout.splitlines()[-1].split("|"))


@pytest.mark.parametrize(
    "module",
    ["raydr", "raydr.front.cli", "raydr.front.api", "raydr.scenarios.schema.reading", "raydr.methods"],
)
def test_importing_it_loads_nothing_heavy(module: str) -> None:
    assert not loaded(f"import {module}") & {*HEAVY, *ALSO}


def test_importing_raydr_does_not_even_load_numpy() -> None:
    assert not loaded("import raydr; dir(raydr)") & {"numpy", "pydantic", "yaml", "rich", "click"}
    assert not loaded("import raydr.front.cli") & {"numpy", "pydantic", "yaml", "rich"}


def test_signals_are_seen_to_before_anything_that_takes_time_is_loaded() -> None:
    before = "import sys; before = set(sys.modules); "
    counted = "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    finished = subprocess.run(
        [
            sys.executable,
            "-S",
            "-c",
            f"{before}sys.path.insert(0, {str(ROOT)!r}); import raydr.__main__; {counted}",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not set(finished.stdout.split()) & {"email", "zipfile", "inspect", "pathlib", "csv", "tempfile"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["run", "--help"],
        ["list", "scenarios"],
        ["list", "methods"],
        ["list", "embedders"],
        ["list", "partitions"],
        ["list", "metrics"],
    ],
)
def test_commands_that_compute_nothing_load_nothing_heavy(arguments: list[str]) -> None:
    assert not loaded(f"from raydr.front.cli import status; assert status({arguments!r}) == 0") & {*HEAVY}


def test_an_inline_run_does_not_load_ray() -> None:
    program = "import raydr.scenarios.runner, raydr.report, raydr.front.terminal"
    assert not loaded(program) & {"ray", "torch", "pandas"}


SMALL = """
import numpy as np
import raydr
from raydr.front.cli import status
np.save("rows.npy", np.random.default_rng(0).normal(size=(40, 3)))
with open("patients.csv", "w") as file:
    file.write("hospital,age,bmi\\n")
    file.writelines(f"{'ab'[row % 2]},{row * 7 % 40},{row * row % 31}\\n" for row in range(40))
with open("bare.yaml", "w") as file:
    file.write("{name: bare, data: {path: rows.npy}, clients: {count: 2}, method: {kind: fed-pca}, metrics: []}")
"""


@pytest.mark.parametrize(
    "program",
    [
        "assert status(['run', 'bare.yaml', '--inline', '-q']) == 0",
        "assert status(['map', 'patients.csv', '--method', 'fed-pca', '--inline', '-q']) == 0",
        "pca = raydr.FedPCA(metrics=()).fit(np.load('rows.npy'))\nassert pca.report_.is_file()",
    ],
)
def test_a_small_map_needs_no_ray(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not loaded(SMALL + program) & {"ray", "torch"}


def test_an_estimator_that_is_not_fitted_loads_no_more_than_scikit_learn_and_the_methods() -> None:
    seen = loaded("import raydr; repr(raydr.FedTSNE(perplexity=10))")
    assert not seen & {"ray", "torch", "numba", "matplotlib"}


def test_the_package_offers_what_it_says() -> None:
    import raydr

    assert raydr.run.__module__ == "raydr.front.api"
    assert raydr.Result.__module__ == raydr.load.__module__ == "raydr.front.result"
    assert raydr.__version__ == metadata.version("raydr")
    with pytest.raises(AttributeError, match="no attribute 'rnu'"):
        _ = raydr.rnu
    with pytest.raises(AttributeError, match="no attribute 'FedTNSE'"):
        _ = raydr.FedTNSE
    assert all(hasattr(raydr, name) for name in raydr.__all__)
