"""Which columns of a table become features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from raydr.arrays import IntArray
from raydr.data.survey.coding import Coding
from raydr.data.survey.spelling import Agreement
from raydr.wire_types import travels

Categories: TypeAlias = Literal["error", "leave-out", "one-hot"]
"""How columns of text are treated: refused, left out, or turned into a 0/1 column per word."""


Features: TypeAlias = tuple[int, int]
"""First feature of a column, and the one after its last."""


@dataclass(frozen=True)
class JointColumns:
    """Columns of several features that count as one column.

    Attributes
    ----------
    words : tuple of (int, int)
        Features of each column of words, one for each word: a row has at most a single 1.
    circles : tuple of (int, int)
        Features of each circular column: sine and cosine.
    lists : tuple of (int, int)
        Features of each column of lists, one for each word: a row can have several.
    """

    words: tuple[Features, ...] = ()
    circles: tuple[Features, ...] = ()
    lists: tuple[Features, ...] = ()

    def scaled(self, scale: str) -> tuple[Features, ...]:
        """Return the features of columns whose features are scaled together, in their order.

        Circles are not under ``minmax``: opposite points have distance 1 there if sine and cosine each range from 0
        to 1.

        >>> JointColumns(((1, 3),), ((3, 5),)).scaled("standard"), JointColumns(((1, 3),), ((3, 5),)).scaled("minmax")
        (((1, 3), (3, 5)), ((1, 3),))
        """
        circles = self.circles if scale != "minmax" else ()
        return tuple(sorted((*self.words, *circles, *(self.lists if scale == "standard" else ()))))


@travels
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
        Columns of numbers that some file spells as text, with their unit (:mod:`raydr.data.survey.written_numbers`).
    codings : mapping of column to Coding
        How columns are read that are more than numbers or words (:mod:`raydr.data.survey.codebook`).
    agreement : Agreement or None
        What sites reported to agree on the layout, or None if they were not asked.
    """

    columns: tuple[str, ...]
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    codings: Mapping[str, Coding] = field(default_factory=dict)
    agreement: Agreement | None = None

    def names_of(self, column: str) -> tuple[str, ...]:
        """Return the names of a column's features."""
        if column in self.words:
            return tuple(f"{column}={word}" for word in self.words[column])
        return self.codings[column].names(column) if column in self.codings else (column,)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the mapped features.

        >>> Layout(("age", "sex"), {"sex": ("f", "m")}).features
        ('age', 'sex=f', 'sex=m')
        """
        return tuple(name for column in self.columns for name in self.names_of(column))

    @property
    def places(self) -> dict[str, slice]:
        """The features of each column.

        >>> Layout(("age", "sex"), {"sex": ("f", "m")}).places
        {'age': slice(0, 1, None), 'sex': slice(1, 3, None)}
        """
        stops = np.cumsum([0, *(len(self.names_of(column)) for column in self.columns)]).tolist()
        return dict(zip(self.columns, map(slice, stops, stops[1:]), strict=True))

    @property
    def joint(self) -> JointColumns:
        """The columns of several features that count as one column.

        >>> Layout(("age", "sex"), {"sex": ("f", "m")}).joint.words
        ((1, 3),)
        """
        places = {column: (place.start, place.stop) for column, place in self.places.items()}
        circles = {column for column, coding in self.codings.items() if coding.is_circle}
        lists = {column for column, coding in self.codings.items() if coding.kind == "list"}
        return JointColumns(
            tuple(place for column, place in places.items() if column in self.words),
            tuple(place for column, place in places.items() if column in circles),
            tuple(place for column, place in places.items() if column in lists),
        )

    def by_column(self, counts: IntArray) -> dict[str, int]:
        """Return counts above 0 by column, from equal counts for all features of a column.

        >>> Layout(("age", "sex"), {"sex": ("f", "m")}).by_column(np.array([0, 3, 3]))
        {'sex': 3}
        """
        return {
            column: int(counts[place.start]) for column, place in self.places.items() if counts[place.start]
        }

    @classmethod
    def of(
        cls,
        features: Sequence[str],
        words: Mapping[str, Sequence[str]],
        units: Mapping[str, str],
        codings: Mapping[str, Coding],
    ) -> Layout:
        """Return the layout that gives these features."""
        known = {column: tuple(each) for column, each in words.items()}
        part = cls((*words, *codings), known, codings=codings)
        column_of = {name: column for column in part.columns for name in part.names_of(column)}
        columns = dict.fromkeys(column_of.get(feature, feature) for feature in features)
        return cls(tuple(columns), known, units=units, codings=codings)
