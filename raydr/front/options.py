"""Options that several commands share.

Command parameters have the names of their options, such as ``out`` and ``data_dir``; --set is ``overrides``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
Option: TypeAlias = Callable[[Command], Command]


def _overrides(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the values of --set by key. If a key is set twice, the last value counts."""
    if not values:
        return {}
    from raydr.scenarios.schema.reading import parse_override

    return dict(parse_override(value) for value in values)


def override(what: str = "a key") -> Option[Any]:
    """Add --set for keys of a scenario; the parameter is ``overrides``."""
    return click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_overrides,
        help=f"Override {what}, such as method.landmarks=200. Repeatable.",
    )


@contextmanager
def _reporting_edits() -> Iterator[None]:
    from raydr.runfolder.manifest import edits_accepted

    with edits_accepted() as found:
        yield
    for what in found:
        click.echo(f"raydr: {what}; read it because of --edited", err=True)


def edited(command: Command) -> Command:
    """Add --edited: read folders whose files were changed. The command gets no parameter for it."""

    def accept(context: click.Context, option: click.Parameter, value: bool) -> None:
        if value:
            context.with_resource(_reporting_edits())

    return click.option(
        "--edited",
        is_flag=True,
        expose_value=False,
        callback=accept,
        help="Read the folder even if its files were changed after the run.",
    )(command)


def folder_out(what: str) -> Option[Any]:
    """Add --out, the folder that the command writes."""
    return click.option(
        "--out", type=click.Path(path_type=Path), help=f"{what}. Default: runs/NAME-TIMESTAMP."
    )


class Machines(click.ParamType):  # type: ignore[type-arg]
    """Parameter type for identical machines: count, cores and GiB of memory of each, such as ``4x16x64``."""

    name = "COUNTxCORESxGIB"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int, float]:
        """Return the three numbers."""
        try:
            count, cores, gibibytes = str(value).lower().split("x")
            machines = int(count), int(cores), float(gibibytes)
        except ValueError:
            machines = 0, 0, 0.0
        if not (min(machines) > 0 and machines[2] < float("inf")):
            self.fail(
                f"expected three numbers above 0, such as 4x16x64 for 4 machines of 16 cores and 64 GiB, got {value!r}."
            )
        return machines


class Duration(click.ParamType):  # type: ignore[type-arg]
    """Parameter type for a time in seconds, written as ``8h``, ``1h30m`` or ``45s``."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number of seconds."""
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", str(value))
        seconds = sum(
            int(count or 0) * unit
            for count, unit in zip(found.groups() if found else (), (3600, 60, 1), strict=False)
        )
        if seconds <= 0:
            self.fail(f"expected a time such as 8h, 1h30m or 45s, got {value!r}.")
        return float(seconds)


def quiet(what: str = "the report's path") -> Option[Any]:
    """Add --quiet."""
    return click.option("--quiet", "-q", is_flag=True, help=f"Print only {what}.")


verbose = click.option(
    "--verbose",
    "-v",
    is_flag=True,
    help="Also print what the report has: columns, hashes, an example record, privacy notices.",
)


def require_one_of(quiet: bool, verbose: bool) -> None:
    """Raise UsageError if both --quiet and --verbose are given."""
    if quiet and verbose:
        raise click.UsageError("--quiet and --verbose exclude each other: leave one of them out")


policy = click.option(
    "--policy",
    metavar="FILE|PROFILE",
    help="What may leave each site: a YAML file, or open, aggregate-only, datashield or private.",
)
address = click.option(
    "--address", help="Ray cluster to use: auto or HOST:PORT. Default: $RAY_ADDRESS, or this machine."
)
inline = click.option(
    "--inline", is_flag=True, help="Run in one process, without Ray. Results are identical. For small maps."
)
data_dir = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Folder that has built-in data sets as NAME.npz. Default: $RAYDR_DATA.",
)
_TAKEN = (
    click.option(
        "--site",
        metavar="COLUMN",
        help="Column that names the site of each row. Default: a column called site, hospital...",
    ),
    click.option("--label", metavar="COLUMN", help="Column of classes. It colours the map."),
    click.option(
        "--time", metavar="COLUMN", help="Column of dates, years or visits. All periods are on one map."
    ),
    click.option(
        "--codebook",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="How each column is read: a CSV file that `raydr init --codebook` writes and you correct.",
    ),
    click.option("--method", metavar="KIND", help="A name from `raydr list methods`. Default: fed-umap."),
    override(),
)
_PRIVATE = (
    click.option(
        "--epsilon",
        type=float,
        help="Draw a map under differential privacy by record, with this epsilon for the whole run, from raw columns to"
        " places. The method is private-map.",
    ),
    click.option("--delta", type=float, help="Delta of that epsilon. Default: 1e-5."),
)
quick = click.option(
    "--quick", is_flag=True, help="Use the settings of the file's section `quick`: about a minute."
)
_SWEPT = (
    override(),
    folder_out("The folder to write"),
    address,
    data_dir,
    quick,
    click.option("--resume", is_flag=True, help="Resume an interrupted run. The argument is its folder."),
    click.option("--retry-failed", is_flag=True, help="With --resume: also repeat failed trials."),
    quiet("the page's path"),
)
_OF_TABLE: tuple[Option[Any], ...] = (
    click.option(
        "--only",
        multiple=True,
        metavar="NAME",
        help="Take only this row, group of rows or column. Repeatable.",
    ),
    click.option(
        "--seeds", type=click.IntRange(min=1), help="Number of seeds. Default: the table's, mostly 3."
    ),
    click.option(
        "--no-published", is_flag=True, help="Take cells only with raydr's defaults, not as published."
    ),
)


def with_inline(overrides: Mapping[str, Any], inline: bool, address: str | None) -> Mapping[str, Any]:
    """Return the overrides of --set, with ``runtime.federation`` set to inline if --inline is given."""
    if not inline:
        return overrides
    if address is not None:
        raise click.UsageError(
            "--inline does not use Ray, and --address names a cluster: leave one of them out"
        )
    return {**overrides, "runtime.federation": "inline"}


def with_policy(overrides: Mapping[str, Any], policy: str | None) -> Mapping[str, Any]:
    """Return the overrides of --set, with ``clients.policy`` set if --policy is given."""
    return overrides if policy is None else {**overrides, "clients.policy": policy}


def own_data(command: Command) -> Command:
    """Add the options for your own data: --site, --label, --time, --codebook, --method and --set."""
    return _all(_TAKEN, command)


def private(command: Command) -> Command:
    """Add the options for a map under differential privacy: --epsilon and --delta."""
    return _all(_PRIVATE, command)


def of_table(command: Command) -> Command:
    """Add the options that choose runs of a paper's table: --only, --seeds and --no-published."""
    return _all(_OF_TABLE, command)


def swept(command: Command) -> Command:
    """Add the options for commands that run trials: --set, --out, --address, --resume and others."""
    return _all(_SWEPT, command)


def _all(options: tuple[Option[Any], ...], command: Command) -> Command:
    """Add options to a command; its help lists them in this order."""
    return reduce(lambda given, option: option(given), reversed(options), command)


def json_out(what: str) -> Option[Any]:
    """Add --json, a file that the command also writes."""
    return click.option(
        "--json",
        "out",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help=f"Also write {what} to this file as JSON.",
    )


def write_json(path: Path, content: object) -> None:
    """Write the file of --json completely, or not at all."""
    import json

    from raydr.files import write_whole

    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    write_whole(path, text.encode(), "free the disk, or name another file with --json")
