"""Texts and pictures of what the attacks in ``audit.json`` recovered."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from raydr.attacks.verdicts import Audit, Errors, Example, Verdict
from raydr.plain import plain, short_number
from raydr.report import charts, wording

MOST_GALLERIES = 6
"""Largest number of attacks whose records are shown, each by its best attempt."""


MOST_LISTED = 10
"""Largest number of columns that are named for an attempt."""
ALIGNMENT = "distribution-alignment"
"""The attack whose error is drawn against the number of public rows."""
_LEAST_GAIN = 0.1
"""Smallest reduction of a guess's error, as a fraction, that counts as finding the frame."""


@dataclass(kw_only=True, frozen=True)
class AttemptRow:
    """One attempt as a row of the table.

    Attributes
    ----------
    attack, description, variant, knows : str
    messages : str
        Kinds of message that it read, with their counts.
    error, guess : str
        Median error of the recovered records, and of guessing.
    exact : str
        Share of the records that are known to 1e-3.
    details : str
        Further results, or why the attack does not apply.
    beats : bool
        Whether the attempt is better than guessing.
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
    details: str
    beats: bool
    applies: bool


@dataclass(frozen=True)
class Shown:
    """A record and its estimate: addresses of two pictures, or two rows of values."""

    row: str
    error: str
    true: str | tuple[str, ...]
    recovered: str | tuple[str, ...]


@dataclass(frozen=True)
class Gallery:
    """Records of one attempt, best first."""

    attack: str
    variant: str
    shown: tuple[Shown, ...]


def lines(audit: Audit) -> list[AttemptRow]:
    """Return a row for each attempt, those that do not apply last."""
    found = [_line(verdict) for verdict in audit.verdicts]
    return sorted(found, key=lambda line: not line.applies)


def _line(verdict: Verdict) -> AttemptRow:
    error, guess, exact, details, beats = "–", "–", "–", verdict.why, False
    if verdict.errors is not None:
        errors = verdict.errors
        error, guess = _error(errors.centred.median), _error(errors.centred_guess.median)
        exact, beats = wording.percent(errors.exact), errors.beats_guessing
        relative, guessed = (_error(of.median) for of in (errors.relative, errors.relative_guess))
        records = wording.plural(errors.records, "record")
        details = f"{records}; relative to a record's length {relative}, guessing {guessed}"
        if verdict.certificate is not None:
            called, right = verdict.certificate.called_exact, verdict.certificate.of_those_exact
            details += f"; the server itself calls {called:,} exact, and {right:,} of them are"
    if verdict.membership is not None:
        found = verdict.membership
        error, guess, beats = f"AUC {found.auc:.3f}", "AUC 0.500", found.tells_apart
        details = (
            f"{wording.percent(found.tpr)} of {found.members:,} members found, at one false alarm in 1,000"
            f" among {found.others:,} others"
        )
    if verdict.shares is not None:
        shares = verdict.shares
        error, guess = _error(shares.error), _error(shares.guess)
        beats = shares.beats_guessing
        details = (
            f"mean absolute error of the shares of {wording.plural(shares.groups, 'group')} at"
            f" {wording.plural(shares.clients, 'client')}"
        )
    if verdict.columns:
        first = verdict.columns[0]
        error, guess, beats = _error(first.error), _error(first.guess), bool(verdict.inferred_columns)
        details = by_column(verdict)
    if verdict.bound is not None:
        bound = verdict.bound
        error, guess, beats = (
            f"ε ≥ {bound.epsilon:.3g}",
            f"claimed {bound.claimed:.3g}",
            bound.is_broken,
        )
        details = f"at delta {short_number(bound.delta)}, with confidence {bound.confidence:g}"
        if bound.is_broken:
            details = f"the claim is broken: with the measured noise, ε is {bound.measured:.3g}; {details}"
    messages = ", ".join(f"{count:,} {kind}" for kind, count in verdict.messages.items())
    return AttemptRow(
        attack=verdict.attack,
        description=verdict.description,
        variant=verdict.variant,
        knows=verdict.knows,
        messages=messages,
        error=error,
        guess=guess,
        exact=exact,
        details=details,
        beats=beats,
        applies=not verdict.why,
    )


def by_column(verdict: Verdict) -> str:
    """Describe how many columns were inferred, with the error and the guess of those to which messages add most."""
    inferred, every = len(verdict.inferred_columns), wording.plural(len(verdict.columns), "column")
    listed = []
    for one in verdict.columns[:MOST_LISTED]:
        text = f"{plain(one.column)} {_error(one.error)} (guessing {_error(one.guess)}"
        if one.accuracy is not None and one.accuracy_guess is not None:
            text += (
                f"; accuracy {wording.percent(one.accuracy)}, guessing {wording.percent(one.accuracy_guess)}"
            )
        text += ")"
        listed.append(text)
    more = len(verdict.columns) - len(listed)
    return (
        f"{inferred:,} of {every} inferred better than by guessing; error over the column's standard deviation:"
        f" {', '.join(listed)}{f' and {more:,} more' if more else ''}"
    )


def tried_alignments(audit: Audit) -> list[tuple[int, Errors]]:
    """Return the numbers of public rows that distribution-alignment was given, ascending, with their errors."""
    tried = [
        (int(verdict.numbers["public_rows"]), verdict.errors)
        for verdict in audit.verdicts
        if verdict.attack == ALIGNMENT and verdict.errors is not None and "public_rows" in verdict.numbers
    ]
    return sorted(tried, key=lambda attempt: attempt[0])


def enough_public_rows(audit: Audit) -> str:
    """Describe how many similar rows undo a secret frame; empty if this was not tried.

    This is the smallest number tried from which on all errors are at most half-way between a guess and the best
    attempt. A smaller number that did well by chance does not count: with few rows, the attack may settle on a wrong
    rotation.
    """
    tried = tried_alignments(audit)
    if not tried:
        return ""
    best = min(errors.centred.median for _, errors in tried)
    guess = tried[-1][1].centred_guess.median
    most = tried[-1][0]
    if best > (1.0 - _LEAST_GAIN) * guess:
        return f"With {most:,} similar rows, {ALIGNMENT} does not undo a secret frame of these data."
    half = (guess + best) / 2.0
    count = most
    for tried_count, errors in reversed(tried):
        if errors.centred.median > half:
            break
        count = tried_count
    return (
        f"{ALIGNMENT} needs {count:,} similar rows to undo a secret frame of these data. From this number on, its"
        f" error is at most {_error(half)}, half-way between a guess ({_error(guess)}) and the best attempt"
        f" ({_error(best)})."
    )


def curve(audit: Audit) -> charts.LineChart | None:
    """Chart the median error of distribution-alignment by log10 of public rows; None with fewer than two attempts."""
    tried = tried_alignments(audit)
    counts, errors = [count for count, _ in tried], [found.centred.median for _, found in tried]
    guess = tried[-1][1].centred_guess.median if tried else None
    logarithms = [math.log10(max(count, 1)) for count in counts]
    chart = charts.line_chart(logarithms, errors, "error", guess)
    if chart is None or len(chart.points) < len(counts):
        return None
    texts = [f"{count:,} public rows: {_error(error)}" for count, error in zip(counts, errors, strict=True)]
    return replace(
        chart,
        points=tuple((x, y, text) for (x, y, _), text in zip(chart.points, texts, strict=True)),
        description=f"{texts[0]}, {texts[-1]}; guessing: {_error(float(guess or 0.0))}",
        x_ticks=tuple(
            charts.Tick(min(x, chart.right - 14.0), f"{count:,}")
            for (x, _, _), count in zip(chart.points, counts, strict=True)
        ),
    )


def galleries(audit: Audit, verdicts: Sequence[Verdict] | None = None) -> list[Gallery]:
    """Return true and recovered records of each attack's best attempt, from ``verdicts`` or the whole audit."""
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
    """Return the address of a picture of a row, shaded by the range of the true record."""
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
    """Write an error; below 1e-6, where rounding decides, only as ``< 10⁻⁶``."""
    return "<\u00a010⁻⁶" if 0.0 < value < 1e-6 else _number(value)


def _number(value: float) -> str:
    return f"{value:.3g}".replace("e-0", "e-").replace("-", "−")
