"""Sites agree on the words of a column of text without showing which site has which word.

The server starts with nothing and names beginnings of words. Each site votes 0 or 1 for each byte that could follow,
and for the end of the word. A beginning goes on, and a word counts, only if enough sites vote for it: so a word of
fewer sites is never spelt to its end. The server then names the longer beginnings (Zhu et al. 2020 grow a tree of
popular words in this way; no noise covers the votes here).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from raydr.arrays import Int64Array

_END = 256  # the vote next to those on 256 bytes


@dataclass(frozen=True)
class Threshold:
    """How many ``rows`` of a site, and how many ``sites``, must have a word before it is told and mapped.

    Of fewer sites than that, all must have it.
    """

    rows: int = 5
    sites: int = 2

    def why(self, sites: int) -> str:
        """Return why a column is left out if none of its words is known to enough of these sites."""
        each = f" at each of {min(self.sites, sites)} sites" if min(self.sites, sites) > 1 else ""
        return f"text without a word that {self.rows} rows{each} have (data.words)"


DEFAULT_THRESHOLD = Threshold()


@dataclass(frozen=True)
class Agreement:
    """Messages of each site about columns and words, for the ledger.

    Attributes
    ----------
    columns : int
        Bytes of the columns' names and of what each holds.
    calls : int
        How often the site was asked for letters of words, all columns at once.
    votes : int
        How many votes it cast on letters in all.
    """

    columns: int
    calls: int = 0
    votes: int = 0


@dataclass(frozen=True)
class Spelt:
    """The result of spelling words.

    Attributes
    ----------
    words : tuple of str
        Words that enough sites have, in order.
    calls : int
        How often sites were asked.
    votes : int
        How many votes each site cast, for words that were not kept too.
    """

    words: tuple[str, ...]
    calls: int
    votes: int


def spell_out(sites: Sequence[Iterable[str]], least: int = 1) -> Spelt:
    """Return the words that at least ``least`` sites have, found by sums of votes alone.

    Examples
    --------
    >>> spell_out([["yes", "no"], ["no", "now"], []]).words
    ('no', 'now', 'yes')
    >>> spell_out([["yes", "no"], ["no", "now"], []], least=2)
    Spelt(words=('no',), calls=3, votes=771)
    """
    own = [frozenset(word.encode() for word in words) for words in sites]
    found: list[bytes] = []
    beginnings, calls, cast = [b""], 0, 0
    while beginnings:
        sums = np.sum([votes(words, beginnings) for words in own], axis=0)
        calls, cast = calls + 1, cast + sums.size
        found += [each for each, counted in zip(beginnings, sums, strict=True) if counted[_END] >= least]
        beginnings = [
            beginning + bytes([letter])
            for beginning, counted in zip(beginnings, sums, strict=True)
            for letter in np.flatnonzero(counted[:_END] >= least).tolist()
        ]
    return Spelt(tuple(sorted(word.decode() for word in found)), calls, cast)


def votes(words: Collection[bytes], beginnings: Sequence[bytes]) -> Int64Array:
    """Return a site's votes (beginnings, 257), 0 or 1: which bytes follow each beginning, and whether a word ends."""
    cast = np.zeros((len(beginnings), _END + 1), np.int64)
    for place, beginning in enumerate(beginnings):
        length = len(beginning)
        for word in words:
            if word[:length] == beginning:
                cast[place, word[length] if len(word) > length else _END] = 1
    return cast
