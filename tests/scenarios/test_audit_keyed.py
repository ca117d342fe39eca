"""The audit of runs under an isometry key: it ends trilateration, and no attack by rows of similar data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
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
    # As many points as fix every record: what an open run gives away whole.
    "sense": {"kind": "sense", "anchors": 66, "embedder": {"kind": "tsne", **DRAWN}},
    "fed-tsne": {"kind": "fed-tsne", "landmarks": 70, "rounds": 2, **DRAWN},
}
ATTACKED = ["trilateration", "distribution-alignment", "known-sample", "distance-geometry"]


def run_of(folder: Path, kind: str, **sections: Any) -> Path:
    data = {"source": "digits", "rows": 700}
    return tiny_run_with_report(folder, data=data, method=METHODS[kind], clients__count=3, **sections)


@pytest.fixture(scope="module", params=METHODS)
def keyed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A keyed run of a method, audited."""
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


def test_trilateration_errs_by_more_than_a_guess_and_certifies_nothing(keyed: Path) -> None:
    (verdict,) = found_in(keyed)["trilateration"]
    assert median(verdict) >= median(verdict, "centred_guess")
    assert verdict["errors"]["exact"] == 0.0
    assert verdict["certificate"] is None
    assert "under a key" in verdict["knows"]


def test_what_is_guessed_is_the_mean_of_like_rows_whatever_the_attack(keyed: Path) -> None:
    """Not that of turned anchors: a worse guess would flatter an attack."""
    for name in ("trilateration", "known-sample", "distance-geometry"):
        for verdict in found_in(keyed)[name]:
            assert median(verdict, "centred_guess") == pytest.approx(1.0, abs=0.02)


def test_rows_of_like_data_find_the_turn_and_the_page_says_how_many(keyed: Path) -> None:
    tried = found_in(keyed)["distribution-alignment"]
    assert len(tried) > 2
    assert median(tried[-1]) < 0.5 * median(tried[-1], "centred_guess")
    assert median(tried[0]) > 0.9 * median(tried[0], "centred_guess")  # 30 rows of 64 features are too few
    found = read_audit(keyed)
    assert found is not None
    said = enough_public_rows(found)
    assert "similar rows to undo a secret frame" in said
    assert said in " ".join((keyed / REPORT).read_text().split())
    (key,) = [point for point in points(read_run(keyed)) if point.title == "Isometry key"]
    assert said in key.text


def test_d_plus_one_known_records_undo_the_key(keyed: Path) -> None:
    *_, verdict = found_in(keyed)["known-sample"]
    assert verdict["numbers"]["known_records"] == 65
    # Pixels that are black in all anchors are beside their hull, where a record's place is not told.
    assert median(verdict) < 0.1 * median(verdict, "centred_guess")
    if keyed.name == "fed-tsne":
        assert verdict["errors"]["exact"] > 0.9


def test_hidden_points_are_unfolded_without_the_key(keyed: Path) -> None:
    by_known = [one for one in found_in(keyed)["distance-geometry"] if "known_records" in one["numbers"]]
    assert median(by_known[-1]) < 0.7 * median(by_known[-1], "centred_guess")


def test_neighbours_are_those_of_the_run_without_the_key(keyed: Path, tmp_path: Path) -> None:
    plain = run_of(tmp_path / "plain", keyed.name)
    apart, hidden = (distances(seen(folder)) for folder in (plain, keyed))
    near = np.argsort(hidden, axis=1)[:, :10]
    tenth = np.sort(apart, axis=1)[:, 9:10]
    # Pixels are whole numbers, so others may be as near as the tenth.
    assert float((np.take_along_axis(apart, near, axis=1) <= tenth * (1.0 + 1e-9)).mean()) >= 0.999


def seen(folder: Path) -> Float64Array:
    """Records as the server has them at the end of a run, in whatever frame."""
    again = repeated(folder, None, unheard)
    sizes = tuple(np.bincount(again.client_data.client_of_row).tolist())
    return cloud(
        View(transcript=again.transcript, sizes=sizes, embedding=again.served.outcome.embedding)
    ).points


def distances(rows: Float64Array) -> Float64Array:
    apart = np.asarray(squared_distances(rows, rows), np.float64)
    np.fill_diagonal(apart, np.inf)
    return apart


def test_without_rows_of_like_data_a_keyed_run_leaves_nothing_to_guess_by(keyed: Path) -> None:
    again = repeated(keyed, None, unheard)
    sizes = tuple(np.bincount(again.client_data.client_of_row).tolist())
    for is_keyed in (True, False):
        view = View(
            transcript=again.transcript, sizes=sizes, embedding=again.served.outcome.embedding, keyed=is_keyed
        )
        (found,) = trilateration(view, Side(public=np.zeros((0, 64))))
        assert (found.certain is None) == is_keyed
        assert (not found.guess.any()) == is_keyed


def test_from_python(keyed: Path) -> None:
    result = raydr.audit(keyed, ["trilateration"], public_rows=40)
    assert result.folder == keyed
    assert result.audit is not None
    assert [verdict["attack"] for verdict in result.audit["verdicts"]] == ["trilateration"]
    assert result.audit["public"].startswith("40 rows")
    with pytest.raises(ScenarioError, match="did you mean trilateration"):
        raydr.audit(keyed, ["trilaterate"])
    with pytest.raises(ScenarioError, match="give 0 or more"):
        raydr.audit(keyed, public_rows=-1)


def test_a_plan_says_that_an_audit_repeats_the_run() -> None:
    said = [" ".join(plan_of_scenario(tiny_scenario(**more)).notes) for more in ({}, {"audit": True})]
    assert ["The audit repeats federation and method" in notes for notes in said] == [False, True]
