"""The privacy summary follows from typed protections, accountant and audit, not from descriptions."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny import tiny_run

from raydr.attacks.verdicts import Audit, EpsilonBound, Errors, Membership, Quantiles, ShareErrors, Verdict
from raydr.privacy.accounting import Budget, Charge, gaussian_epsilon
from raydr.privacy.gaussian import GaussianNoise
from raydr.privacy.ledger import RECORDS, DeterminedRecords, Entry, Granularity, Ledger, Public
from raydr.privacy.statement import Statement, statement
from raydr.privacy.verdict import Exposure, verdict
from raydr.report import write_report
from raydr.report.run.privacy_summary import points, recovered
from raydr.runfolder.reading import read_run

pytestmark = pytest.mark.usefixtures("edits_accepted")

WEAKER = GaussianNoise(on="gradient", multiplier=2.0)
STRONGER = GaussianNoise(on="gradient", multiplier=4.0)
ON_DATA = GaussianNoise(on="data", multiplier=5.0, clip=1.0)
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
    ("entries", "exposure"),
    [
        ([], Exposure.NOTHING),
        ([entry(Granularity.PER_CLIENT, public=Public.SHAPES)], Exposure.NOTHING),
        ([entry(secure=True)], Exposure.SUMS),
        ([entry(secure=True), entry()], Exposure.UPLOADS),
        ([entry(Granularity.PER_CLIENT)], Exposure.UPLOADS),
        ([entry(epsilon=1.0), entry(secure=True, epsilon=1.0)], Exposure.NOTHING),
        ([entry(secure=True), entry(Granularity.PER_RECORD)], Exposure.RECORDS),
        ([entry(Granularity.PER_RECORD, epsilon=1.0)], Exposure.NOTHING),
        ([entry(Granularity.PER_RECORD, direction="simulation-only")], Exposure.NOTHING),
    ],
)
def test_summary_names_the_most_revealing_message(entries: list[Entry], exposure: Exposure) -> None:
    assert verdict(entries, COST).exposure is exposure


def test_key_is_mentioned_if_it_covers_everything() -> None:
    keyed, plain = entry(keyed=True), entry()
    free = entry(public=Public.SEALED)
    assert verdict([keyed, free], COST).keyed
    assert not verdict([keyed, plain], COST).keyed
    assert not verdict([free], COST).keyed


def test_run_is_noisy_if_any_message_has_a_claim() -> None:
    ledger = Ledger()
    ledger.record(entry(protection=WEAKER))
    assert not verdict(list(ledger.entries.values()), statement(ledger, Budget())).noisy
    ledger.charge(Charge(kind="K", deviation=3.0, sensitivity=1.5, mechanism=WEAKER))
    assert verdict(list(ledger.entries.values()), statement(ledger, Budget())).noisy


@pytest.mark.parametrize(
    ("given", "exposed"),
    [
        (entry(Granularity.PER_RECORD), True),
        (entry(Granularity.PER_RECORD, protection=WEAKER), True),
        (entry(Granularity.PER_RECORD, epsilon=1.0), False),
        (entry(Granularity.PER_RECORD, direction="down"), False),
        (entry(Granularity.PER_CLIENT), False),
    ],
)
def test_per_record_messages_without_a_claim_expose_records(given: Entry, exposed: bool) -> None:
    assert given.exposes_records == exposed


def paid() -> Ledger:
    """Return one kind under two mechanisms, in both directions and unprotected, and a kind of noisy records."""
    ledger = Ledger()
    for each in (
        entry(protection=WEAKER, count=3),
        entry(protection=STRONGER),
        entry(protection=WEAKER, direction="down", bytes=5),
        entry(seen_by="others"),
        entry(kind="Noisy", protection=ON_DATA),
        entry(kind="Shapes", public=Public.SHAPES),
        entry(protection=WEAKER, count=4, bytes=9),
    ):
        ledger.record(each)
    ledger.charge(Charge(kind="K", deviation=3.0, sensitivity=1.5, mechanism=WEAKER), 2)
    ledger.charge(Charge(kind="K", deviation=8.0, sensitivity=2.0, mechanism=STRONGER))
    ledger.charge(Charge(kind=RECORDS, deviation=5.0, sensitivity=1.0))
    return ledger


def test_entries_that_differ_only_in_size_are_merged() -> None:
    ledger = paid()
    assert [(each.count, each.bytes) for each in ledger.entries.values()] == [
        (7, 17), (1, 8), (1, 5), (1, 8), (1, 8), (1, 8),
    ]  # fmt: skip
    assert (ledger.bytes("up"), ledger.bytes("down")) == (49, 5)


def test_charges_can_be_added_and_removed() -> None:
    ledger, charge = Ledger(), Charge(kind="K", deviation=3.0, sensitivity=1.0)
    for count, left in ((1, {charge: 1}), (2, {charge: 3}), (-2, {charge: 1}), (-1, {})):
        ledger.charge(charge, count)
        assert ledger.charges == left
    ledger.charge(charge)
    ledger.charge(charge, -1)
    assert not ledger.charges


def test_entry_cost_is_that_of_its_kind_and_mechanism() -> None:
    ledger, delta = paid(), 1e-5
    whole = (2 / 4 + 1 / 16 + 1 / 25) ** -0.5  # multipliers 2, twice, and 4 and 5
    epsilons = [gaussian_epsilon(z, delta) for z in (2.0 / 2**0.5, 4.0, 5.0)]
    settled = [each.epsilon for each in ledger.settled(delta).entries.values()]
    assert settled == [*epsilons[:2], None, None, epsilons[2], None]
    reported = statement(ledger, Budget(delta))
    assert reported.epsilon_accounted == pytest.approx(gaussian_epsilon(whole, delta))
    assert (reported.epsilon, reported.infinite) == (None, ("K leaves the client without protection: w",))
    assert set(reported.accountants) == {"rdp", "pld"}
    assert statement(Ledger(), Budget(delta)).accountants == {}
    numbers = [(each.messages, each.releases, each.multiplier, each.epsilon) for each in reported.releases]
    assert numbers == [
        (7, 2, 2.0, epsilons[0]), (1, 1, 4.0, epsilons[1]), (1, 0, None, None), (1, 0, 5.0, epsilons[2]),
        (1, 0, None, 0.0),
    ]  # fmt: skip
    assert [(each.deviation, each.sensitivity) for each in reported.releases[:2]] == [(3.0, 1.5), (8.0, 2.0)]
    shares = [each.share for each in reported.releases]
    assert shares == [pytest.approx(whole**2 * spent) for spent in (1 / 2, 1 / 16)] + [
        None, pytest.approx(whole**2 / 25), None,
    ]  # fmt: skip


def test_determined_records_are_of_the_most_revealing_call() -> None:
    ledger = Ledger()
    for each in (entry(), entry(direction="down"), entry(kind="L"), entry(protection=WEAKER)):
        ledger.record(each)
    seen = [
        DeterminedRecords(records=9, exact=3, dimensions=2, features=4, points=5),
        DeterminedRecords(records=10, exact=3, dimensions=2, features=4, points=5),
        DeterminedRecords(records=10, exact=3, dimensions=1, features=1, points=1),
        DeterminedRecords(records=99, exact=2, dimensions=2, features=4, points=5),
    ]
    for fixed in seen:
        ledger.fix("K", None, fixed)
    assert [each.fixed for each in ledger.entries.values()] == [seen[1], None, None, None]
    both = DeterminedRecords(records=9, exact=3, dimensions=2, features=4, points=5) + DeterminedRecords(
        records=10, exact=1, dimensions=3, features=1, points=6, among=True
    )
    assert both == DeterminedRecords(records=19, exact=4, dimensions=3, features=4, points=6, among=True)
    assert not (seen[0] + seen[1]).among


def test_summary_does_not_depend_on_descriptions(tmp_path: Path) -> None:
    """Replacing all descriptions by reassuring ones does not change the summary."""
    folder = tiny_run(tmp_path / "run")
    before = first_screen(folder)
    assert "Every record sent data" in before
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
    found = re.search(r'<dl class="key-points".*?</dl>', page, re.DOTALL)
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
        (audit(NONE, SHARES), "group shares inferred", "bad"),
        (audit(APART), "none applies", "open"),
        (audit(WEAK, STRONG, MEMBERS), "50.0\u202f% recovered", "bad"),
        (audit(WEAK, LEVEL, MEMBERS), "error 90.0\u202f% of a guess", "bad"),
        (audit(LEVEL, MEMBERS), "members AUC 0.90", "bad"),
        (audit(STRONG, BROKEN), "claim broken", "bad"),
    ],
)
def test_closest_attack_is_named(found: Audit | None, figure: str, tone: str) -> None:
    sentence = recovered(found)
    assert (sentence.figure, sentence.tone) == (figure, tone)


def test_epsilon_is_that_of_the_accountant(tmp_path: Path) -> None:
    run = read_run(tiny_run(tmp_path / "run"))
    assert points(run)[1].figure == "ε = ∞"
    private = replace(run, privacy=replace(run.privacy, epsilon=1.25))
    assert points(private)[1].figure == "ε = 1.25"


def test_noise_is_named_only_if_it_covers_a_message(tmp_path: Path) -> None:
    """Cases: only public messages, and noise on all other messages."""
    silent = replace(read_run(tiny_run(tmp_path / "run")), ledger=())
    ledger = Ledger()
    ledger.record(entry(protection=WEAKER))
    ledger.charge(Charge(kind="K", deviation=3.0, sensitivity=1.5, mechanism=WEAKER))
    noisy = statement(ledger, Budget())
    reported = [points(replace(silent, privacy=cost))[0] for cost in (COST, noisy)]
    assert [point.figure for point in reported] == ["nothing", "under noise"]
    assert [("noise" in point.text) for point in reported] == [False, True]
    assert all(point.text.startswith("Apart from data that are declared public, ") for point in reported)
