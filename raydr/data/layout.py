"""Which columns of a table become features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from raydr.arrays import IntArray
from raydr.data.spelling import Agreement

Categories: TypeAlias = Literal["error", "leave-out", "one-hot"]
"""How columns of text are treated: refused, left out, or turned into a 0/1 column per word."""


@dataclass(frozen=True)
class Layout:
    """Which columns are mapped, and as what.

    Attributes
    ----------
    columns : tuple of str
        Columns of the table, in their order.
    words : mapping of column to tuple of str
        Words of the columns that become one 0/1 column per word.
    left_out : mapping of column to str
        Columns that are not features, with the reason.
    units : mapping of column to str
        Columns of numbers that some file spells as text, with their unit (:mod:`raydr.data.written_numbers`).
    agreement : Agreement or None
        What sites reported to agree on the layout, or None if they were not asked.
    """

    columns: tuple[str, ...]
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    agreement: Agreement | None = None

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the mapped features.

        >>> Layout(("age", "sex"), {"sex": ("f", "m")}).features
        ('age', 'sex=f', 'sex=m')
        """
        return tuple(
            name
            for column in self.columns
            for name in (
                [f"{column}={word}" for word in self.words[column]] if column in self.words else [column]
            )
        )

    @property
    def word_columns(self) -> tuple[tuple[int, int], ...]:
        """For each column of words, its first feature and the one after its last.

        >>> Layout(("age", "sex"), {"sex": ("f", "m")}).word_columns
        ((1, 3),)
        """
        stops = np.cumsum([len(self.words.get(column, "1")) for column in self.columns]).tolist()
        return tuple(
            (stop - len(self.words[column]), stop)
            for column, stop in zip(self.columns, stops, strict=True)
            if column in self.words
        )

    def by_column(self, counts: IntArray) -> dict[str, int]:
        """Return counts above 0 by column, from equal counts for all features of a column.

        >>> Layout(("age", "sex"), {"sex": ("f", "m")}).by_column(np.array([0, 3, 3]))
        {'sex': 3}
        """
        widths = [len(self.words.get(column, "1")) for column in self.columns]
        firsts = np.cumsum([0, *widths[:-1]])
        return {
            column: int(counts[first])
            for column, first in zip(self.columns, firsts, strict=True)
            if counts[first]
        }

    @classmethod
    def of(
        cls, features: Sequence[str], words: Mapping[str, Sequence[str]], units: Mapping[str, str]
    ) -> Layout:
        """Return the layout that gives these features."""
        column_of = {f"{column}={word}": column for column, each in words.items() for word in each}
        columns = dict.fromkeys(column_of.get(feature, feature) for feature in features)
        return cls(tuple(columns), {column: tuple(each) for column, each in words.items()}, units=units)
