"""Ledger entries for the messages in which clients agree on columns and words."""

from __future__ import annotations

from raydr.data.survey.spelling import Agreement
from raydr.privacy.ledger import Entry, Granularity

_ADDED_UP = "server, which sums what each client sends"


def agreement_on(agreement: Agreement | None, clients: int) -> tuple[Entry, ...]:
    """Return the ledger entries for the messages in which this many clients agree on columns and words."""
    if agreement is None:
        return ()
    survey = Entry(
        kind="ColumnSurvey",
        what="what each column holds by a client's rows: numbers and their unit, angles, pairs, text of few words, one"
        " word, an identity, free text, dates or nothing",
        direction="up",
        granularity=Granularity.AGGREGATE,
        seen_by=_ADDED_UP,
        count=clients,
        bytes=agreement.columns * clients,
    )
    spelling = Entry(
        kind="Spelling",
        what="for each beginning of a word in a column of text and each next byte, whether enough of a client's rows"
        " have a word that continues like this (0 or 1)",
        direction="up",
        granularity=Granularity.AGGREGATE,
        seen_by=_ADDED_UP,
        count=agreement.calls * clients,
        bytes=8 * agreement.votes * clients,
    )
    return (survey, spelling) if agreement.calls else (survey,)
