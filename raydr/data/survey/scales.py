"""Words with an order that everybody knows, such as none, mild and severe, and ranges of numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from raydr.data.survey.circles import words_of_circle
from raydr.data.survey.coding import Coding
from raydr.data.survey.columns import letters
from raydr.data.survey.written_numbers import MISSING_WORDS

_LEAST = 3  # words of a column that show a scale
_RANGE = re.compile(
    r"((?P<below>[<\u2264]=?|under|up to|below|less than|lt|le) ?|(?P<above>[>\u2265]=?|over|above|more than|gt|ge) ?)?"
    r"(?P<low>\d+(\.\d+)?)( ?(-|to|\u2013) ?(?P<high>\d+(\.\d+)?)"
    r"|(?P<more> ?\+| or (more|over|above)| and (over|above)))?[^\d]{0,12}"
)
_MONEY = re.compile(r"[$\u00a2-\u00a5\u20a0-\u20bf]|(?<=\d),(?=\d{3})")
_PIECE = re.compile(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+(?![a-z])|[\W\d_]+")
_SCALES = tuple(
    tuple(frozenset(map(letters, rank.split("/"))) for rank in scale.split(" < "))
    for scale in (
        "none/no/absent < very mild/minimal < mild < moderate < severe < very severe/extreme",
        "very low < low < medium/moderate/normal/average/middle < high < very high/critical/urgent",
        "very small < small < medium < large < very large",
        "strongly disagree/completely disagree < disagree < somewhat disagree/slightly disagree"
        " < neutral/neither agree nor disagree/undecided < somewhat agree/slightly agree < agree"
        " < strongly agree/completely agree",
        "very dissatisfied < dissatisfied < neutral/neither satisfied nor dissatisfied < satisfied < very satisfied",
        "very unlikely < unlikely < neutral < likely < very likely",
        "never/no/non/none < almost never < rarely/seldom < sometimes/occasionally < often/frequently/usually"
        " < almost always/very often < always",
        "very poor < poor < fair < good < very good < excellent",
        "not at all/not < a little/a little bit/slightly/not too/not very < somewhat/moderately/fairly/pretty"
        " < quite a bit/very < very much/extremely",
        "very bad < bad < neutral/average/medium < good < very good",
        "worst < worse/bad/poor < good/fair < better < best",
        "none/never < some/sometimes/occas/occasional < regul/regular/marked < freq/frequent/heavy",
        "beginner < intermediate < advanced < expert",
        "stage i < stage ii < stage iii < stage iv",
        "xxs < xs < s < m < l < xl < xxl < xxxl",
        "bronze < silver < gold < platinum",
        "below college < college/some college < bachelor/bachelors < master/masters < doctor/doctorate/phd",
        "hs drop out/less than high school/some high school/primary < hs/high school/high school graduate/secondary"
        " < some college/associate < college/college graduate/bachelor/bachelors < master/masters/graduate"
        " < doctor/doctorate/phd",
        "first/1st < second/2nd < third/3rd < fourth/4th < fifth/5th",
        "asstprof/assistant professor < assocprof/associate professor < prof/professor/full professor",
    )
)
"""Ranks of each scale, from low to high. Of words that mean the same, separated by /, a column may have one."""


def in_order(words: Sequence[str]) -> tuple[str, ...] | None:
    """Return the words from low to high if they are at least three ranks of one scale or ranges, else None.

    >>> in_order(["Mild", "None", "Severe"]), in_order(["blue", "mild", "severe"]), in_order(["no", "none", "mild"])
    (('None', 'Mild', 'Severe'), None, None)
    >>> in_order(["75+", "0-9 years", "10-74"]), in_order(["10-20", "15-30", "40+"])
    (('0-9 years', '10-74', '75+'), None)
    >>> in_order(["$11-$25k", ">$25k", "under $11k"]), in_order(["$500-$1k", "$2k-$3k", "over $3k"])
    (('under $11k', '$11-$25k', '>$25k'), None)
    >>> in_order(["1965-69", "1970-74", "1960-64"]), in_order([">50 mm", "<=20 mm", ">20-50 mm"])
    (('1960-64', '1965-69', '1970-74'), ('<=20 mm', '>20-50 mm', '>50 mm'))
    >>> in_order(["10+ years", "< 1 year", "2 years"]), in_order(["Travel_Often", "Non-Travel", "Travel_Rarely"])
    (('< 1 year', '2 years', '10+ years'), ('Non-Travel', 'Travel_Rarely', 'Travel_Often'))
    """
    if len(words) < _LEAST:
        return None
    own = _own_parts(words)
    known = [word for word in words if own[word].casefold() not in MISSING_WORDS]
    return (
        _ranges({own[word]: word for word in known})
        or _ranked(words, words)
        or _ranked(known, [own[word] for word in known])
    )


def _ranked(words: Sequence[str], texts: Sequence[str]) -> tuple[str, ...] | None:
    """Return the words from low to high if their texts (words,) are ranks of one scale, else None."""
    plain = list(map(letters, texts))
    for scale in _SCALES:
        ranks = [next((rank for rank, same in enumerate(scale) if text in same), None) for text in plain]
        known = [rank for rank in ranks if rank is not None]
        if len(set(known)) == len(words) >= _LEAST:
            return tuple(word for _, word in sorted(zip(known, words, strict=True)))
    return None


def _own_parts(words: Sequence[str]) -> dict[str, str]:
    """Return each word without the parts that all have, or all words if one has no others.

    >>> _own_parts(["Non-Travel", "Travel_Rarely"]), _own_parts(["emp_ge_10", "emp_1"])
    ({'Non-Travel': 'Non', 'Travel_Rarely': 'Rarely'}, {'emp_ge_10': 'ge 10', 'emp_1': '1'})
    """
    pieces = {word: _PIECE.findall(word) for word in words}
    shared = set.intersection(
        *({piece.casefold() for piece in each if piece.isalpha()} for each in pieces.values())
    )
    own = {
        word: "".join(piece for piece in each if piece.casefold() not in shared)
        .strip(" _-.:")
        .replace("_", " ")
        for word, each in pieces.items()
    }
    return (
        own
        if shared and all(own.values()) and len(set(own.values())) == len(words)
        else dict(zip(words, words, strict=True))
    )


def is_partly_in_order(words: Sequence[str]) -> bool:
    """Return whether some words, but not all, are different ranks of one scale.

    >>> is_partly_in_order(["Fair", "Good", "Ideal"]), is_partly_in_order(["good", "red", "blue"])
    (True, False)
    """
    plain = set(map(letters, words))
    return any(1 < sum(bool(rank & plain) for rank in scale) < len(words) for scale in _SCALES)


def _ranges(words: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return words from low to high if their texts, the keys, are ranges of numbers that do not overlap, else None."""
    found = []
    for text, word in words.items():
        parts = _RANGE.fullmatch(_MONEY.sub("", text.casefold()).strip())
        if parts is None:
            return None
        low = float(parts["low"])
        last = parts["high"] or parts["low"]
        if re.fullmatch(r"[12]\d{3}", parts["low"]) and re.fullmatch(r"\d\d", last):  # 1960-64
            last = parts["low"][:2] + last
        open_end = parts["more"] or (parts["above"] and not parts["high"])  # >20-50 has an end
        high = np.inf if open_end else float(last)
        ends = (-np.inf, low) if parts["below"] else (low, high)
        found.append((*ends, word))
    found.sort()
    ranges = [(low, high) for low, high, _ in found]
    apart = all(high <= low for (_, high), (low, _) in pairwise(ranges)) and len(set(ranges)) == len(words)
    apart = apart and all(low <= high for low, high in ranges)  # in 500-1k, high is 1
    # 4, 6 and 8 are no ranges, but 0, 1 and 2+ are.
    enough = 2 * sum(low < high for low, high in ranges) >= len(words) or np.isinf(ranges).any()
    return tuple(word for *_, word in found) if apart and enough else None


def ordered(column: str, words: Sequence[str]) -> Coding | None:
    """Return the coding of words with an order: a scale, ranges, months or points of the compass; else None.

    >>> ordered("month", ["Feb", "Dec", "Jan"]).kind, ordered("name", ["Feb", "Dec", "Jan"])
    ('circular', None)
    """
    order = in_order(words)
    if order is not None:
        return Coding(kind="ordinal", words=order)
    circle = words_of_circle(column, words)
    return None if circle is None else Coding(kind="circular", words=circle)
