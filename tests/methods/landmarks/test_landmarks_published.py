"""``preset: published`` of Fed-tSNE, Fed-UMAP and Fed-SpeClust against P1's description, line by line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inline_federations import federate
from tiny import tiny_run, tiny_scenario

from raydr.errors import ScenarioError
from raydr.methods.landmarks.learning import learn_landmarks
from raydr.methods.landmarks.maps import FedTSNE, FedUMAP
from raydr.methods.landmarks.settings import PUBLISHED
from raydr.methods.landmarks.spectral import FedSpectral
from raydr.robust import Mean

DESCRIBED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("3.1 (8)", "omega_1 = ... = omega_P = 1 / P", {"weights": "clients", "aggregation": Mean()}),
    ("3.3, step 2", "clients compute the gradient at the server's Y", {"share": "gradient", "local_steps": 1}),
    ("3.3 (16)", "the server moves against the mean gradient, without momentum", {"momentum": 0.0}),
    ("4.1, algorithm 2", "Y is learnt by algorithm 1; sampled rows are prohibitive", {"landmarks_from": "learnt"}),
    ("4.1 (22)", "distances are B W^-1 B^T, W = D_YY", {"estimator": "nystrom", "rank": None}),
    ("4.1 (22)", "lambda I only in the case that W is singular", {"ridge": 0.0}),
    ("4.2, algorithm 3", "spectral clustering of the whole kernel C W^-1 C^T", {"affinity": "rbf"}),
    ("A, figure 5", "final results after 500 epochs", {"rounds": 500}),
)  # fmt: skip
"""Place in P1, its statement in other words, and the statement in settings."""
METHODS = {
    "fed-tsne": FedTSNE(preset="published"),
    "fed-umap": FedUMAP(preset="published"),
    "fed-spectral": FedSpectral(preset="published", clusters=3),
}


@pytest.mark.parametrize("kind", METHODS)
@pytest.mark.parametrize(("place", "statement", "meant"), DESCRIBED, ids=[line[1] for line in DESCRIBED])
def test_each_line_of_the_papers_description_is_a_setting(
    kind: str, place: str, statement: str, meant: dict[str, Any]
) -> None:
    settings = METHODS[kind]
    for key, value in meant.items():
        if key in type(settings).model_fields:
            assert getattr(settings, key) == value, (place, statement)


def test_preset_sets_exactly_what_the_paper_describes() -> None:
    described = {key: value for _, _, meant in DESCRIBED for key, value in meant.items()}
    assert described == dict(PUBLISHED)
    lacking = {
        kind: PUBLISHED.keys() - type(settings).model_fields.keys() for kind, settings in METHODS.items()
    }
    assert lacking == {"fed-tsne": {"affinity"}, "fed-umap": {"affinity"}, "fed-spectral": set()}


def test_explicit_settings_override_the_preset() -> None:
    assert FedTSNE(preset=None) == FedTSNE()
    given = FedUMAP(preset="published", rounds=7, estimator="trilateration")
    assert given == METHODS["fed-umap"].model_copy(update={"rounds": 7, "estimator": "trilateration"})
    scenario = tiny_scenario(method={"kind": "fed-tsne", "preset": "published"}, method__rounds=3)
    assert scenario.method == METHODS["fed-tsne"].model_copy(update={"rounds": 3})


@pytest.mark.parametrize("kind", ["fed-tsne", "fed-spectral"])
def test_a_run_by_the_preset_equals_one_with_the_values_written_out(kind: str, tmp_path: Path) -> None:
    own = {"clusters": 3} if kind == "fed-spectral" else {}
    written = {
        "landmarks_from": "learnt", "share": "gradient", "estimator": "nystrom", "rounds": 4, **own,
    }  # fmt: skip
    one = tiny_run(tmp_path / "preset", method={"kind": kind, "preset": "published", "rounds": 4, **own})
    other = tiny_run(tmp_path / "written", method={"kind": kind, **written})
    assert (one / "embedding.parquet").read_bytes() == (other / "embedding.parquet").read_bytes()
    usual = tiny_run(tmp_path / "usual", method={"kind": kind, **own})
    assert (usual / "embedding.parquet").read_bytes() != (one / "embedding.parquet").read_bytes()


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(ScenarioError, match="preset"):
        tiny_scenario(method={"kind": "fed-tsne", "preset": "paper"})


@pytest.mark.parametrize("estimator", ["trilateration", "nystrom", "nystrom-squared"])
def test_landmarks_of_nystrom_estimates_take_four_times_the_step(estimator: Any) -> None:
    """n_y / (2 gamma), as they must cover the rows; trilateration needs n_y / (8 gamma)."""
    rows = np.random.default_rng(0).standard_normal((40, 3))
    usual = FedTSNE(rounds=2, landmarks=6, gamma=0.25, estimator=estimator)
    factor = 8.0 if estimator == "trilateration" else 2.0
    stated = usual.model_copy(update={"step": 6 / (factor * 0.25)})
    points = [learn_landmarks(federate([rows[:20], rows[20:]]), given).points for given in (usual, stated)]
    assert np.array_equal(*points)
