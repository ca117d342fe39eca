"""Output of commands on the terminal."""

from __future__ import annotations

import pytest

from raydr.attacks.verdicts import Audit, Membership, Verdict
from raydr.front.terminal import print_audit


def test_audit_fits_80_columns_and_groups_inapplicable_attacks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    verdicts = (
        Verdict(
            attack="membership",
            description="whether a known person is among the records",
            variant="places on the published map and their neighbours",
            knows=" ".join(["rows of similar data,"] * 10),
            membership=Membership(auc=0.9, tpr=0.1, members=2000, others=2000),
        ),
        *(
            Verdict(attack=name, description="", why="no client posted distances")
            for name in ("trilateration", "known-sample")
        ),
        Verdict(attack="projection", description="", why=" ".join(["no client posted its coordinates"] * 5)),
    )
    print_audit(Audit(raydr="1", scenario="", public="", shown=(), image=None, verdicts=verdicts))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    assert text.count("rows of similar data,") == 10
    assert "AUC 0.900 AUC 0.500" in text
    assert "Not applicable: trilateration, known-sample: no client posted distances" in text
    assert text.count("Not applicable") == 2
