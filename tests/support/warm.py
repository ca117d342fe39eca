"""Do once what each test process would do for itself at its start: rewrite assertions, and compile inner loops.

Run by ``make test`` while mypy keeps the other core busy.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
import warnings
from pathlib import Path

import pytest
from tiny import tiny

import raydr


def compile_loops() -> None:
    """Make a small map by UMAP and one by t-SNE, with every metric."""
    settings = {
        "fed-umap": {"landmarks": 12, "rounds": 2},
        "fed-tsne": {"landmarks": 12, "rounds": 2, "early_iterations": 5, "iterations": 5},
    }
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind, values in settings.items():
            scenario = {**tiny(), "method": {"kind": kind, **values}}
            del scenario["metrics"]  # all
            raydr.run(scenario, out=Path(folder) / kind)


if __name__ == "__main__":
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main(["--collect-only", "-q", "-n", "0"])  # if this fails, so do the tests, which then say why
    compile_loops()
