"""Utility against leakage: shown points, their names, and when there is no picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sweep_folders import Tried, write_sweep
from tiny import tiny_run

from raydr.report import write_sweep_report
from raydr.report.sweep.frontier import places, protections
from raydr.runfolder import read_sweep
from raydr.runfolder.reading import read_run

PNG = b"\x89PNG"
METHOD = {"kind": "fed-tsne", "early_iterations": 5, "iterations": 5}
AT_HOME = {"kind": "fedne", "rounds": 1, "hidden": [4], "publish": "local"}
PRIVATE = {"kind": "private-map", "epsilon": 2.0, "bounds": [0, 8], "iterations": 5, "early_iterations": 5}


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({}, "no protection"),
        ({"privacy": {"isometry_key": True}}, "isometry key"),
        ({"privacy": {"secure_aggregation": True, "isometry_key": True}}, "isometry key, secure sums"),
        ({"privacy": {"noise": {"on": "gradient", "multiplier": 1.0}}}, "noise on gradient"),
        ({"method": PRIVATE, "privacy": {"secure_aggregation": True, "strict": True}}, "ε = 2"),
        (
            {
                "method": {"kind": "fedne", "rounds": 1, "hidden": [4], "publish": "local"},
                "privacy": {"secure_aggregation": True},
            },
            "secure sums",
        ),
    ],
)
def test_points_are_named_by_their_settings(tmp_path: Path, sections: dict[str, Any], message: str) -> None:
    assert protections(read_run(tiny_run(tmp_path / "run", **sections))) == message


def test_picture_shows_only_audited_runs(tmp_path: Path) -> None:
    folder, trials = tmp_path / "sweep", tmp_path / "sweep" / "trials"
    trials.mkdir(parents=True)
    for number in range(3):
        tiny_run(trials / f"{number}-0", method=METHOD)
    measured = [
        {"federated.ca_10": 0.9, "federated.npa_10": 0.5, "leakage": 1.0},
        {"federated.ca_10": 0.8, "federated.npa_10": 0.4, "leakage": 0.25},
        {"federated.ca_10": 0.7, "federated.npa_10": 0.3, "leakage": None},
    ]
    tried = [
        Tried(number, 0, {"seed": number}, measures, folder=f"trials/{number}-0")
        for number, measures in enumerate(measured)
    ]
    write_sweep(folder, tried)
    found = places(read_sweep(folder))
    assert [(place.leakage, place.utilities) for place in found] == [
        (1.0, {"ca_10": 0.9, "npa_10": 0.5}),
        (0.25, {"ca_10": 0.8, "npa_10": 0.4}),
    ]
    page = write_sweep_report(folder).read_text(encoding="utf-8")
    assert (folder / "frontier.png").read_bytes().startswith(PNG)
    assert "Utility against leakage" in page
    write_sweep(tmp_path / "plain", [Tried(0, 0, {"seed": 0}, {"federated.ca_10": 0.9})])
    plain = write_sweep_report(tmp_path / "plain").read_text(encoding="utf-8")
    assert not (tmp_path / "plain" / "frontier.png").exists()
    assert "Utility against leakage" not in plain
