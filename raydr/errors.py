"""Error types: one for each exit status and reader.

Every message is one paragraph: what is wrong, where, and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches


class RaydrError(Exception):
    """Base class of every error that raydr raises on purpose.

    ``exit_code`` is the exit status of the command line: 2 for a scenario, data or path that cannot be used,
    3 for a run that started and failed.
    """

    exit_code = 3


class ScenarioError(RaydrError, ValueError):
    """A scenario that cannot be run: unknown key, wrong type, impossible combination."""

    exit_code = 2


class DataError(RaydrError, ValueError):
    """Data that cannot be used as asked: missing column, text in a feature, missing values, too few rows."""

    exit_code = 2


class FeatureError(DataError):
    """Data that cannot be used for one feature, raised by code that knows features only by number.

    Parameters
    ----------
    text : str
        The paragraph, with ``{feature}`` in place of the feature's name.
    feature : int
        The feature's number, from 0.
    """

    def __init__(self, text: str, feature: int) -> None:
        super().__init__(text, feature)
        self.text, self.feature = text, feature

    def __str__(self) -> str:
        return self._calling(f"feature number {self.feature} (the first is 0)")

    def of(self, names: Sequence[str]) -> DataError:
        """Return the same error with the feature's name."""
        return DataError(self._calling(f"the column {names[self.feature]!r}"))

    def _calling(self, feature: str) -> str:
        text = self.text.replace("{feature}", feature)
        return text[0].upper() + text[1:]


def named(text: str, names: Sequence[str]) -> str:
    """Return a text with the names of features in place of the numbers that :class:`FeatureError` writes.

    >>> named("Feature number 1 (the first is 0) is too wide.", ["age", "bmi"])
    "the column 'bmi' is too wide."
    """
    return re.sub(
        r"[Ff]eature number (\d+) \(the first is 0\)",
        lambda found: f"the column {names[int(found[1])]!r}",
        text,
    )


class OutputError(RaydrError, OSError):
    """An output folder, run folder or other file that cannot be read or written."""

    exit_code = 2


class RunError(RaydrError):
    """A run that started but could not be completed."""


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """Return `` (did you mean NAME?)`` with the most similar name, or an empty string if none is similar.

    >>> did_you_mean("glucsoe", ["age", "Glucose"]), did_you_mean("bmi", ["weight"])
    (' (did you mean Glucose?)', '')
    """
    folded = {other.casefold(): other for other in valid if other != name}
    close = get_close_matches(name.casefold(), folded, n=1, cutoff=0.5)
    if not close:
        return ""
    found = folded[close[0]]
    plain = re.fullmatch(r"[\w./-]+", found) is not None
    return f" (did you mean {found if plain else repr(found)}?)"
