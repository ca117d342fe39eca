"""Agreement of sites on the words of a text column, without showing which site has which word.

The server starts from the empty beginning. For each beginning of a word, each site votes 0 or 1 for each byte
that could follow, and for the end of the word. A beginning continues, and a word counts, only if enough sites
vote for it. So a word of fewer sites is never spelt to its end. The server then asks for the longer
beginnings. Zhu et al. 2020 grow a tree of popular words in this way. The votes here have no noise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from raydr.arrays import Int64Array
from raydr.wire_types import travels

_END = 256  # the vote after those for 256 bytes


@travels
@dataclass(frozen=True)
class Threshold:
    """Minimum ``rows`` of a site and minimum ``sites`` that must have a word before it is revealed and mapped.

    If there are fewer sites than that, all must have it.
    """

    rows: int = 5
    sites: int = 2

    def why(self, sites: int) -> str:
        """Return the reason why a column is left out if none of its words is common enough."""
        each = f" at each of {min(self.sites, sites)} sites" if min(self.sites, sites) > 1 else ""
        return f"text without a word that {self.rows} rows{each} have (data.words)"


DEFAULT_THRESHOLD = Threshold()


@travels
@dataclass(frozen=True)
class Agreement:
    """Messages of each site about columns and words, for the ledger.

    Attributes
    ----------
    columns : int
        Bytes of the names of the columns and of what each holds.
    calls : int
        Number of requests to a site for letters of words, for all columns at once.
    votes : int
        Number of votes of a site on letters in all.
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
        Number of requests to the sites.
    votes : int
        Number of votes of each site, including those for words that were not kept.
    """

    words: tuple[str, ...]
    calls: int
    votes: int


def spell_out(sites: Sequence[Iterable[str]], least: int = 1) -> Spelt:
    """Return the words that at least ``least`` sites have, from sums of votes alone.

    Examples
    --------
    >>> spell_out([["yes", "no"], ["no", "now"], []]).words
    ('no', 'now', 'yes')
    >>> spell_out([["yes", "no"], ["no", "now"], []], least=2)
    Spelt(words=('no',), calls=3, votes=771)
    """
    own = [frozenset(word.encode() for word in words) for words in sites]

    def sums(beginnings: Asked) -> dict[str, Int64Array]:
        return {
            column: np.sum([votes(words, each) for words in own], axis=0)
            for column, each in beginnings.items()
        }

    return spell_together([""], least, sums)[""]


Asked: TypeAlias = Mapping[str, tuple[bytes, ...]]
"""Beginnings of words, by column, for which sites vote."""


def spell_together(
    columns: Iterable[str], least: int, ask: Callable[[Asked], Mapping[str, Int64Array]]
) -> dict[str, Spelt]:
    """Return the words of several columns that at least ``least`` sites have; each call is about all of them.

    Parameters
    ----------
    columns : iterable of str
        The columns.
    least : int
        Number of sites.
    ask : callable
        Returns the sums of the sites' :func:`votes` (beginnings, 257) by column.
    """
    spelling = {column: _spelling(least) for column in columns}
    asked, found = {column: next(each) for column, each in spelling.items()}, {}
    while asked:
        following = {}
        for column, sums in ask(asked).items():
            try:
                following[column] = spelling[column].send(sums)
            except StopIteration as end:
                found[column] = end.value
        asked = following
    return {column: found[column] for column in spelling}


def _spelling(least: int) -> Generator[tuple[bytes, ...], Int64Array, Spelt]:
    """Yield the beginnings of words to vote for, receive the sums of votes, and return the words."""
    found: list[bytes] = []
    beginnings, calls, cast = [b""], 0, 0
    while beginnings:
        sums = yield tuple(beginnings)
        calls, cast = calls + 1, cast + sums.size
        found += [each for each, counted in zip(beginnings, sums, strict=True) if counted[_END] >= least]
        beginnings = [
            beginning + bytes([letter])
            for beginning, counted in zip(beginnings, sums, strict=True)
            for letter in np.flatnonzero(counted[:_END] >= least).tolist()
        ]
    return Spelt(tuple(sorted(word.decode() for word in found)), calls, cast)


def votes(words: Collection[bytes], beginnings: Sequence[bytes]) -> Int64Array:
    """Return a site's votes (beginnings, 257), 0 or 1: the bytes after each beginning, and the word's end."""
    cast = np.zeros((len(beginnings), _END + 1), np.int64)
    for place, beginning in enumerate(beginnings):
        length = len(beginning)
        for word in words:
            if word[:length] == beginning:
                cast[place, word[length] if len(word) > length else _END] = 1
    return cast
