"""The summary of the server's knowledge, for every method, with and without noise and secure aggregation."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from tiny import tiny

import raydr
from raydr.attacks.verdicts import (
    Audit,
    EpsilonBound,
    Errors,
    Example,
    Membership,
    Quantiles,
    ShareErrors,
    Verdict,
)
from raydr.front.exports import picture
from raydr.front.terminal import print_comparison, print_result
from raydr.geometry.trilateration import fixed_rows, trilateration
from raydr.methods import METHODS
from raydr.privacy.ledger import DeterminedRecords, Entry, Granularity, Ledger, RecordContent, read_entries
from raydr.report import compare, write_comparison, write_report
from raydr.report.run.server_knowledge import NOT_AUDITED, example, knowledge
from raydr.report.wording import leakage, meaning
from raydr.runfolder.reading import RunFolder, read_run
from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import read

SHORT: Mapping[str, dict[str, Any]] = {
    "fed-tsne": {"landmarks": 12, "rounds": 2, "early_iterations": 5, "iterations": 5},
    "fed-umap": {"landmarks": 12, "rounds": 2, "epochs": 5},
    "fed-spectral": {
        "landmarks": 12, "rounds": 2, "clusters": 3,
        "embedder": {"kind": "tsne", "early_iterations": 5, "iterations": 5},
    },
    "sense": {"anchors": 8, "embedder": {"kind": "tsne", "early_iterations": 5, "iterations": 5}},
    "dsne": {"early_iterations": 5, "iterations": 5},
    "fed-pca": {},
    "fedne": {"rounds": 2},
    "fedavg-ne": {"rounds": 2},
    "fedprox-ne": {"rounds": 2},
    "local-ne": {"rounds": 2},
    "global-ne": {"rounds": 2},
    "landmark-ne": {"rounds": 5},
    "private-map": {"epsilon": 8, "bounds": [0, 8], "early_iterations": 5, "iterations": 5},
}  # fmt: skip
SECRET = {"secure_aggregation": True}
ON_DATA = {"noise": {"on": "data", "level": 0.1}}
ON_UPDATE = {"on": "update", "multiplier": 1.0, "clip": 1.0}
AT_HOME = {"publish": "local"}
DETERMINED = (
    "enough data to reconstruct 150 of 150 records, feature by feature: it has the distance of each to {}"
    " points"
)
HIDDEN = "but nothing about a single record or a single client"
PLACES = "knows where each of 150 records lies on the map"
TOLD = f"({NOT_AUDITED})."

CASES: list[tuple[str, dict[str, Any], dict[str, Any] | None, str, str]] = [
    # method, its settings, privacy, tone, what the sentence must say
    ("fed-tsne", {}, None, "bad", DETERMINED.format(12)),
    ("fed-tsne", {"estimator": "nystrom"}, None, "bad", DETERMINED.format(12)),
    ("fed-tsne", {}, SECRET, "bad", DETERMINED.format(12)),
    ("fed-tsne", {}, {"noise": {"on": "gradient", "level": 1.0}}, "bad", DETERMINED.format(12)),
    ("fed-tsne", {}, ON_DATA, "bad", DETERMINED.format(12)),  # only landmarks are learnt from noisy rows
    (
        "fed-tsne", {}, {"noise": {"on": "data", "level": 0.1, "stage": "all"}}, "bad",
        "150 of 150 records as their clients blurred them (with Gaussian noise of level 0.1 on data, which gives no"
        " privacy guarantee)",
    ),
    ("fed-tsne", {"landmarks": 3}, None, "bad", "enough data to place each of 150 records in 2 of 4 dimensions"),
    ("fed-tsne", {}, {"isometry_key": True}, "bad", "up to the clients' secret rotation and shift"),
    ("fed-umap", {}, None, "bad", DETERMINED.format(12)),
    ("fed-spectral", {}, None, "bad", DETERMINED.format(12)),
    ("landmark-ne", {}, None, "bad", DETERMINED.format(5)),
    ("sense", {}, None, "bad", "enough data to reconstruct 142 of 142 records, feature by feature"),
    ("sense", {"anchors": 4}, None, "bad", "each of the others to two candidates, mirror images of each other"),
    ("sense", {}, ON_DATA, "bad", "142 of 142 records as their clients blurred them"),
    (
        "sense", {}, {"noise": {"on": "distances", "level": 0.1}}, "bad",
        "has the distance of each of 142 records to 8 points that it knows",
    ),
    (
        "sense", {}, {"noise": {"on": "distances", "level": 0.1, "clients": 0.4}}, "bad",
        "reconstruct 95 of 142 records, feature by feature: it has the distance of each to 8 points that it knows; for"
        " 47 others it has distances with Gaussian noise of level 0.1 on distances, which gives no privacy guarantee",
    ),
    ("dsne", {}, None, "bad", "knows where each of 135 records lies on the map, and what each of 3 clients computed"),
    ("dsne", {}, SECRET, "bad", "lies on the map, and sums over 3 clients"),
    ("fed-pca", {}, None, "bad", "has 2 of 4 coordinates of each of 150 records, along axes that it knows"),
    ("fed-pca", AT_HOME, None, "open", "3 clients computed from all its records, but nothing about a single record"),
    ("fed-pca", AT_HOME, SECRET, "open", f"has sums over 3 clients, {HIDDEN}"),
    *(
        (kind, {}, None, "bad", f"{PLACES}, and what each of 3 clients computed from all its records")
        for kind in ("fedne", "fedavg-ne", "fedprox-ne", "local-ne")
    ),
    ("fedne", {}, SECRET, "bad", f"{PLACES}, and sums over 3 clients"),
    (
        "fedne", AT_HOME, None, "open",
        "but nothing about a single record; no bound holds for what that reveals about a record",
    ),
    ("fedne", AT_HOME, SECRET, "open", f"has sums over 3 clients, {HIDDEN}"),
    (
        "fedne", {"bounds": [0, 8]}, {"noise": ON_UPDATE}, "bad",
        f"{PLACES}, and what 3 clients computed from their records, with noise (ε = ",
    ),
    (
        "fedne", {"bounds": [0, 8], **AT_HOME}, SECRET | {"noise": ON_UPDATE | {"per": "sum"}}, "good",
        "has sums over 3 clients, with noise that bounds what can be learnt about any one record: ε = ",
    ),
    ("global-ne", {}, None, "bad", "can reconstruct 150 of 150 records, feature by feature: each was sent unchanged"),
    (
        "private-map", {}, None, "open",
        "sums that each of 3 clients computed over its records, with noise that bounds only weakly what can be learnt"
        " about any one record: ε = 12.3 at δ = 1e-5",
    ),
    (
        "private-map", {}, SECRET, "good",
        "has sums over 3 clients, with noise that bounds what can be learnt about any one record: ε = 8 at δ = 1e-5",
    ),
]  # fmt: skip


def ran(folder: Path, kind: str, settings: Mapping[str, Any], **sections: Any) -> RunFolder:
    content = tiny() | {"method": {"kind": kind, **SHORT[kind], **settings}} | sections
    return read_run(run(read(content), out=folder / "run", report=False))


@pytest.mark.parametrize(("kind", "settings", "privacy", "tone", "message"), CASES)
def test_summary_names_what_left_the_clients(
    tmp_path: Path,
    kind: str,
    settings: dict[str, Any],
    privacy: dict[str, Any] | None,
    tone: str,
    message: str,
) -> None:
    sections = {"privacy": privacy} if privacy else {}
    found = knowledge(ran(tmp_path, kind, settings, **sections))
    assert message in found.text
    assert found.text.startswith("The server ")
    assert found.text.endswith(TOLD), "a summary without an audit says so"
    assert found.text.count(". ") == found.text.count(" 0. "), "one sentence"
    assert (found.tone, found.audited, found.examples) == (tone, False, None)


def test_every_method_is_among_the_cases() -> None:
    assert {case[0] for case in CASES} == set(METHODS)


@pytest.mark.parametrize("landmarks", [2, 3, 4, 5, 9])
def test_determined_records_equal_records_recovered_by_trilateration(tmp_path: Path, landmarks: int) -> None:
    """The ledger's determined records are those that trilateration recovers, with any number of landmarks."""
    found = ran(
        tmp_path,
        "fed-tsne",
        {"landmarks": landmarks},
        data={"source": "iris", "rows": 120},
        audit={"attacks": ["trilateration"]},
    )
    (fixed,) = [entry.fixed for entry in found.ledger if entry.fixed]
    assert found.audit is not None
    (verdict,) = found.audit.verdicts
    assert verdict.errors is not None
    assert (fixed.records, fixed.features, fixed.dimensions) == (120, 4, min(landmarks - 1, 4))
    assert fixed.exact / fixed.records == pytest.approx(verdict.errors.exact, abs=0.02)
    assert (fixed.exact == 120) is (landmarks >= 5)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_summary_does_not_depend_on_an_offset(tmp_path: Path, offset: float) -> None:
    rows = load_iris().data + offset
    path = tmp_path / "rows.npz"
    np.savez(path, X=rows)
    found = ran(tmp_path, "sense", {"anchors": 8}, data={"path": str(path), "rows": 140})
    assert "can reconstruct" not in knowledge(found).text
    assert "enough data to reconstruct 140 of 140 records" in knowledge(found).text


def test_summary_is_the_same_on_every_page_and_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ran(tmp_path, "sense", {}).path
    message = knowledge(read_run(folder)).text
    page = html.unescape(write_report(folder).read_text(encoding="utf-8"))
    assert page.count(message) == 1
    assert page.index(message) < page.index('id="faithful"')
    comparison = write_comparison([folder], tmp_path / "comparison.html").read_text(encoding="utf-8")
    assert message in html.unescape(comparison)
    print_comparison(compare([folder]))
    assert f"run: {message}" in capsys.readouterr().out
    print_result(folder)
    reported = capsys.readouterr().err
    assert reported.index("Neighbour preservation") < reported.index(message)
    assert message in html.unescape(picture(folder))


def test_estimator_shows_the_summary() -> None:
    fitted = raydr.FedPCA().fit(np.random.default_rng(0).normal(size=(60, 5)))
    message = "has 2 of 5 coordinates of each of 60 records"
    assert message in fitted._repr_html_()
    page = fitted.report_.read_text(encoding="utf-8")
    assert message in page
    assert "the rows of this run were only in memory" in page


# --- what attacks found -----------------------------------------------------------------------------------------------


@cache
def _errors(median: float, exact: float = 0.0, records: int = 60) -> Errors:
    one, guess = (Quantiles(*[value] * 5) for value in (median, 1.0))
    return Errors(
        records=records, relative=one, relative_guess=guess, centred=one, centred_guess=guess, exact=exact
    )


EXAMPLES = tuple(Example(f"{row}", (1.0, 2.0), (1.0, 2.0 + row), row / 10) for row in range(5))
WHOLE = Verdict(
    attack="trilateration", description="", knows="points", errors=_errors(0.0, 1.0, 120), examples=EXAMPLES
)
PART = Verdict(
    attack="known-sample", description="", knows="5 of the records; the mean", errors=_errors(0.1, 0.25)
)
NEAR = Verdict(attack="alignment", description="", knows="200 rows", errors=_errors(0.2))
NOTHING = Verdict(attack="nothing", description="", knows="", errors=_errors(1.0))
OFF = Verdict(attack="off", description="", why="it does not apply.")
MEMBERS = Verdict(
    attack="members", description="", membership=Membership(auc=0.97, tpr=0.5, members=9, others=9)
)
FEW_MEMBERS, CHANCE = (
    Verdict(attack="few", description="", membership=Membership(auc=0.51, tpr=tpr, members=1000, others=1000))
    for tpr in (0.05, 0.009)
)
SHARES, NO_SHARES = (
    Verdict(attack="of", description="", shares=ShareErrors(error=error, guess=0.1, groups=10, clients=3))
    for error in (0.02, 0.095)
)
BROKEN = Verdict(
    attack="canary",
    description="",
    bound=EpsilonBound(epsilon=4.0, measured=1.0, claimed=1.0, delta=1e-5, confidence=0.999),
)


@pytest.mark.parametrize(
    ("verdicts", "tone", "message"),
    [
        ((WHOLE,), "bad", "can reconstruct 150 of 150 records.*recovered all 120 that the audit scored"),
        ((PART, NEAR), "bad", "150 of 150 .*. In the audit, known-sample recovered 15 of the 60 .*, knowing 5 of the"),
        ((NEAR, OFF), "bad", "alignment, knowing 200 rows, came closest, with half of the records .* 20.0.%"),
        ((NEAR, MEMBERS), "bad", "came closest.*; records of the run were distinguished .* with an AUC of 0.97"),
        ((NOTHING, MEMBERS), "bad", "AUC of 0.97.*; none of the attacks tried recovered records better than guessing"),
        ((OFF, MEMBERS), "bad", "AUC of 0.97.*; no reconstruction attack that was tried applies to these messages"),
        ((NOTHING, FEW_MEMBERS), "bad", "AUC of 0.51 .guessing: 0.5., and 5.0.% of them at one false alarm"),
        ((NOTHING, CHANCE), "bad", "In the audit, none of the attacks tried"),
        ((NOTHING, SHARES), "bad", "share of a group was inferred with an error of 2.0.% .*guessing: 10.0.%.; none"),
        ((NOTHING, NO_SHARES), "bad", "In the audit, none of the attacks tried"),
        ((BROKEN, NEAR), "bad", "The audit breaks the privacy claim: ε is at least 4, but 1 is claimed .canary."),
        ((NOTHING, OFF), "bad", "none of the attacks tried recovered records better than guessing, because none"),
        ((OFF,), "bad", "In the audit, no reconstruction attack that was tried applies to these messages."),
    ],
)  # fmt: skip
def test_audit_findings_decide_the_summary(
    determined: RunFolder, verdicts: tuple[Verdict, ...], tone: str, message: str
) -> None:
    found = knowledge(replace(determined, audit=_audit(*verdicts)))
    assert re.search(message, found.text), found.text
    assert found.tone == tone
    assert found.audited
    assert NOT_AUDITED not in found.text


def test_recovered_records_count_without_determined_ones(determined: RunFolder) -> None:
    ledger = tuple(replace(entry, fixed=None, tells=RecordContent.PLACES) for entry in determined.ledger)
    found = knowledge(replace(determined, ledger=ledger, audit=_audit(PART, NEAR)))
    assert "can reconstruct 15 of the 60 records that the audit scored, feature by feature" in found.text
    assert "with half of the records known to within 10.0" in found.text


def test_examples_are_best_middle_and_worst(determined: RunFolder) -> None:
    found = knowledge(replace(determined, audit=_audit(WHOLE)))
    assert found.examples is not None
    assert [shown.row for shown in found.examples.shown] == ["0", "2", "4"]
    assert example(found) == "row 0, by trilateration: first 1 (recovered 1), second 2 (recovered 2)"
    assert knowledge(replace(determined, audit=_audit(NOTHING))).examples is None


BARE = Entry(
    kind="Step",
    what="w",
    direction="up",
    granularity=Granularity.AGGREGATE,
    seen_by="server",
    count=3,
    bytes=8,
)
"""A sum of which the server sees each client's part."""


def test_one_unprotected_sum_reveals_clients(determined: RunFolder) -> None:
    """Of a secure sum and a plain one, the server reads each client's part of the plain one."""
    secure = replace(BARE, kind="Moments", secure=True)
    hidden, read, both = (
        knowledge(replace(determined, ledger=ledger)).text for ledger in ((secure,), (BARE,), (secure, BARE))
    )
    assert "has sums over 3 clients, but nothing about a single record or a single client" in hidden
    for text in (read, both):
        assert "a single client" not in text
        assert (
            "what each of 3 clients computed from all its records, but nothing about a single record" in text
        )


def test_clients_of_one_record_are_mentioned(determined: RunFolder) -> None:
    place = replace(BARE, kind="P", granularity=Granularity.PER_RECORD, tells=RecordContent.PLACES)
    message = {
        1: "(1 of them holds one record, so its result is about that record alone)",
        2: "(2 of them hold one record each, so their results are about that record alone)",
    }
    for alone, words in message.items():
        clients = ("a",) * 9 + ("b", "c", "c") if alone == 1 else ("a",) * 9 + ("b", "c")
        some = replace(determined, clients=clients)
        for ledger in ((BARE,), (place, BARE)):
            assert words in knowledge(replace(some, ledger=ledger)).text
            assert "one record" not in knowledge(replace(determined, ledger=ledger)).text
    hidden = replace(determined, clients=("a",) * 9 + ("b",), ledger=(replace(BARE, secure=True),))
    assert "one record" not in knowledge(hidden).text


def _audit(*verdicts: Verdict) -> Audit:
    return Audit(
        raydr="0", scenario="0", public="none", shown=("first", "second"), image=None, verdicts=verdicts
    )


@pytest.fixture(scope="module")
def determined(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return ran(tmp_path_factory.mktemp("determined"), "landmark-ne", {})


# --- the ledger -------------------------------------------------------------------------------------------------------


def test_determined_records_survive_file_and_checkpoint() -> None:
    entry = Entry(
        kind="K", what="w", direction="up", granularity=Granularity.PER_RECORD, seen_by="s", count=1, bytes=8,
        tells=RecordContent.DISTANCES,
        fixed=DeterminedRecords(records=9, exact=3, dimensions=2, features=4, points=5, among=True),
    )  # fmt: skip
    (back,) = read_entries([entry.as_dict()])
    assert back == entry
    ledger = Ledger()
    ledger.record(back)
    ledger.record(replace(entry, fixed=None))
    (merged,) = ledger.entries.values()
    assert (merged.count, merged.fixed) == (2, entry.fixed)


def test_calls_that_determine_the_same_records_count_once() -> None:
    ledger = Ledger()
    ledger.record(
        Entry(
            kind="K",
            what="w",
            direction="up",
            granularity=Granularity.PER_RECORD,
            seen_by="s",
            count=1,
            bytes=8,
        )
    )
    for exact in (3, 7, 5):
        ledger.fix("K", None, DeterminedRecords(records=9, exact=exact, dimensions=2, features=4, points=5))
    (entry,) = ledger.entries.values()
    assert entry.fixed == DeterminedRecords(records=9, exact=7, dimensions=2, features=4, points=5)


def test_perfect_error_is_described_as_leakage() -> None:
    for name in ("frobenius", "cosine", "distance_error", "pearson", "anchored_frobenius"):
        assert "This also measures leakage" in meaning(name)
    assert "0 means that it has every record exactly" in meaning("frobenius")
    note = leakage(["frobenius", "distance_error", "npa_10", "cosine"])
    assert note.count("measure leakage") == 1
    assert note.count("0 means that it has every record exactly") == 1
    assert leakage(["npa_10"]) == ""
    assert meaning("npa_10") == meaning("unknown") == ""


def test_broadcast_rows_are_counted_without_a_loop() -> None:
    """A plan's messages repeat one row of zeros without storing all rows."""
    random = np.random.default_rng(0)
    solver = trilateration(random.normal(size=(4, 6)), 10.0)
    for row in (np.zeros(4), random.uniform(1, 2, 4)):
        one = np.broadcast_to(row, (1000, 4))
        assert fixed_rows(solver, one) == fixed_rows(solver, np.ascontiguousarray(one))
    assert fixed_rows(solver, np.broadcast_to(np.zeros(4), (10**9, 4))) in (0, 10**9)
