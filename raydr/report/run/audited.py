"""What the server could recover, in words and pictures, from ``audit.json``."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from raydr.attacks.verdicts import Audit, Errors, Example, Verdict
from raydr.plain import plain
from raydr.report import charts, wording

MOST_GALLERIES = 6
"""Attempts whose records are shown: one of each attack, the one that came nearest."""


MOST_LISTED = 10
"""Columns of a verdict that are named."""
ALIGNMENT = "distribution-alignment"
"""The attack whose error over public rows is drawn."""
_LEAST_GAIN = 0.1
"""Part of a guess's error that the best attempt must take away for a frame to be said to be found."""


@dataclass(kw_only=True, frozen=True)
class Line:
    """An attempt in a row of the table.

    Attributes
    ----------
    attack, description, variant, knows : str
    messages : str
        Which it read, and how many there were.
    error, guess : str
        Median error of what was recovered, and of guessing.
    exact : str
        Part of the records that are known to 1e-3.
    said : str
        What else there is to say, or why the attack does not apply.
    beats : bool
        Whether the messages gave something away.
    applies : bool
    """

    attack: str
    description: str
    variant: str
    knows: str
    messages: str
    error: str
    guess: str
    exact: str
    said: str
    beats: bool
    applies: bool


@dataclass(frozen=True)
class Shown:
    """A record beside its estimate: addresses of two pictures, or two rows of values."""

    row: str
    error: str
    true: str | tuple[str, ...]
    recovered: str | tuple[str, ...]


@dataclass(frozen=True)
class Gallery:
    """Records of one attempt, the best first."""

    attack: str
    variant: str
    shown: tuple[Shown, ...]


def lines(audit: Audit) -> list[Line]:
    """One for each attempt, those that do not apply last."""
    found = [_line(verdict) for verdict in audit.verdicts]
    return sorted(found, key=lambda line: not line.applies)


def _line(verdict: Verdict) -> Line:
    error, guess, exact, said, beats = "–", "–", "–", verdict.why, False
    if verdict.errors is not None:
        errors = verdict.errors
        error, guess = _error(errors.centred.median), _error(errors.centred_guess.median)
        exact, beats = wording.percent(errors.exact), errors.beats_guessing
        relative, guessed = (_error(of.median) for of in (errors.relative, errors.relative_guess))
        said = (
            f"{wording.plural(errors.records, 'record')}; by a record's length {relative}, guessing {guessed}"
        )
        if verdict.certificate is not None:
            called, right = verdict.certificate.called_exact, verdict.certificate.of_those_exact
            said += f"; the server can tell of {called:,} that it has them, and is right of {right:,}"
    if verdict.membership is not None:
        found = verdict.membership
        error, guess, beats = f"AUC {found.auc:.3f}", "AUC 0.500", found.tells_apart
        said = (
            f"{wording.percent(found.tpr)} of {found.members:,} members found at one false alarm in a thousand of"
            f" {found.others:,} others"
        )
    if verdict.shares is not None:
        shares = verdict.shares
        error, guess = _error(shares.error), _error(shares.guess)
        beats = shares.beats_guessing
        said = (
            f"mean absolute error of the share of {wording.plural(shares.groups, 'group')} at"
            f" {wording.plural(shares.clients, 'client')}"
        )
    if verdict.columns:
        first = verdict.columns[0]
        error, guess, beats = _error(first.error), _error(first.guess), bool(verdict.told)
        said = by_column(verdict)
    if verdict.bound is not None:
        bound = verdict.bound
        error, guess, beats = (
            f"ε ≥ {bound.epsilon:.3g}",
            f"claimed {bound.claimed:.3g}",
            bound.is_broken,
        )
        said = f"at delta {bound.delta:g}, with confidence {bound.confidence:g}"
        if bound.is_broken:
            said = f"the claim does not hold: with the noise that was measured, ε is {bound.measured:.3g}; {said}"
    messages = ", ".join(f"{count:,} {kind}" for kind, count in verdict.messages.items())
    return Line(
        attack=verdict.attack,
        description=verdict.description,
        variant=verdict.variant,
        knows=verdict.knows,
        messages=messages,
        error=error,
        guess=guess,
        exact=exact,
        said=said,
        beats=beats,
        applies=not verdict.why,
    )


def by_column(verdict: Verdict) -> str:
    """How many columns the messages tell, and of some the error and the guess, those first of which they add most."""
    told, every = len(verdict.told), wording.plural(len(verdict.columns), "column")
    listed = []
    for one in verdict.columns[:MOST_LISTED]:
        text = f"{plain(one.column)} {_error(one.error)} for {_error(one.guess)}"
        if one.accuracy is not None and one.accuracy_guess is not None:
            text += f" (right: {wording.percent(one.accuracy)} for {wording.percent(one.accuracy_guess)})"
        listed.append(text)
    more = len(verdict.columns) - len(listed)
    return (
        f"{told:,} of {every} told better than by guessing; error over the column's deviation: {', '.join(listed)}"
        f"{f' and {more:,} more' if more else ''}"
    )


def tried_alignments(audit: Audit) -> list[tuple[int, Errors]]:
    """Numbers of public rows that distribution-alignment was given, ascending, and what came of each."""
    tried = [
        (int(verdict.numbers["public_rows"]), verdict.errors)
        for verdict in audit.verdicts
        if verdict.attack == ALIGNMENT and verdict.errors is not None and "public_rows" in verdict.numbers
    ]
    return sorted(tried, key=lambda attempt: attempt[0])


def enough_public_rows(audit: Audit) -> str:
    """A sentence on how many rows of like data undo a secret frame of these data; empty where it was not tried.

    The smallest number tried from which on errors are at most half-way between a guess and the best attempt; with
    fewer, neighbours may settle in a wrong turn, so a smaller number that did well by chance does not count.
    """
    tried = tried_alignments(audit)
    if not tried:
        return ""
    best = min(errors.centred.median for _, errors in tried)
    guess = tried[-1][1].centred_guess.median
    most = tried[-1][0]
    if best > (1.0 - _LEAST_GAIN) * guess:
        return f"{ALIGNMENT} does not find a secret frame of these data with {most:,} rows like them."
    half = (guess + best) / 2.0
    count = most
    for tried_count, errors in reversed(tried):
        if errors.centred.median > half:
            break
        count = tried_count
    return (
        f"{ALIGNMENT} takes {count:,} rows like these data to undo a secret frame: from there on, of the numbers tried,"
        f" the error is at most half-way ({_error(half)}) from a guess ({_error(guess)}) to the best"
        f" ({_error(best)})."
    )


def curve(audit: Audit) -> charts.LineChart | None:
    """Median error of distribution-alignment over the logarithm of public rows; None with fewer than two attempts."""
    tried = tried_alignments(audit)
    counts, errors = [count for count, _ in tried], [found.centred.median for _, found in tried]
    guess = tried[-1][1].centred_guess.median if tried else None
    logarithms = [math.log10(max(count, 1)) for count in counts]
    chart = charts.line_chart(logarithms, errors, "error", guess)
    if chart is None or len(chart.points) < len(counts):
        return None
    said = [f"{count:,} public rows: {_error(error)}" for count, error in zip(counts, errors, strict=True)]
    return replace(
        chart,
        points=tuple((x, y, text) for (x, y, _), text in zip(chart.points, said, strict=True)),
        said=f"{said[0]}, {said[-1]}, where a guess is off by {_error(float(guess or 0.0))}",
        x_ticks=tuple(
            charts.Tick(min(x, chart.right - 14.0), f"{count:,}")
            for (x, _, _), count in zip(chart.points, counts, strict=True)
        ),
    )


def galleries(audit: Audit, verdicts: Sequence[Verdict] | None = None) -> list[Gallery]:
    """Recovered beside true records, of the nearest of an audit's attempts, or of these, for each attack."""
    nearest: dict[str, Verdict] = {}
    for verdict in audit.verdicts if verdicts is None else verdicts:
        if verdict.errors is None or not verdict.examples:
            continue
        best = nearest.get(verdict.attack)
        if best is None or best.errors is None or verdict.errors.centred.median < best.errors.centred.median:
            nearest[verdict.attack] = verdict
    return [
        Gallery(
            verdict.attack, verdict.variant, tuple(_shown(example, audit) for example in verdict.examples)
        )
        for verdict in list(nearest.values())[:MOST_GALLERIES]
    ]


def _shown(example: Example, audit: Audit) -> Shown:
    error = _error(example.error)
    if audit.image is None or len(example.true) != int(np.prod(audit.image)):
        return Shown(example.row, error, _values(example.true), _values(example.recovered))
    low, high = min(example.true), max(example.true)
    true, recovered = (
        _picture(values, audit.image, low, high) for values in (example.true, example.recovered)
    )
    return Shown(example.row, error, true, recovered)


def _picture(values: Sequence[float], image: tuple[int, int, int], low: float, high: float) -> str:
    """Address of a picture of a row, its shades those of the true record's range."""
    from matplotlib.image import imsave

    height, width, channels = image
    shades = np.clip((np.array(values) - low) / max(high - low, 1e-300), 0.0, 1.0)
    pixels = np.repeat(shades.reshape(height, width, channels), 3 // channels, axis=2)
    file = io.BytesIO()
    imsave(file, pixels, format="png")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _values(values: Sequence[float]) -> tuple[str, ...]:
    return tuple(_number(value) for value in values)


def _error(value: float) -> str:
    """An error in words; what rounding alone may make is no number that anybody needs."""
    return "<\u00a010⁻⁶" if 0.0 < value < 1e-6 else _number(value)


def _number(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")
