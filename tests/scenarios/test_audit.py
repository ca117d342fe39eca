"""The audit repeats a run bit for bit, attacks it and writes the verdicts; another run is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tiny import Wards, tiny, tiny_file, tiny_run_with_report, tiny_scenario

from raydr.arrays import FloatArray
from raydr.attacks import ATTACKS
from raydr.attacks.scoring import judged
from raydr.attacks.verdicts import Audit, Verdict
from raydr.data import load
from raydr.errors import DataError, OutputError, RunError, ScenarioError
from raydr.front.cli import status
from raydr.journal import unheard
from raydr.report.run.audited import curve, galleries, lines
from raydr.runfolder import read_audit, read_run
from raydr.runfolder.records import AUDIT, EMBEDDING, ENVIRONMENT, LEDGER, REPORT, SCENARIO
from raydr.scenarios.afterwards.auditing import _case, audit, audit_settings, picture, rows_apart
from raydr.scenarios.afterwards.repetition import repeated
from raydr.scenarios.running.backend import InlineBackend
from raydr.scenarios.running.client_data import dealt_out
from raydr.scenarios.schema.audit import AuditSettings
from raydr.scenarios.schema.reading import dump, read

ROWS = 90  # of 150: the others are public


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tiny audited run."""
    return tiny_run_with_report(tmp_path_factory.mktemp("audited") / "run", data__rows=ROWS, audit=True)


@pytest.fixture
def plain(audited: Path, tmp_path: Path) -> Path:
    """Return a copy that a test may damage."""
    import shutil

    return Path(shutil.copytree(audited, tmp_path / "run"))


def content(folder: Path) -> dict[str, Any]:
    return json.loads((folder / AUDIT).read_text())  # type: ignore[no-any-return]


def test_every_attack_has_a_verdict_or_a_reason(audited: Path) -> None:
    verdicts = content(audited)["verdicts"]
    assert list(dict.fromkeys(verdict["attack"] for verdict in verdicts)) == list(ATTACKS)
    for verdict in verdicts:
        found = [
            verdict[key] for key in ("errors", "membership", "shares", "columns", "bound") if verdict[key]
        ]
        assert (len(found) == 1) != bool(verdict["why"])
        assert not verdict["why"] or verdict["why"].endswith(".")


def test_enough_landmarks_reveal_every_record_as_the_ledger_states(audited: Path) -> None:
    """With 12 landmarks in 4 dimensions, the server recovers every record of iris with certainty."""
    (verdict,) = [one for one in content(audited)["verdicts"] if one["attack"] == "trilateration"]
    assert verdict["errors"]["exact"] == 1.0
    assert verdict["certificate"] == {"called_exact": ROWS, "of_those_exact": ROWS}
    ledger = json.loads((audited / LEDGER).read_text())
    (entry,) = [entry for entry in ledger if entry["kind"] == "Distances"]
    assert verdict["messages"] == {"Distances": entry["count"]}


def test_repeated_audit_is_equal_and_shown_on_the_page(audited: Path, plain: Path) -> None:
    (plain / AUDIT).unlink()
    assert status(["audit", str(plain), "--quiet"]) == 0
    once, again = content(audited), content(plain)
    for found in (once, again):
        for verdict in found["verdicts"]:
            verdict.pop("seconds")
    assert once == again
    page = (plain / REPORT).read_text()
    message = "attempts, by attack"
    assert message in page
    assert "petal length" in page.partition('id="attacked"')[2]
    (plain / AUDIT).unlink()
    assert status(["report", str(plain)]) == 0
    assert message not in (plain / REPORT).read_text()


def test_audit_does_not_change_the_run(audited: Path, tmp_path: Path) -> None:
    bare = tiny_run_with_report(tmp_path / "bare", data__rows=ROWS)
    for file in (EMBEDDING, LEDGER):
        assert (bare / file).read_bytes() == (audited / file).read_bytes()
    assert not (bare / AUDIT).exists()


def test_one_attack_with_fewer_public_rows(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["audit", str(plain), "--attack", "distribution-alignment", "--public-rows", "25"]) == 0
    out = capsys.readouterr().out
    assert "distribution-alignment: 25 public rows" in out
    assert out.splitlines()[-1] == str(plain / REPORT)
    (verdict,) = content(plain)["verdicts"]
    assert verdict["numbers"]["public_rows"] == 25


def test_public_rows_of_a_file(plain: Path, tmp_path: Path) -> None:
    table = load(source="iris")
    file = tmp_path / "like.csv"
    rows = "\n".join(",".join(map(str, row)) for row in table.rows[:30])
    file.write_text(",".join(table.features) + "\n" + rows + "\n")
    audit(plain, audit_settings(plain, ["distribution-alignment"], None), public=file)
    assert content(plain)["public"] == "30 rows of like.csv"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--attack", "trilaterate"], "did you mean trilateration"),
        (["--public", "nowhere.csv"], "nowhere.csv"),
        (["--public-rows", "-1"], "--public-rows"),
    ],
)
def test_bad_audit_settings_are_refused(
    plain: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(["audit", str(plain), *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


# ---------------------------------------------------------------------------------- not the same run


def test_changed_data_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    table = load(source="iris").rows

    def write(rows: FloatArray) -> None:
        lines = [",".join(map(str, row)) for row in rows]
        file.write_text("\n".join(["a,b,c,d", *lines]) + "\n")

    write(table)
    folder = tiny_run_with_report(tmp_path / "run", data={"path": str(file)})
    write(table + 0.5)
    with pytest.raises(DataError, match=r"The data of the run .* have changed.*rows\.csv"):
        audit(folder)
    assert not (folder / AUDIT).exists()


@pytest.mark.usefixtures("edits_accepted")
def test_changed_map_is_refused(plain: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(plain / EMBEDDING)
    x = table["x"].to_numpy().copy()
    x[3] = np.nextafter(x[3], np.float32(9.0))
    pq.write_table(table.set_column(2, "x", pa.array(x)), plain / EMBEDDING)
    with pytest.raises(RunError, match=r"a different map .*1 of 90 rows moved"):
        audit(plain)


@pytest.mark.usefixtures("edits_accepted")
def test_changed_ledger_is_refused(plain: Path) -> None:
    ledger = json.loads((plain / LEDGER).read_text())
    ledger[0]["count"] += 1
    (plain / LEDGER).write_text(json.dumps(ledger))
    with pytest.raises(RunError, match=f"same map but different messages \\({ledger[0]['kind']}"):
        audit(plain)


@pytest.mark.usefixtures("edits_accepted")
def test_run_of_another_version_is_refused(plain: Path) -> None:
    environment = json.loads((plain / ENVIRONMENT).read_text())
    environment["raydr"] = "0.0.1"
    environment["packages"]["numpy"] = "1.0"
    (plain / ENVIRONMENT).write_text(json.dumps(environment))
    with pytest.raises(OutputError, match=r"used raydr 0\.0\.1 .*numpy 1\.0"):
        audit(plain)


@pytest.mark.usefixtures("edits_accepted")
def test_jointly_trained_clients_are_refused(plain: Path) -> None:
    scenario = yaml.safe_load((plain / SCENARIO).read_text())
    scenario["runtime"]["batch_clients"] = True
    (plain / SCENARIO).write_text(yaml.safe_dump(scenario))
    (plain / AUDIT).unlink()
    with pytest.raises(ScenarioError, match=r"runtime\.batch_clients"):
        audit(plain)


@pytest.mark.usefixtures("edits_accepted")
def test_report_refuses_the_audit_of_another_run(plain: Path) -> None:
    (plain / SCENARIO).write_text((plain / SCENARIO).read_text() + "\n# changed\n")
    with pytest.raises(OutputError, match=r"audit\.json belongs to another run"):
        read_audit(plain)


def test_run_with_a_failed_audit_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RunError("another map")

    monkeypatch.setattr("raydr.scenarios.afterwards.repetition._require_same_outcome", fail)
    with pytest.raises(RunError, match="another map") as caught:
        tiny_run_with_report(tmp_path / "run", audit=True)
    assert "is complete: to audit it, run" in "".join(caught.value.__notes__)
    assert (tmp_path / "run" / EMBEDDING).exists()


# --------------------------------------------------------------------------- clients mixed in the table


@pytest.mark.parametrize(
    "harmonize", [None, {"kind": "combat", "keep": ["diagnosis"]}], ids=["read", "harmonized"]
)
def test_audit_assigns_rows_of_mixed_clients_correctly(
    tmp_path: Path, harmonize: dict[str, Any] | None
) -> None:
    """Records, names, classes, places and the server's data are in client order, like messages."""
    wards = Wards.drawn()
    settings = wards.written(
        tmp_path / "wards.csv", rows=60, **({"harmonize": harmonize} if harmonize else {})
    )
    folder = tiny_run_with_report(tmp_path / "run", **settings)
    repetition = repeated(folder, None, unheard)
    case = _case(repetition, AuditSettings(public_rows=10), None, None)
    view, side, truth = case.view, case.side, case.truth

    place_of = {str(patient): place for place, patient in enumerate(wards.ids)}
    places = np.array([place_of[name] for name in truth.names])
    names = repetition.client_data.names
    assert wards.wards[places].tolist() == np.repeat(names, view.sizes).tolist()
    for client in range(len(names)):  # rows of each client in table order
        assert (np.diff(places[view.rows_of(client)]) > 0).all()
    assert truth.classes.tolist() == wards.rows[places, 3].tolist()
    assert np.array_equal(truth.rows[:, 3], wards.rows[places, 3]) or harmonize
    assert np.array_equal(truth.rows, wards.rows[places]) is (harmonize is None)

    # The messages say the same: with 12 landmarks the server knows every record of 4 features.
    (verdict,) = judged(ATTACKS["trilateration"], view, side, truth, lambda kind: 1)
    assert verdict.errors is not None
    assert verdict.errors.exact == 1.0
    for example in verdict.examples:
        shown = truth.rows[truth.names.index(example.row)][truth.shown]
        np.testing.assert_allclose(example.true, shown, atol=1e-3)
        np.testing.assert_allclose(example.recovered, shown, atol=1e-2)

    mapped = read_run(folder)
    drawn = dict(zip(map(str, mapped.rows), mapped.federated, strict=True))
    assert np.array_equal(view.embedding, [drawn[name] for name in truth.names])
    assert np.array_equal(side.values, truth.rows[side.known])
    assert np.array_equal(side.classes, truth.classes[side.known])
    held = {row.tobytes() for row in truth.rows}
    assert 0 < truth.members.sum() < len(truth.members)
    assert truth.members.tolist() == [row.tobytes() in held for row in side.candidates]


# ------------------------------------------------------------------------------------- side knowledge


def test_public_rows_are_rows_outside_the_run(tmp_path: Path) -> None:
    scenario = tiny_scenario(data__rows=ROWS)
    client_data = dealt_out(scenario, None)
    apart, _ = rows_apart(scenario, client_data, None)
    inside = {row.tobytes() for row in client_data.pooled()}
    assert 40 < len(apart) <= 60
    assert not any(row.tobytes() in inside for row in apart)


def test_without_spare_rows_a_fifth_of_the_run_is_public_and_not_scored(tmp_path: Path) -> None:
    folder = tiny_run_with_report(tmp_path / "run", audit=True)
    found = content(folder)
    assert found["public"].startswith("30 rows of the run, because")
    by_name = {verdict["attack"]: verdict for verdict in found["verdicts"]}
    assert by_name["trilateration"]["errors"]["records"] == 120
    assert "in the run, but all of them are" in by_name["membership"]["why"]


def test_audit_repeats_runs_of_sites(tmp_path: Path) -> None:
    table = load(source="iris")
    sites = []
    for site in range(3):
        file = tmp_path / f"site{site}.csv"
        rows = [",".join(map(str, row)) for row in table.rows[50 * site : 50 * site + 50]]
        file.write_text("\n".join(["a,b,c,d", *rows]) + "\n")
        sites.append({"path": str(file)})
    content_ = tiny() | {"data": {}, "clients": {"sites": sites}, "audit": {"attacks": ["trilateration"]}}
    folder = tmp_path / "run"
    assert status(["run", str(tiny_file(tmp_path, **content_)), "--out", str(folder), "--quiet"]) == 0
    (verdict,) = content(folder)["verdicts"]
    assert verdict["errors"]["exact"] == 1.0


@pytest.mark.parametrize(
    ("given", "wanted"), [(True, {}), (False, None), ({"public_rows": 5}, {"public_rows": 5})]
)
def test_audit_true_means_defaults_and_false_means_none(given: Any, wanted: Any) -> None:
    scenario = tiny_scenario(audit=given)
    again = read(yaml.safe_load(dump(scenario)))
    assert again == scenario
    assert (scenario.audit is None) == (wanted is None)
    if wanted:
        assert scenario.audit is not None
        assert scenario.audit.public_rows == 5


def test_unknown_attacks_are_refused() -> None:
    with pytest.raises(ScenarioError, match="there is no attack 'guessing'"):
        tiny_scenario(audit={"attacks": ["guessing"]})


@pytest.mark.parametrize(
    ("names", "image"),
    [
        ([f"pixel_{row}_{column}" for row in range(8) for column in range(8)], (8, 8, 1)),
        ([f"x{number}" for number in range(192)], (8, 8, 3)),
        ([f"x{number}" for number in range(65)], None),
        ([f"gene{letter}" for letter in "abcdefgh" * 8], None),
        ([f"x{number}" for number in range(4)], None),
    ],
)
def test_image_rows_are_recognised(names: list[str], image: Any) -> None:
    assert picture(names) == image


def verdict_of(found: Audit, attack: str) -> tuple[Verdict, ...]:
    return tuple(verdict for verdict in found.verdicts if verdict.attack == attack)


def test_report_shows_the_best_attempt_of_each_attack_and_the_curve(audited: Path) -> None:
    found = read_audit(audited)
    assert found is not None
    shown = galleries(found)
    assert len({gallery.attack for gallery in shown}) == len(shown)
    best = min(
        verdict.errors.centred.median
        for verdict in found.verdicts
        if verdict.attack == "known-sample" and verdict.errors is not None
    )
    (known,) = [gallery for gallery in shown if gallery.attack == "known-sample"]
    (verdict,) = [one for one in found.verdicts if (one.attack, one.variant) == (known.attack, known.variant)]
    assert verdict.errors is not None
    assert verdict.errors.centred.median == best
    assert curve(found) is not None
    assert curve(replace(found, verdicts=verdict_of(found, "distribution-alignment")[:1])) is None
    applying = [line.applies for line in lines(found)]
    assert applying == sorted(applying, reverse=True)


def test_run_without_an_audit_keeps_no_transcript() -> None:
    assert InlineBackend().transcript is None
