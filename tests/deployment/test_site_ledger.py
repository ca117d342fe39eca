"""A site's own ledger over the starts of a run, and the epsilon that the accounts of several sites must have."""

from __future__ import annotations

import pytest
from requests_for_tests import NoisyRequest

from raydr.deployment.ledger import SiteLedger
from raydr.deployment.verification import Amount, _differences
from raydr.federation.wire import Call
from raydr.privacy.policy import SitePolicy


def asked(ledger: SiteLedger, times: int) -> None:
    for number in range(times):
        ledger.received(
            Call(request=NoisyRequest(3), number=number, round=0, attempt=0, clients=(0,), in_rounds=False)
        )


@pytest.mark.parametrize(("second", "expected"), [("first run", 5), ("another run", 2)])
def test_ledger_goes_on_in_a_later_start_of_the_same_run_alone(second: str, expected: int) -> None:
    """Also if another process reads the ledger again between messages."""
    ledger = SiteLedger(0)
    for run, times in (("first run", 3), (second, 2)):
        ledger.begin(SitePolicy())
        read = SiteLedger(0)
        read.read_again(ledger.written_down())
        asked(read, times)
        read.start(run)
        ledger = read
    (entry,) = ledger.content.entries.values()
    assert entry.count == expected
    assert ledger.run == second


@pytest.mark.parametrize(("server", "differ"), [(2.0, False), (1.0, True), (None, True)])
def test_epsilon_of_the_server_is_that_of_the_least_protected_site(
    server: float | None, differ: bool
) -> None:
    sites = {"north": Amount(1, 8, 1.0), "east": Amount(1, 8, 2.0), "west": Amount()}
    found = list(_differences(Amount(2, 16, server), sites))
    assert bool(found) is differ
    assert all("epsilon" in each for each in found)
