"""Importing raydr and simple commands load no heavy module."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import metadata

import pytest
from places import ROOT

HEAVY = ("ray", "torch", "numba", "matplotlib", "pandas", "sklearn")
ALSO = ("openTSNE", "umap", "pyarrow", "scipy")


SMALL = """
import numpy as np
import raydr
np.save("rows.npy", np.random.default_rng(0).normal(size=(40, 3)))
with open("patients.csv", "w") as file:
    file.write("hospital,age,bmi\\n")
    file.writelines(f"{'ab'[row % 2]},{row * 7 % 40},{row * row % 31}\\n" for row in range(40))
with open("bare.yaml", "w") as file:
    file.write("{name: bare, data: {path: rows.npy}, clients: {count: 2}, method: {kind: fed-pca}, metrics: []}")
"""
COMMANDS = (
    ("--help",),
    ("run", "--help"),
    ("list", "scenarios"),
    ("list", "methods"),
    ("list", "embedders"),
    ("list", "partitions"),
    ("list", "metrics"),
)
PROGRAMS: dict[str, tuple[str, set[str]]] = {
    "import raydr": ("import raydr; dir(raydr)", {"numpy", "pydantic", "yaml", "rich", "click"}),
    "import raydr.front.cli": ("import raydr.front.cli", {"numpy", "pydantic", "yaml", "rich"}),
    **{
        f"import {module}": (f"import {module}", {*HEAVY, *ALSO})
        for module in ("raydr.front.api", "raydr.scenarios.schema.reading", "raydr.methods")
    },
    **{
        f"raydr {' '.join(arguments)}": (
            f"from raydr.front.cli import status; assert status({list(arguments)}) == 0",
            {*HEAVY},
        )
        for arguments in COMMANDS
    },
    "modules of an inline run": (
        "import raydr.scenarios.runner, raydr.report, raydr.front.terminal",
        {*HEAVY},
    ),
    "an estimator": (
        "import raydr; repr(raydr.FedTSNE(perplexity=10))",
        {"ray", "torch", "numba", "matplotlib"},
    ),
    "an inline run": (
        f"{SMALL}assert status(['run', 'bare.yaml', '--inline', '-q']) == 0",
        {"ray", "torch"},
    ),
    "an inline map": (
        "assert status(['map', 'patients.csv', '--method', 'fed-pca', '--inline', '-q']) == 0",
        {"ray", "torch"},
    ),
    "a fitted estimator": (
        "pca = raydr.FedPCA(metrics=()).fit(np.load('rows.npy')); assert pca.report_.is_file()",
        {"ray", "torch"},
    ),
}
"""Programs in an order that loads more and more, and the modules that must not be loaded after each."""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Run all programs in one fresh interpreter; return the top-level modules that it has loaded after each."""
    show = "print('loaded:', *{name.partition('.')[0] for name in sys.modules})"
    lines = [f"{program}\n{show}" for program, _ in PROGRAMS.values()]
    finished = subprocess.run(
        [sys.executable, "-c", "\n".join(["import sys", *lines])],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path_factory.mktemp("loaded"),
    )
    assert finished.returncode == 0, finished.stderr
    shown = [line for line in finished.stdout.splitlines() if line.startswith("loaded: ")]
    return {name: set(line.split()) for name, line in zip(PROGRAMS, shown, strict=True)}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_loads_no_heavy_module(name: str, loaded: dict[str, set[str]]) -> None:
    assert not loaded[name] & PROGRAMS[name][1]


def test_signal_handlers_are_set_before_slow_modules_are_loaded() -> None:
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


def test_an_evaluation_loads_scikit_learn_without_pandas() -> None:
    load = "from raydr.scenarios.running.evaluation import load_libraries; load_libraries()"
    finished = subprocess.run(
        [sys.executable, "-c", f"import sys; {load}; print(*sys.modules); import pandas; load_libraries()"],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(finished.stdout.split())
    assert {"sklearn.cluster", "sklearn.neighbors", "numba"} <= loaded
    assert not loaded & {"pandas", "pyarrow", "ray", "torch"}


def test_raydr_runs_without_the_packages_of_its_tests() -> None:
    only_tests = {"hdbscan", "hypothesis", "polars", "pytest", "zadu"}
    rooms = ("raydr", "actors", "scenarios", "tune")
    for path in [path for room in rooms for path in (ROOT / room).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            named += [each.name for each in node.names] if isinstance(node, ast.Import) else []
            assert not only_tests & {name.partition(".")[0] for name in named}, path


def test_the_package_has_its_public_names() -> None:
    import raydr

    assert raydr.run.__module__ == "raydr.front.api"
    assert raydr.Result.__module__ == raydr.load.__module__ == "raydr.front.result"
    assert raydr.__version__ == metadata.version("raydr")
    with pytest.raises(AttributeError, match="no attribute 'rnu'"):
        _ = raydr.rnu
    with pytest.raises(AttributeError, match="no attribute 'FedTNSE'"):
        _ = raydr.FedTNSE
    assert all(hasattr(raydr, name) for name in raydr.__all__)
