"""What the first screen says of a run follows from typed protections, accountant and audit, and from no prose."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny import tiny_run

from raydr.attacks.verdicts import Audit, EpsilonBound, Errors, Membership, Quantiles, ShareErrors, Verdict
from raydr.privacy.ledger import Entry, Granularity, Public
from raydr.privacy.statement import Statement
from raydr.privacy.verdict import Left, verdict
from raydr.report import write_report
from raydr.report.gist import points, recovered
from raydr.report.runfolder import read_run

COST = Statement(
    epsilon=None, delta=1e-5, infinite=(), epsilon_accounted=0.0, epsilon_by_adversary={}, accountants={},
    relation=None, secure_aggregation=False, strict=False, epsilon_max=None, releases=(),
)  # fmt: skip


def entry(granularity: Granularity = Granularity.AGGREGATE, **values: Any) -> Entry:
    plain: dict[str, Any] = {
        "kind": "K",
        "what": "w",
        "direction": "up",
        "seen_by": "s",
        "count": 1,
        "bytes": 8,
    }
    return Entry(granularity=granularity, **plain | values)


@pytest.mark.parametrize(
    ("entries", "left"),
    [
        ([], Left.NOTHING),
        ([entry(Granularity.PER_CLIENT, public=Public.SHAPES)], Left.NOTHING),
        ([entry(secure=True)], Left.SUMS),
        ([entry(secure=True), entry()], Left.UPLOADS),
        ([entry(Granularity.PER_CLIENT)], Left.UPLOADS),
        ([entry(epsilon=1.0), entry(secure=True, epsilon=1.0)], Left.NOTHING),
        ([entry(secure=True), entry(Granularity.PER_RECORD)], Left.RECORDS),
        ([entry(Granularity.PER_RECORD, epsilon=1.0)], Left.NOTHING),
        ([entry(Granularity.PER_RECORD, direction="simulation-only")], Left.NOTHING),
    ],
)
def test_what_left_is_the_most_revealing_of_all_messages(entries: list[Entry], left: Left) -> None:
    assert verdict(entries, COST).left is left


def test_a_key_is_told_where_all_is_under_it() -> None:
    keyed, plain = entry(keyed=True), entry()
    free = entry(public=Public.SEALED)
    assert verdict([keyed, free], COST).keyed
    assert not verdict([keyed, plain], COST).keyed
    assert not verdict([free], COST).keyed


def test_no_prose_has_a_part_in_it(tmp_path: Path) -> None:
    """Every sentence that somebody wrote about a message, replaced by reassuring ones: the first screen is the same."""
    folder = tiny_run(tmp_path / "run")
    before = first_screen(folder)
    assert "every single record" in before
    for name in ("ledger.json", "privacy.json"):
        content = json.loads((folder / name).read_text())
        for message in content if isinstance(content, list) else content["releases"]:
            message |= {"what": "nothing at all, under noise", "seen_by": "nobody", "kind": message["kind"]}
        (folder / name).write_text(json.dumps(content))
    assert first_screen(folder) == before
    ledger = json.loads((folder / "ledger.json").read_text())
    for message in ledger:
        message["granularity"] = "aggregate"
    (folder / "ledger.json").write_text(json.dumps(ledger))
    assert first_screen(folder) != before, "a typed fact does change it"


def first_screen(folder: Path) -> str:
    page = write_report(folder).read_text(encoding="utf-8")
    found = re.search(r'<dl class="gist".*?</dl>', page, re.DOTALL)
    assert found is not None
    return found.group()


def errors(median: float, exact: float = 0.0) -> Errors:
    one, guess = (Quantiles(*[value] * 5) for value in (median, 1.0))
    return Errors(
        records=10, relative=one, relative_guess=guess, centred=one, centred_guess=guess, exact=exact
    )


def audit(*verdicts: Verdict) -> Audit:
    return Audit(raydr="0", scenario="0", public="none", shown=(), image=None, verdicts=verdicts)


WEAK = Verdict(attack="one", description="", errors=errors(0.9))
STRONG = Verdict(attack="two", description="", errors=errors(0.2, 0.5))
NONE = Verdict(attack="three", description="", why="it does not apply")
LEVEL = Verdict(attack="four", description="", errors=errors(1.0))
MEMBERS = Verdict(attack="five", description="", membership=Membership(auc=0.9, tpr=0.1, members=9, others=9))
APART = Verdict(attack="five", description="", membership=Membership(auc=0.5, tpr=0.0, members=9, others=9))
SHARES = Verdict(
    attack="seven", description="", shares=ShareErrors(error=0.02, guess=0.1, groups=2, clients=3)
)
BROKEN = Verdict(
    attack="six",
    description="",
    variant="the whole run",
    bound=EpsilonBound(epsilon=0.5, measured=2.0, claimed=1.0, delta=1e-5, confidence=0.999),
)


@pytest.mark.parametrize(
    ("found", "figure", "tone"),
    [
        (None, "not audited", "open"),
        (audit(), "none applies", "open"),
        (audit(NONE), "none applies", "open"),
        (audit(LEVEL, NONE), "no better than guessing", "open"),
        (audit(NONE, SHARES), "groups' shares read off", "bad"),
        (audit(APART), "none applies", "open"),
        (audit(WEAK, STRONG, MEMBERS), "50.0\u202f% recovered", "bad"),
        (audit(WEAK, LEVEL, MEMBERS), "error 90.0\u202f% of a guess", "bad"),
        (audit(LEVEL, MEMBERS), "members AUC 0.90", "bad"),
        (audit(STRONG, BROKEN), "claim broken", "bad"),
    ],
)
def test_the_attack_that_came_nearest_is_told(found: Audit | None, figure: str, tone: str) -> None:
    said = recovered(found)
    assert (said.figure, said.tone) == (figure, tone)


def test_epsilon_is_the_accountants(tmp_path: Path) -> None:
    run = read_run(tiny_run(tmp_path / "run"))
    assert points(run)[1].figure == "ε = ∞"
    private = replace(run, privacy=replace(run.privacy, epsilon=1.25))
    assert points(private)[1].figure == "ε = 1.25"
