"""The released folder of a private run has what epsilon covers and nothing from the evaluation."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tiny import tiny, tiny_run_with_report

import raydr
from raydr.errors import OutputError
from raydr.front.cli import app
from raydr.report import write_released
from raydr.report.run.released_map import released_map
from raydr.runfolder import records


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> raydr.Result:
    """Return a fully private run with all evaluation results."""
    scenario = tiny() | {
        "data": {"source": "iris", "scale": "none"},
        "show": ["petal width (cm)"],
        "method": {
            "kind": "private-map",
            "epsilon": 2.0,
            "clip": 10.0,
            "per": "client",
            "iterations": 10,
            "density": 0.4,
        },
        "privacy": {"strict": True},
        "compare": ["central"],
    }
    return raydr.run(scenario, out=tmp_path_factory.mktemp("private") / "run")


def test_every_file_of_a_run_folder_is_released_or_kept(private: raydr.Result) -> None:
    files = {str(path.relative_to(private.folder)) for path in private.folder.rglob("*") if path.is_file()}
    assert files <= {*records.RELEASED, *records.KEPT}
    assert not set(records.RELEASED) & set(records.KEPT)


def test_released_folder_has_only_covered_files(private: raydr.Result, tmp_path: Path) -> None:
    folder = private.released(tmp_path / "handed-out")
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == {file for file in records.RELEASED if (private.folder / file).exists()} | {
        "released.html"
    }
    for file, fields in records.RELEASED.items():
        if fields is None and (folder / file).exists():
            assert (folder / file).read_bytes() == (private.folder / file).read_bytes()
    data = json.loads((folder / records.DATA).read_text())
    assert set(data) <= set(records.RELEASED[records.DATA] or ())
    for line in (folder / records.ROUNDS).read_text().splitlines():
        assert set(json.loads(line)) <= set(records.RELEASED[records.ROUNDS] or ())


def test_released_page_has_no_place_label_metric_or_row_hash(private: raydr.Result, tmp_path: Path) -> None:
    page = (private.released(tmp_path / "handed-out") / "released.html").read_text()
    full = private.report.read_text()
    secrets = [
        *(entry["sha256"] for entry in json.loads((private.folder / records.FINGERPRINTS).read_text())),
        *(text for value in private.metrics["federated"].values() if len(text := f"{value:.6g}") > 5),
        *set(private.labels),
        *(f"{value:.6g}" for value in np.asarray(private.embedding).ravel()[:20] if abs(value) > 1e-3),
    ]
    assert not [secret for secret in secrets if str(secret) in page]
    assert any(str(label) in full for label in set(private.labels))
    assert f"{private.privacy['epsilon']:.3g}" in page


def test_full_page_warns_against_publishing(private: raydr.Result, tmp_path: Path) -> None:
    assert "Do not publish it" in private.report.read_text()
    bare = tiny_run_with_report(tmp_path / "bare")
    assert "Do not publish it" not in (bare / records.REPORT).read_text()


def test_run_with_new_noise_does_not_claim_to_repeat(private: raydr.Result, tmp_path: Path) -> None:
    assert "repeats the run with new noise" in private.report.read_text()
    assert (
        "repeats the run bit for bit"
        in (tiny_run_with_report(tmp_path / "bare") / records.REPORT).read_text()
    )
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(range(32)))
    secret.chmod(0o600)
    kept = tiny_run_with_report(tmp_path / "kept", privacy={"isometry_key": True, "secret": str(secret)})
    assert "repeats the run bit for bit" in (kept / records.REPORT).read_text()
    lossy = tiny_run_with_report(
        tmp_path / "lossy",
        privacy={"isometry_key": True, "secret": str(secret)},
        runtime={"federation": "inline", "checkpoint_every": 0, "quorum": 0.6},
    )
    assert "repeats the run with new noise" in (lossy / records.REPORT).read_text()
    keyed = tiny_run_with_report(tmp_path / "keyed", privacy={"isometry_key": True})
    assert "repeats the run with new noise" in (keyed / records.REPORT).read_text()


def test_run_without_epsilon_releases_nothing(tmp_path: Path) -> None:
    run = tiny_run_with_report(tmp_path / "bare")
    with pytest.raises(
        OutputError,
        match=r"has no finite epsilon, so no privacy claim covers any part of it: .*without protection",
    ):
        write_released(run)
    assert not (tmp_path / "bare-released").exists()


def test_existing_folder_is_not_overwritten(private: raydr.Result, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(OutputError, match="already exists"):
        private.released(tmp_path / "there")
    assert not list((tmp_path / "there").iterdir())


def test_command_prints_the_page(private: raydr.Result, tmp_path: Path) -> None:
    ran = CliRunner().invoke(
        app,
        ["report", str(private.folder), "--released", "--out", str(tmp_path / "out")],
        catch_exceptions=False,
    )
    assert (ran.exit_code, ran.output.strip()) == (0, str(tmp_path / "out" / "released.html"))


def test_released_page_draws_the_noisy_map(private: raydr.Result, tmp_path: Path) -> None:
    page = (private.released(tmp_path / "handed-out") / "released.html").read_text()
    with np.load(private.folder / records.ARRAYS) as arrays:
        landmarks, squares = len(arrays["counts"]), int((arrays["density"] > 0).sum())
        heaviest = round(float(arrays["density"].max()))
    assert page.count("<circle") == landmarks
    assert "drawn at random from a mixture of" in page
    assert "landmark of about" not in page
    assert page.count("<rect") == squares > 0
    assert f"about {heaviest} records" in page
    assert 'fill-opacity="0.85"' in page


def test_landmarks_lie_in_the_squares_that_count_their_records(tmp_path: Path) -> None:
    """Both follow the map: the second coordinate grows upwards, and pictures count from the top."""
    density = np.zeros((2, 2))
    density[0, 1] = 40.0  # left, above
    np.savez(
        tmp_path / "arrays.npz",
        places=np.array([[0.5, 3.5], [1.8, 0.2]]),
        counts=np.array([40.0, 10.0]),
        density=density,
        density_corners=np.array([[0.0, 0.0], [2.0, 4.0]]),
    )
    drawn = released_map(tmp_path / "arrays.npz")
    assert drawn is not None
    (square,), (heavy, light) = drawn.squares, drawn.circles
    assert square.x < heavy.x < square.x + square.width
    assert square.y < heavy.y < square.y + square.height
    assert light.x > square.x + square.width
    assert light.y > square.y + square.height
    assert heavy.radius == pytest.approx(2.0 * light.radius, abs=0.01)


def test_drawn_landmarks_are_small_circles_without_a_count_of_records(tmp_path: Path) -> None:
    arrays = {"places": np.array([[0.0, 0.0], [1.0, 2.0], [2.0, 1.0]]), "counts": np.full(3, 40.0)}
    found = []
    for name, more in (("cells", {}), ("draws", {"cells": np.array([12])})):
        np.savez(tmp_path / f"{name}.npz", **arrays, **more)  # type: ignore[arg-type]
        found.append(released_map(tmp_path / f"{name}.npz"))
    cells, draws = found
    assert cells is not None
    assert draws is not None
    assert (cells.cells, draws.cells) == (0, 12)
    assert draws.circles[0].radius < cells.circles[0].radius / 3.0
