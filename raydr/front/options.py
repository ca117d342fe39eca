"""Options that several commands have, each written once.

A command takes what its options are called: ``overrides`` of --set, ``out``, ``address``, ``data_dir``, ``quiet``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
Option: TypeAlias = Callable[[Command], Command]


def _overrides(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> Mapping[str, Any]:
    """Keys and their values; of a key that is set twice the last."""
    if not values:
        return {}
    from raydr.scenarios.schema.reading import parse_override

    return dict(parse_override(value) for value in values)


def override(what: str = "a key") -> Option[Any]:
    """Give a command --set, of keys of a scenario; its parameter is ``overrides``."""
    return click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_overrides,
        help=f"Override {what}, such as method.landmarks=200. Repeatable.",
    )


@contextmanager
def _told_of_edits() -> Iterator[None]:
    from raydr.runfolder.manifest import edits_accepted

    with edits_accepted() as found:
        yield
    for what in found:
        click.echo(f"raydr: {what}, and was read all the same", err=True)


def edited(command: Command) -> Command:
    """Give a command --edited: it reads folders whose files were changed since. It has no parameter for it."""

    def accept(context: click.Context, option: click.Parameter, value: bool) -> None:
        if value:
            context.with_resource(_told_of_edits())

    return click.option(
        "--edited",
        is_flag=True,
        expose_value=False,
        callback=accept,
        help="Read the folder although its files were changed since it was written.",
    )(command)


def folder_out(what: str) -> Option[Any]:
    """Give a command --out, the folder that it makes."""
    return click.option(
        "--out", type=click.Path(path_type=Path), help=f"{what}. Default: runs/NAME-TIMESTAMP."
    )


class Machines(click.ParamType):  # type: ignore[type-arg]
    """Machines alike: how many, cores of each, GiB of memory of each, such as ``4x16x64``."""

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
                f"{value!r} is not three numbers above 0, as in 4x16x64 for four of 16 cores and 64 GiB."
            )
        return machines


def quiet(what: str = "the report's path") -> Option[Any]:
    """Give a command --quiet."""
    return click.option("--quiet", "-q", is_flag=True, help=f"Print nothing but {what}.")


address = click.option(
    "--address", help="A Ray cluster, such as auto or HOST:PORT. Default: $RAY_ADDRESS, or this machine."
)
inline = click.option(
    "--inline", is_flag=True, help="Start no Ray: all in this process, to the same bits; for small maps."
)
data_dir = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Folder of built-in data sets as NAME.npz. Default: $RAYDR_DATA.",
)
_TAKEN = (
    click.option(
        "--site",
        metavar="COLUMN",
        help="The column that says whose a row is. Default: one called site, hospital...",
    ),
    click.option("--label", metavar="COLUMN", help="The column of classes, which colours the map."),
    click.option("--method", metavar="KIND", help="One of `raydr list methods`. Default: fed-umap."),
    override(),
)
_SWEPT = (
    override(),
    folder_out("The folder to write"),
    address,
    data_dir,
    click.option("--quick", is_flag=True, help="Take what the file's section `quick` says: a minute or so."),
    click.option("--resume", is_flag=True, help="Go on with an interrupted one, whose folder is given."),
    click.option("--retry-failed", is_flag=True, help="With --resume: run trials again that failed."),
    quiet("the page's path"),
)


def with_inline(overrides: Mapping[str, Any], inline: bool, address: str | None) -> Mapping[str, Any]:
    """What --set says, and what --inline says in short."""
    if not inline:
        return overrides
    if address is not None:
        raise click.UsageError("--inline starts no Ray, and --address names one: leave one of them out")
    return {**overrides, "runtime.federation": "inline"}


def own_data(command: Command) -> Command:
    """Give a command what says what own data are taken for: --site, --label, --method and --set."""
    return _all(_TAKEN, command)


def swept(command: Command) -> Command:
    """Give a command what each has that runs trials: --set, --out, --address, --data-dir, --quick, --resume..."""
    return _all(_SWEPT, command)


def _all(options: tuple[Option[Any], ...], command: Command) -> Command:
    """Give a command options, whose help lists them in their order."""
    return reduce(lambda given, option: option(given), reversed(options), command)


def json_out(what: str) -> Option[Any]:
    """Give a command --json, a file that it writes as well."""
    return click.option(
        "--json",
        "out",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help=f"Also write {what} here as JSON.",
    )


def write_json(path: Path, content: object) -> None:
    """Write what --json asks for, whole or not at all."""
    import json

    from raydr.files import write_whole

    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    write_whole(path, text.encode(), "free the place, or name another with --json")
