"""``raydr list``: catalogues of scenarios, methods, metrics and other named things."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from operator import attrgetter
from typing import Any

import click

from raydr.errors import did_you_mean


def _shipped() -> Mapping[str, str]:
    from raydr.scenarios.schema.reading import shipped

    return shipped()


def _sweeps() -> Mapping[str, str]:
    from raydr.tune.reading import shipped

    return shipped()


def _papers() -> Mapping[str, str]:
    from raydr.tune.reproducing import catalogue

    return catalogue()


def _table(room: str, name: str, line: Callable[[Any], str] | None = None) -> Mapping[str, str]:
    """Import a registry and return one line for each name; by default the first line of its docstring."""
    from raydr.registry import summary

    return {key: (line or summary)(thing) for key, thing in getattr(import_module(room), name).items()}


CATALOGUES: Mapping[str, Callable[[], Mapping[str, str]]] = {
    "scenarios": _shipped,
    "sweeps": _sweeps,
    "papers": _papers,
    "methods": partial(_table, "raydr.methods", "METHODS", attrgetter("summary")),
    "embedders": partial(_table, "raydr.embedding", "EMBEDDERS"),
    "partitions": partial(_table, "raydr.partition", "PARTITIONS"),
    "adversaries": partial(_table, "raydr.federation.simulated", "ADVERSARIES"),
    "attacks": partial(_table, "raydr.attacks", "ATTACKS", attrgetter("description")),
    "mechanisms": partial(_table, "raydr.privacy", "MECHANISMS"),
    "metrics": partial(_table, "raydr.metrics", "METRICS", attrgetter("description")),
    "datasets": partial(_table, "raydr.data", "DATASETS", attrgetter("description")),
}
"""Catalogues of ``raydr list``: each maps names to a one-line description."""


class _Catalogue(click.ParamType[str]):
    """Parameter type: the name of a catalogue."""

    name = "what"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "|".join(CATALOGUES)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in CATALOGUES:
            return str(value)
        unknown = f"There is no list {value!r}{did_you_mean(value, CATALOGUES)}"
        raise click.UsageError(f"{unknown}: choose one of {', '.join(CATALOGUES)}", ctx)


@click.command("list")
@click.argument("what", type=_Catalogue())
def list_(what: str) -> None:
    """List names with a one-line description each."""
    from raydr.front.terminal import print_catalogue

    print_catalogue(CATALOGUES[what]())
