"""Kinds of numbers that follow from the name of a column: identities of rows, and codes of categories."""

from __future__ import annotations

import re

from raydr.data.survey.columns import letters

_IDENTITY = re.compile(
    r"(^|[_\W])(id|ids|uid|uuid|guid|mrn|identifier)$"
    r"|(patient|subject|person|participant|case|family|household|customer|user|sample|town|record)[_\W]?ids?$"
    r"|^(patient|subject|subj|person|participant|individual|respondent|nr)$"
)
_MIXED_CASE = re.compile(r"[a-z]I[Dd]$")  # PassengerId, StoreID
_NUMBERING = re.compile(r"(^|[_\W])(nr|no|number|index|row|row[._ ]?names?|pid|pidnum|seqno|sno|srno)\.?$")
_TIMES = frozenset(
    ("year", "yr", "month", "mnth", "day", "hour", "hr", "minute", "min", "second", "sec", "week", "age")
)
_CATEGORIES = frozenset(
    """
    arm|arms|batch|block|breed|brood|cage|cause|center|centre|city|client|clinic|cluster|commune|country|county|dayofweek
    |department|district|ethnic|ethnicgroup|ethnicity|facility|fips|flight|group|herd|hospital|icd|inst|institution
    |location|mode|municipality|nationality|occupation|occupationhusb|origin|plot|postcode|profession|province|race
    |region|religion|season|site|species|state|station|status|store|strain|strata|town|transportmode|travelmode
    |treatment|village|ward|weekday|zip|zipcode
    """.replace("\n", "")
    .replace(" ", "")
    .split("|")
)
"""Names of categories, by their letters. A name that ends in "code" or "type" is one too."""
_DURATIONS = ("duration", "elapsed", "length", "laptime", "runtime", "finishtime")


def parts_of(text: str) -> frozenset[str]:
    """Return the parts of a name or a word that are letters, in lower case.

    >>> sorted(parts_of("WindGustDir_9am"))
    ['am', 'dir', 'gust', 'wind']
    """
    parts = re.split(r"[_\W\d]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", text).casefold())
    return frozenset(parts) - {""}


def named_as_identity(column: str) -> bool:
    """Whether a column's name is that of an identity, which can repeat, as a patient does with each visit.

    >>> [named_as_identity(name) for name in ("patient_id", "StoreID", "subject", "fluid", "covid", "row")]
    [True, True, True, False, False, False]
    """
    return bool(_IDENTITY.search(column.casefold()) or _MIXED_CASE.search(column))


def named_as_numbering(column: str) -> bool:
    """Whether a column's name is that of a number of rows.

    >>> [named_as_numbering(name) for name in ("case_no", "Row", "patient_id", "casino")]
    [True, True, False, False]
    """
    return _NUMBERING.search(column.casefold()) is not None


def named_as_time(column: str) -> bool:
    """Whether a column's name is that of a part of a date, whose digits are numbers even if written as 05.

    >>> named_as_time("start_day"), named_as_time("holiday")
    (True, False)
    """
    return bool(_TIMES & set(re.split(r"[_\W]+", column.casefold())))


def named_as_categories(column: str) -> bool:
    """Whether a column's name is that of categories, so that its whole numbers are codes.

    >>> [named_as_categories(name) for name in ("Zip code", "race", "cowcode2", "age_group", "state_income")]
    [True, True, True, False, False]
    """
    plain = letters(column).rstrip("0123456789")
    return plain in _CATEGORIES or plain.endswith(("code", "codes", "stratum", "type"))


def named_as_duration(column: str) -> bool:
    """Whether a column's name is that of a duration, whose cells look like times of day.

    >>> named_as_duration("Ride duration"), named_as_duration("time")
    (True, False)
    """
    return letters(column).endswith(_DURATIONS)


def days_or_years(column: str, low: float, high: float) -> str | None:
    """Return a sentence on whole numbers that are days of a spreadsheet or years, by the name and the range; else None.

    >>> [days_or_years(*each) is None for each in (("date", 43101, 45000), ("year", 1990, 2024), ("years", 1, 30))]
    [False, False, True]
    """
    parts = parts_of(column)
    if parts & {"date", "datum", "dob"} and low >= 20_000 and high <= 60_000:
        return (
            f"{column!r}: whole numbers such as the days of a spreadsheet, where 45000 is 15 March 2023. They are"
            " mapped as numbers, and dates would be left out: name the column in data.exclude. To map it with dates of"
            " other files, give it the kind date with the unit spreadsheet in a codebook."
        )
    if parts & {"year", "yr"} and low >= 1_800 and high <= 2_100:
        return (
            f"{column!r}: years, mapped as a quantity: years apart are rows apart. If they only say when a row was"
            " recorded, name the column in data.exclude."
        )
    return None
