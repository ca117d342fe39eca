"""Checked reader of sweep folders; an error names the file that is missing or broken."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeAlias, cast

from raydr.documents import DocumentError, parse_yaml, read_limited, require_limited
from raydr.errors import OutputError
from raydr.parquet_files import open_parquet, with_plain_text
from raydr.privacy.composition import Composition
from raydr.runfolder import records
from raydr.runfolder.manifest import require_unchanged
from raydr.runfolder.maps import LARGEST
from raydr.runfolder.records import TRIAL_IDENTITY, State, TrialRow
from raydr.runfolder.refusals import not_whole

Setting: TypeAlias = str | int | float | bool | None
"""Value of a swept key; sections, lists and columns of mixed types are JSON text; None if the key does not apply."""
Way: TypeAlias = Literal["min", "max"]

MOST_TRIALS = 100_000
MOST_COLUMNS = 2_000
LONGEST_TEXT = 100_000
"""Largest accepted numbers of trials, columns, and characters of a text."""
LARGEST_VALUE = 1e100
"""Values from here on count as missing, because differences overflow."""
CLOSE = 1e-6
"""Relative error by which a mean may leave the range of its values."""


@dataclass(frozen=True)
class Point:
    """One combination of settings, with its results over finished repeats.

    Attributes
    ----------
    point : int
        Its number.
    settings : mapping of str to Setting
        Values of the swept keys.
    repeats : int
        Number of trials that are done; 0 if all failed or were stopped.
    means, deviations : mapping of str to float
        Mean and standard deviation of a measure over the trials that have it; a single one has no deviation.
    """

    point: int
    settings: Mapping[str, Setting]
    repeats: int
    means: Mapping[str, float]
    deviations: Mapping[str, float]


@dataclass(kw_only=True, frozen=True)
class SweepFolder:
    """Content of a sweep folder, without its trials' run folders.

    Attributes
    ----------
    keys, measures : tuple of str
        Swept keys and measures, in the order of ``trials.parquet``.
    objectives : mapping of str to {"min", "max"}
        Objectives of the sweep; empty if it has none.
    trials : tuple of TrialRow
        Trials by point and repeat.
    points : tuple of Point
        Points by number, each with at least one trial.
    front : frozenset of int
        Numbers of the points on the Pareto front of the sweep's objectives.
    total : Composition or None
        Privacy cost of all runs together; None if no run is private.
    edited : tuple of str
        Differences from the manifest in words.
    """

    path: Path
    asked_text: str
    name: str
    repeats: int
    objectives: Mapping[str, Way]
    keys: tuple[str, ...]
    measures: tuple[str, ...]
    trials: tuple[TrialRow, ...]
    points: tuple[Point, ...]
    front: frozenset[int]
    total: Composition | None = None
    edited: tuple[str, ...] = ()

    def count(self, status: State) -> int:
        """Return the number of trials with a status."""
        return sum(trial.status == status for trial in self.trials)


def read_sweep(folder: Path) -> SweepFolder:
    """Read a sweep folder that ``raydr sweep`` wrote.

    Raises
    ------
    OutputError
        If the folder is not a complete sweep folder. The message names the file that is missing or broken.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise OutputError(f"{folder} is not a folder. Pass the sweep folder that `raydr sweep` wrote.")
    if records.is_incomplete(folder):
        raise OutputError(
            f"{folder} is from an interrupted sweep, as 'incomplete' in its name says. Finish the sweep with"
            f" `raydr sweep {folder} --resume`, or start it again."
        )
    edited = require_unchanged(folder)
    text, content = _read_settings(folder)
    trials = _read_table(folder, records.TRIALS, TRIAL_IDENTITY)
    keys = tuple(name.removeprefix(records.SETTING) for name in trials if name.startswith(records.SETTING))
    measures = tuple(
        name for name, column in trials.items() if name not in TRIAL_IDENTITY and _is_measure(name, column)
    )
    needed = (
        "point",
        "repeats",
        *_setting_columns(keys),
        *measures,
        *(m + records.DEVIATION for m in measures),
    )
    points = _read_table(folder, records.POINTS, needed)
    listed = _trials(folder, trials, keys, measures)
    found = _points(folder, points, keys, measures)
    _require_agreement(folder, listed, found)
    return SweepFolder(
        path=folder,
        edited=edited,
        asked_text=text,
        name=str(content["name"]),
        repeats=content["repeats"],
        objectives=content.get("objectives") or {},
        keys=keys,
        measures=measures,
        trials=listed,
        points=found,
        front=_read_front(folder, found),
        total=_read_total(folder),
    )


def _read_settings(folder: Path) -> tuple[str, dict[str, Any]]:
    """Return the text of ``sweep.yaml``, and its values."""
    file = records.SWEEP
    try:
        text = read_limited(folder / file, LARGEST[".yaml"]).decode("utf-8", errors="replace")
        content = parse_yaml(text)
    except FileNotFoundError:
        raise not_whole(folder, file, "is missing") from None
    except OSError as error:
        raise not_whole(folder, file, f"cannot be read ({error.strerror or error})") from error
    except DocumentError as error:
        raise not_whole(folder, file, f"is not valid YAML ({error})") from error
    if not isinstance(content, dict):
        raise not_whole(folder, file, "has no keys")
    kinds = {"name": str, "base": dict, "space": (dict, list), "repeats": int}
    for key, kind in kinds.items():
        if key not in content:
            raise not_whole(folder, file, f"lacks the key {key!r}")
        if not isinstance(content[key], cast("type", kind)) or isinstance(content[key], bool):
            raise not_whole(folder, file, f"has an invalid type for {key!r}: {type(content[key]).__name__}")
    if not 1 <= content["repeats"] <= MOST_TRIALS:
        raise not_whole(folder, file, f"asks for {content['repeats']} repeats")
    objectives = content.get("objectives") or {}
    if not isinstance(objectives, dict) or not all(
        isinstance(name, str) and way in ("min", "max") for name, way in objectives.items()
    ):
        raise not_whole(folder, file, "has objectives that are not measures with min or max")
    return text, content


def _read_table(folder: Path, file: str, needed: Sequence[str]) -> dict[str, Any]:
    """Read the columns of a parquet file as Arrow arrays, including all that are ``needed``."""
    import pyarrow as pa

    try:
        with open_parquet(require_limited(folder / file, LARGEST[".parquet"])) as table:
            names = list(table.schema_arrow.names)
            lacking = [name for name in needed if name not in names]
            if lacking:
                raise not_whole(
                    folder, file, f"lacks the column {lacking[0]!r} (it has: {', '.join(names[:20])})"
                )
            if len(names) > MOST_COLUMNS or len(set(names)) < len(names):
                raise not_whole(folder, file, f"has {len(names)} columns, or one of them twice")
            if table.metadata.num_rows > MOST_TRIALS:
                raise not_whole(
                    folder,
                    file,
                    f"has {table.metadata.num_rows} rows; at most {MOST_TRIALS} can be shown",
                )
            content = with_plain_text(table.read())
            content.validate(full=True)
    except FileNotFoundError:
        raise not_whole(folder, file, "is missing") from None
    except OutputError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise not_whole(folder, file, f"is not a parquet file ({' '.join(str(error).split())})") from error
    return {name: content.column(name) for name in names}


def _setting_columns(keys: Sequence[str]) -> list[str]:
    return [records.SETTING + key for key in keys]


def _is_measure(name: str, column: Any) -> bool:
    import pyarrow as pa

    return not name.startswith(records.SETTING) and bool(pa.types.is_floating(column.type))


def _whole_numbers(folder: Path, file: str, name: str, column: Any) -> list[int]:
    import pyarrow as pa

    if not pa.types.is_integer(column.type) or column.null_count:
        raise not_whole(folder, file, f"has values that are not whole numbers in the column {name!r}")
    numbers: list[int] = column.to_pylist()
    if min(numbers, default=0) < 0 and name != "seed":
        raise not_whole(folder, file, f"has {min(numbers)} in the column {name!r}")
    return numbers


def _texts(folder: Path, file: str, name: str, column: Any) -> list[str | None]:
    import pyarrow as pa

    if not (
        pa.types.is_string(column.type)
        or pa.types.is_large_string(column.type)
        or pa.types.is_null(column.type)
    ):
        raise not_whole(folder, file, f"has {column.type} instead of text in the column {name!r}")
    texts: list[str | None] = column.to_pylist()
    longest = max((len(text) for text in texts if text is not None), default=0)
    if longest > LONGEST_TEXT:
        raise not_whole(folder, file, f"has a text of {longest} characters in the column {name!r}")
    return texts


def _numbers(folder: Path, file: str, name: str, column: Any) -> list[float | None]:
    """Return the values of a measure; None for missing, infinite and too large ones."""
    import pyarrow as pa

    if not (pa.types.is_floating(column.type) or pa.types.is_null(column.type)):
        raise not_whole(folder, file, f"has {column.type} instead of numbers in the column {name!r}")
    return [
        value if value is not None and abs(value) < LARGEST_VALUE else None for value in column.to_pylist()
    ]


def _settings(folder: Path, file: str, name: str, column: Any) -> list[Setting]:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return cast("list[Setting]", column.to_pylist())
    if pa.types.is_floating(kind):
        return [_setting(value) for value in column.to_pylist()]
    return cast("list[Setting]", _texts(folder, file, name, column))


def _setting(value: float | None) -> Setting:
    """Return a number, NaN as None, and a number too large for an axis, such as infinity, as text."""
    if value is None or math.isnan(value):
        return None
    return value if abs(value) < LARGEST_VALUE else str(value)


def _trials(
    folder: Path, columns: Mapping[str, Any], keys: Sequence[str], measures: Sequence[str]
) -> tuple[TrialRow, ...]:
    file = records.TRIALS
    values = [_numbers(folder, file, name, columns[name]) for name in measures]
    settings = [_settings(folder, file, key, columns[records.SETTING + key]) for key in keys]
    numbers = [_whole_numbers(folder, file, name, columns[name]) for name in ("point", "repeat", "seed")]
    texts = [_texts(folder, file, name, columns[name]) for name in TRIAL_IDENTITY[3:]]
    trials = []
    for row, (point, repeat, seed, status, error, place, digest, data) in enumerate(
        zip(*numbers, *texts, strict=True)
    ):
        who = f"trial {repeat} of point {point}"
        if status not in records.TRIAL_STATES:
            raise not_whole(folder, file, f"has the unknown status {status!r} in {who}")
        if place is None and status == "done":
            raise not_whole(folder, file, f"has no folder for {who}, which is done")
        if place is not None and not _is_inside(place):
            raise not_whole(
                folder, file, f"has {place[:200]!r} for {who}, which is not inside the sweep folder"
            )
        trials.append(
            TrialRow(
                point=point,
                repeat=repeat,
                seed=seed,
                status=cast("State", status),
                error=error,
                folder=place,
                digest=digest or "",
                data=data,
                values=_there(keys, settings, row),
                measures=_there(measures, values, row),
            )
        )
    if not trials:
        raise not_whole(folder, file, "has no rows")
    order = [(trial.point, trial.repeat) for trial in trials]
    if any(here >= after for here, after in pairwise(order)):
        raise not_whole(folder, file, "is not sorted by point and repeat, or has one twice")
    return tuple(trials)


def _there(names: Sequence[str], columns: Sequence[Sequence[Any]], row: int) -> dict[str, Any]:
    """Return the values of a row by name, without missing ones."""
    return {name: column[row] for name, column in zip(names, columns, strict=True) if column[row] is not None}


def _is_inside(place: str) -> bool:
    """Return whether a path is relative and stays inside the folder on every system, and is not a web address."""
    path = PurePosixPath(place)
    return (
        bool(path.parts)
        and not path.is_absolute()
        and not {"..", "."} & set(path.parts)
        and not set(place) & set("\\:")
    )


def _points(
    folder: Path, columns: Mapping[str, Any], keys: Sequence[str], measures: Sequence[str]
) -> tuple[Point, ...]:
    file = records.POINTS
    numbers = _whole_numbers(folder, file, "point", columns["point"])
    repeats = _whole_numbers(folder, file, "repeats", columns["repeats"])
    settings = [_settings(folder, file, name, columns[name]) for name in _setting_columns(keys)]
    means = [_numbers(folder, file, name, columns[name]) for name in measures]
    deviations = [
        _numbers(folder, file, name, columns[name]) for name in (m + records.DEVIATION for m in measures)
    ]
    for name, values in zip(measures, deviations, strict=True):
        if any(value is not None and value < 0 for value in values):
            raise not_whole(
                folder, file, f"has a deviation below 0 in the column {name + records.DEVIATION!r}"
            )
    if any(here >= after for here, after in pairwise(numbers)):
        raise not_whole(folder, file, "is not sorted by point, or has one twice")
    return tuple(
        Point(
            number,
            dict(zip(keys, (column[row] for column in settings), strict=True)),
            repeats[row],
            _there(measures, means, row),
            _there(measures, deviations, row),
        )
        for row, number in enumerate(numbers)
    )


def _require_agreement(folder: Path, trials: Sequence[TrialRow], points: Sequence[Point]) -> None:
    """Raise if points do not match the trials in numbers, settings, repeats and the range of means."""
    file = records.POINTS
    at = {point.point: point for point in points}
    rows: dict[int, list[TrialRow]] = {}
    for trial in trials:
        rows.setdefault(trial.point, []).append(trial)
    if set(rows) != set(at):
        raise not_whole(folder, file, f"does not hold the points of {records.TRIALS}")
    for number, some in rows.items():
        point = at[number]
        for key, value in point.settings.items():
            if any(trial.values.get(key) != value for trial in some):
                raise not_whole(
                    folder, file, f"has another value of {key} than {records.TRIALS} for point {number}"
                )
        done = [trial.measures for trial in some if trial.status == "done"]
        if len(done) != point.repeats:
            reason = f"counts {point.repeats} finished repeats of point {number}, but {len(done)} are done"
            raise not_whole(folder, file, reason)
        for name, mean in point.means.items():
            known = [own[name] for own in done if name in own]
            if not _lies_among(mean, known):
                raise not_whole(folder, file, f"has a mean of {name} outside the values of point {number}")


def _lies_among(mean: float, values: Sequence[float]) -> bool:
    if not values:
        return False
    slack = CLOSE * max(abs(value) for value in values)
    return min(values) - slack <= mean <= max(values) + slack


def _read_total(folder: Path) -> Composition | None:
    from pydantic import TypeAdapter, ValidationError

    file = records.COMPOSITION
    if not (folder / file).exists():
        return None
    try:
        total: Composition = TypeAdapter(Composition).validate_json(
            read_limited(folder / file, LARGEST[".json"])
        )
    except ValidationError as error:
        raise not_whole(folder, file, f"is broken: {error.errors()[0]['msg']}") from error
    except OSError as error:
        raise not_whole(folder, file, f"cannot be read ({error.strerror or error})") from error
    return total


def _read_front(folder: Path, points: Sequence[Point]) -> frozenset[int]:
    columns = _read_table(folder, records.PARETO, ("point",))
    front = frozenset(_whole_numbers(folder, records.PARETO, "point", columns["point"]))
    if not front <= {point.point for point in points}:
        raise not_whole(folder, records.PARETO, f"holds points that {records.POINTS} does not")
    return front
