"""Large products are equal on a GPU; without a GPU, torch computes them on the processor."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import raydr
from raydr.device import ArrayDevice, computing_at, computing_on, found, workplace
from raydr.errors import ScenarioError
from raydr.federation.client import HostSecrets
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Points, squared_distances
from raydr.geometry.trilateration import trilaterate
from raydr.methods.landmarks.kernel import cross_term, landmark_term
from raydr.methods.sense.smacof import random_start, smacof
from raydr.privacy.secrets import Secret
from raydr.scenarios.running.client_data import dealt_out
from raydr.scenarios.running.identity import Identity
from raydr.scenarios.schema.reading import read

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=NO_GPU)])
def device(request: pytest.FixtureRequest) -> ArrayDevice:
    """Return torch on the processor, and on a GPU if there is one."""
    return ArrayDevice(request.param)


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-12)])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_gradients_of_the_discrepancy(
    device: ArrayDevice, random: np.random.Generator, dtype: Any, tolerance: float, offset: float
) -> None:
    rows = (random.normal(size=(5000, 20)) + offset).astype(dtype)
    landmarks = random.normal(size=(40, 20)) + offset
    expected = cross_term(rows, landmarks, 0.05)
    of_landmarks = landmark_term(landmarks, 0.05)
    with computing_at(device):
        objective, gradient = cross_term(rows, landmarks, 0.05)
        own_objective, own_gradient = landmark_term(landmarks, 0.05)
    assert gradient.dtype == np.float64
    assert objective == pytest.approx(expected[0], rel=10 * tolerance)
    np.testing.assert_allclose(gradient, expected[1], atol=10 * tolerance * np.abs(expected[1]).max())
    assert own_objective == pytest.approx(of_landmarks[0], rel=1e-12)
    np.testing.assert_allclose(own_gradient, of_landmarks[1], atol=1e-14)


def test_trilateration_from_distances_of_clients(device: ArrayDevice, random: np.random.Generator) -> None:
    rows = random.normal(size=(300, 12)) + 1e3
    landmarks = random.normal(size=(30, 12)) + 1e3
    expected = trilaterate(landmarks, [squared_distances(rows, landmarks)])[0]
    with computing_at(device):
        sent = squared_distances(rows, landmarks)
        coordinates = trilaterate(landmarks, [sent])[0]
    assert isinstance(sent, np.ndarray)
    np.testing.assert_allclose(coordinates, expected, atol=1e-9)


@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_the_neighbour_graph_is_bit_identical(
    device: ArrayDevice, random: np.random.Generator, offset: float
) -> None:
    """The distances that a GPU finds are computed again and certified, as on the processor."""
    rows = random.normal(size=(700, 9)) + offset
    rows[600:] = rows[:100]  # ties
    expected = nearest_neighbors(Points(rows), 12)
    seen: list[tuple[float, int]] = []
    with computing_at(device):
        graph = nearest_neighbors(
            Points(rows), 12, progress=lambda done, total: seen.append((float(done), total))
        )
    np.testing.assert_array_equal(graph.indices, expected.indices)
    np.testing.assert_array_equal(graph.distances, expected.distances)
    assert seen[-1][0] == seen[-1][1]


@pytest.mark.parametrize("inside", [True, False])
def test_smacof_has_the_same_stress(device: ArrayDevice, random: np.random.Generator, inside: bool) -> None:
    rows, anchors = random.normal(size=(200, 6)), random.normal(size=(9, 6))
    squared = squared_distances(rows, anchors)
    start = random_start(anchors, squared, random)
    own = rows if inside else None
    expected = smacof(anchors, squared, start, inside=own, max_iterations=12)
    with computing_at(device):
        placed = smacof(anchors, squared, start, inside=own, max_iterations=12)
    assert isinstance(placed.coordinates, np.ndarray)
    np.testing.assert_allclose(placed.stress, expected.stress, rtol=1e-9)
    np.testing.assert_allclose(placed.coordinates, expected.coordinates, atol=1e-8)


def test_an_array_is_copied_once_and_freed_with_its_original(device: ArrayDevice) -> None:
    rows = np.arange(6.0).reshape(2, 3)
    first = device.kept(rows)
    assert device.kept(rows) is first
    other = np.zeros((2, 3))
    assert device.kept(other) is not first
    np.testing.assert_array_equal(device.fetch(device.kept(other)), other)
    del rows, first
    gc.collect()
    assert len(device._kept) == 1


def test_the_device_is_restored_after_a_block() -> None:
    assert workplace().functions is np
    with computing_at(ArrayDevice("cpu")) as _:
        assert workplace().functions is torch
        with computing_on("cpu"):
            assert workplace().functions is np
    assert workplace().functions is np


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
@pytest.mark.parametrize("federation", ["inline", "ray"])
def test_a_missing_gpu_is_refused_before_a_folder_is_made(
    cluster: None, tmp_path: Path, federation: str
) -> None:
    assert found("auto") == "cpu"
    scenario = {
        "name": "device",
        "data": {"source": "digits", "rows": 60},
        "clients": {"count": 2},
        "method": {"kind": "sense"},
    }
    runtime = {"device": "cuda", "federation": federation}
    with pytest.raises(ScenarioError, match=r"runtime\.device is cuda, but .* no GPU"):
        raydr.run(scenario | {"runtime": runtime}, out=tmp_path / "run")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def runs_on_device(device: ArrayDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let inline runs with device cuda compute on this device."""
    monkeypatch.setattr("raydr.scenarios.running.start.found", lambda name: name)
    monkeypatch.setattr(
        "raydr.scenarios.running.backend.computing_on",
        lambda name: computing_at(device if name == "cuda" else ArrayDevice()),
    )


@pytest.mark.parametrize(
    "method",
    [
        pytest.param({"kind": "fed-umap", "landmarks": 40}, marks=pytest.mark.slow),
        {
            "kind": "sense",
            "solver": "smacof",
            "anchors": 30,
            "iterations": 20,
            "embedder": {"kind": "tsne", "iterations": 100},
        },
        {"kind": "fedne", "rounds": 3},
    ],
    ids=lambda method: method["kind"],
)
def test_a_run_on_the_device_has_the_same_metrics_and_records_it(
    runs_on_device: None, tmp_path: Path, method: dict[str, Any]
) -> None:
    scenario = {
        "name": "device",
        "data": {"source": "digits", "rows": 400},
        "clients": {"count": 4},
        "method": method,
        "metrics": ["npa_10", "trustworthiness"],
    }
    metrics = {}
    for device in ("cpu", "cuda"):
        runtime = {"federation": "inline", "device": device, "batch_clients": method["kind"] == "fedne"}
        result = raydr.run(scenario | {"runtime": runtime}, out=tmp_path / device)
        metrics[device] = result.metrics["federated"]
        environment = json.loads((tmp_path / device / "environment.json").read_text(encoding="utf-8"))
        assert environment["device"] == device
    for metric, value in metrics["cpu"].items():
        assert metrics["cuda"][metric] == pytest.approx(value, abs=0.03)


def test_a_run_on_a_gpu_is_another_study_and_cannot_be_audited(runs_on_device: None, tmp_path: Path) -> None:
    """Noise from a client's secret is never shared with messages of other bits."""
    scenario = {
        "name": "device",
        "data": {"source": "iris"},
        "clients": {"count": 3},
        "method": {"kind": "fed-tsne", "landmarks": 20, "iterations": 50},
    }
    names = {}
    for device in ("cpu", "cuda"):
        folder = tmp_path / device
        raydr.run(scenario | {"runtime": {"federation": "inline", "device": device}}, out=folder)
        names[device] = json.loads((folder / "environment.json").read_text(encoding="utf-8"))["run"]
    assert names["cpu"] != names["cuda"]
    with pytest.raises(ScenarioError, match="computed on a GPU"):
        raydr.audit(tmp_path / "cuda")


def test_a_run_that_began_on_a_gpu_does_not_resume_without_one() -> None:
    asked = {"data": {"source": "iris"}, "clients": {"count": 3}, "method": {"kind": "fed-tsne"}}
    scenario = read({"name": "device", **asked})
    client_data = dealt_out(scenario, None)
    began, now = (Identity.of(scenario, client_data, device) for device in ("cuda", "cpu"))
    with pytest.raises(ScenarioError, match=r"runtime\.device was \"cuda\" and is missing"):
        now.require(began)
    began.require(Identity.of(scenario, client_data, "cuda"))
    assert began.study != now.study, "noise from a client's secret is not shared with messages of other bits"


def test_processes_share_the_gpus_of_a_room_and_auto_uses_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from raydr.actors import backend
    from raydr.actors.resources import Room

    monkeypatch.setattr(backend, "built_for_gpus", lambda: True)
    assert backend._found_in(Room(cores=2), "auto") == "cpu"
    assert backend._found_in(Room(cores=2, gpus=1.0), "cpu") == "cpu"
    assert backend._found_in(Room(cores=2, gpus=1.0), "auto") == "cuda"
    with pytest.raises(ScenarioError, match="Ray finds no GPU in the cluster"):
        backend._found_in(Room(cores=2), "cuda")
    on_gpus = backend.RayBackend(device="cuda")
    share = on_gpus._gpu_share(Room(cores=2, gpus=1.0), 10)
    assert 0 < share * 12 <= 1, "ten actors, the coordinator and the evaluation"
    assert backend.RayBackend()._gpu_share(Room(cores=2, gpus=1.0), 10) == 0


def test_an_actor_computes_on_its_device_once_it_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    from raydr.actors import client
    from raydr.federation import FaultPlan, fingerprint
    from raydr.privacy.policy import SitePolicy

    rows = np.zeros((3, 2))
    monkeypatch.setattr(ray, "get", lambda host_secrets: host_secrets)
    monkeypatch.setattr(
        client,
        "computing_on",
        lambda device: computing_at(ArrayDevice("cpu" if device == "cuda" else "numpy")),
    )
    process = client.ClientProcess()
    process.settle(
        (0,),
        [rows],
        0,
        FaultPlan(),
        "run",
        (HostSecrets({0: Secret.drawn()}), None, ((fingerprint(rows), SitePolicy()),)),
        (),
        "cuda",
    )
    gc.collect()
    try:
        assert workplace().functions is torch
    finally:
        process._computing.close()
    assert workplace().functions is np


def test_no_squared_distance_is_negative(device: ArrayDevice, random: np.random.Generator) -> None:
    """Rounding makes some distances of rows to themselves negative."""
    rows = random.normal(size=(200, 30)).astype(np.float32)
    with computing_at(device):
        found = squared_distances(rows, rows)
        kernel = cross_term(rows, rows.astype(np.float64), 1e6)
    assert found.min() >= 0.0
    assert np.isfinite(kernel[0])
