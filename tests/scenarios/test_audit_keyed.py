"""The audit of runs under an isometry key: the key stops trilateration, but not attacks with similar rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast import fast_only
from tiny import tiny_run_with_report, tiny_scenario

import raydr
from raydr.arrays import Float64Array
from raydr.attacks import Side, View
from raydr.attacks.point_cloud import cloud
from raydr.attacks.trilateration import trilateration
from raydr.errors import ScenarioError
from raydr.geometry.points import squared_distances
from raydr.journal import unheard
from raydr.report.run.audited import enough_public_rows
from raydr.report.run.privacy_summary import points
from raydr.runfolder import read_audit, read_run
from raydr.runfolder.records import REPORT
from raydr.scenarios.afterwards.repetition import repeated
from raydr.scenarios.planning.plan import plan_of_scenario

DRAWN: dict[str, Any] = {"early_iterations": 5, "iterations": 5}
METHODS: dict[str, dict[str, Any]] = {
    # Enough points to determine every record of a run without a key.
    "sense": {"kind": "sense", "anchors": 66, "embedder": {"kind": "tsne", **DRAWN}},
    "fed-tsne": {"kind": "fed-tsne", "landmarks": 70, "rounds": 2, **DRAWN},
}
ATTACKED = ["trilateration", "distribution-alignment", "known-sample", "distance-geometry"]


def run_of(folder: Path, kind: str, **sections: Any) -> Path:
    data = {"source": "digits", "rows": 700}
    return tiny_run_with_report(folder, data=data, method=METHODS[kind], clients__count=3, **sections)


@pytest.fixture(scope="module", params=fast_only(lambda kind: kind == "fed-tsne", METHODS))
def keyed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an audited, keyed run of a method."""
    folder = tmp_path_factory.mktemp("keyed") / request.param
    return run_of(folder, request.param, privacy__isometry_key=True, audit={"attacks": ATTACKED})


def found_in(folder: Path) -> dict[str, list[dict[str, Any]]]:
    by_attack: dict[str, list[dict[str, Any]]] = {}
    for verdict in json.loads((folder / "audit.json").read_text())["verdicts"]:
        assert not verdict["why"], verdict
        by_attack.setdefault(verdict["attack"], []).append(verdict)
    return by_attack


def median(verdict: dict[str, Any], of: str = "centred") -> float:
    return float(verdict["errors"][of]["median"])


def test_trilateration_under_a_key_is_worse_than_guessing(keyed: Path) -> None:
    (verdict,) = found_in(keyed)["trilateration"]
    assert median(verdict) >= median(verdict, "centred_guess")
    assert verdict["errors"]["exact"] == 0.0
    assert verdict["certificate"] is None
    assert "under a key" in verdict["knows"]


def test_every_attack_is_compared_with_the_mean_of_public_rows(keyed: Path) -> None:
    """The mean of rotated anchors would be a worse guess and make attacks look better."""
    for name in ("trilateration", "known-sample", "distance-geometry"):
        for verdict in found_in(keyed)[name]:
            assert median(verdict, "centred_guess") == pytest.approx(1.0, abs=0.02)


def test_similar_rows_recover_the_rotation(keyed: Path) -> None:
    tried = found_in(keyed)["distribution-alignment"]
    assert len(tried) > 2
    assert median(tried[-1]) < 0.5 * median(tried[-1], "centred_guess")
    assert median(tried[0]) > 0.9 * median(tried[0], "centred_guess")  # 30 rows of 64 features are too few
    found = read_audit(keyed)
    assert found is not None
    message = enough_public_rows(found)
    assert "similar rows to undo a secret frame" in message
    assert message in " ".join((keyed / REPORT).read_text().split())
    (key,) = [point for point in points(read_run(keyed)) if point.title == "Isometry key"]
    assert message in key.text


def test_d_plus_one_known_records_recover_the_key(keyed: Path) -> None:
    *_, verdict = found_in(keyed)["known-sample"]
    assert verdict["numbers"]["known_records"] == 65
    # Pixels that are 0 in all anchors are outside their span, where a record's place is unknown.
    assert median(verdict) < 0.1 * median(verdict, "centred_guess")
    if keyed.name == "fed-tsne":
        assert verdict["errors"]["exact"] > 0.9


def test_geometry_of_hidden_points_is_recovered_without_the_key(keyed: Path) -> None:
    by_known = [one for one in found_in(keyed)["distance-geometry"] if "known_records" in one["numbers"]]
    assert median(by_known[-1]) < 0.7 * median(by_known[-1], "centred_guess")


def test_key_does_not_change_neighbours(keyed: Path, tmp_path: Path) -> None:
    plain = run_of(tmp_path / "plain", keyed.name)
    apart, hidden = (distances(seen(folder)) for folder in (plain, keyed))
    near = np.argsort(hidden, axis=1)[:, :10]
    tenth = np.sort(apart, axis=1)[:, 9:10]
    # Pixels are integers, so the tenth neighbour may have ties.
    assert float((np.take_along_axis(apart, near, axis=1) <= tenth * (1.0 + 1e-9)).mean()) >= 0.999


def seen(folder: Path) -> Float64Array:
    """Return the records that the server has at the end of a run, in any frame."""
    again = repeated(folder, None, unheard)
    sizes = tuple(np.bincount(again.client_data.client_of_row).tolist())
    return cloud(
        View(transcript=again.transcript, sizes=sizes, embedding=again.served.outcome.embedding)
    ).points


def distances(rows: Float64Array) -> Float64Array:
    apart = np.asarray(squared_distances(rows, rows), np.float64)
    np.fill_diagonal(apart, np.inf)
    return apart


def test_keyed_run_without_similar_rows_has_no_guess(keyed: Path) -> None:
    again = repeated(keyed, None, unheard)
    sizes = tuple(np.bincount(again.client_data.client_of_row).tolist())
    for is_keyed in (True, False):
        view = View(
            transcript=again.transcript, sizes=sizes, embedding=again.served.outcome.embedding, keyed=is_keyed
        )
        (found,) = trilateration(view, Side(public=np.zeros((0, 64))))
        assert (found.certain is None) == is_keyed
        assert (not found.guess.any()) == is_keyed


def test_audit_of_a_keyed_run_from_python(keyed: Path) -> None:
    result = raydr.audit(keyed, ["trilateration"], public_rows=40)
    assert result.folder == keyed
    assert result.audit is not None
    assert [verdict["attack"] for verdict in result.audit["verdicts"]] == ["trilateration"]
    assert result.audit["public"].startswith("40 rows")
    with pytest.raises(ScenarioError, match="did you mean trilateration"):
        raydr.audit(keyed, ["trilaterate"])
    with pytest.raises(ScenarioError, match="give 0 or more"):
        raydr.audit(keyed, public_rows=-1)


def test_plan_notes_that_an_audit_repeats_the_run() -> None:
    message = [" ".join(plan_of_scenario(tiny_scenario(**more)).notes) for more in ({}, {"audit": True})]
    assert ["The audit repeats the federation" in notes for notes in message] == [False, True]
