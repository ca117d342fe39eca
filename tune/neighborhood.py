"""The neighbourhood size of a method, chosen by the share of reliable places on the map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from raydr.errors import DataError, RunError, ScenarioError
from raydr.report.wording import percent
from raydr.runfolder import read_run, read_sweep
from raydr.scenarios.schema.scenario import Scenario
from raydr.scenarios.schema.sections import LONGEST_NAME
from raydr.tune.schema import Sweep

FACTORS = (1 / 3, 2 / 3, 1, 2, 4)
"""Sizes that are tried, in parts of the scenario's: for UMAP 5, 10, 15, 30 and 60 neighbours."""
SEEDS = 5
"""Runs of each size. If a size makes no difference, its runs are all better than those of the scenario's size with a
probability of 1 / 252. So by chance another of five sizes is chosen in 1.6 % of the cases at most."""
METRIC = "reliable"


@dataclass(frozen=True)
class NeighborhoodSweep:
    """A sweep over sizes of a neighbourhood.

    Attributes
    ----------
    key : str
        Dotted key of the size, such as ``method.neighbors``.
    size : float or int
        The scenario's size.
    sweep : Sweep
        Each size with `SEEDS` seeds.
    """

    key: str
    size: float | int
    sweep: Sweep


@dataclass(frozen=True)
class Choice:
    """The chosen size, and the reason as a sentence."""

    size: float | int
    reason: str


def neighborhood_sweep(scenario: Scenario, content: Mapping[str, Any], rows: int) -> NeighborhoodSweep:
    """Return the sweep over sizes for a scenario, its keys ``content``, and this many rows.

    Raises
    ------
    ScenarioError
        If the method has no neighbourhood, or each run costs epsilon.
    """
    if scenario.noisy:
        raise ScenarioError(
            f"--tune repeats the run {len(FACTORS) * SEEDS} times, and each time noisy data are released again, which"
            " costs epsilon. Leave out --tune."
        )
    key, size = _neighborhood(scenario, rows)
    if isinstance(size, int):
        sizes: list[float | int] = [min(max(round(factor * size), 2), rows - 1) for factor in FACTORS]
    else:
        sizes = [float(f"{min(max(factor * size, 1.0), (rows - 1) / 3):.3g}") for factor in FACTORS]
        size = sizes[FACTORS.index(1)]
    content = {**content, "metrics": [METRIC, "npa_10"], "compare": []}
    sweep = Sweep.model_validate(
        {
            "name": f"{scenario.name}-tune"[-LONGEST_NAME:],
            "base": content,
            "space": {key: list(dict.fromkeys(sizes))},
            "repeats": SEEDS,
            "objectives": {f"federated.{METRIC}": "max", "federated.npa_10": "max"},
            "trial": {"report": False},
        }
    )
    return NeighborhoodSweep(key, size, sweep)


def _neighborhood(scenario: Scenario, rows: int) -> tuple[str, float | int]:
    """Return the dotted key and the value of the size in a scenario."""
    method = scenario.method
    for place, settings in (("method", method), ("method.embedder", getattr(method, "embedder", None))):
        for name in ("perplexity", "neighbors"):
            effective = getattr(settings, f"effective_{name}", None)
            size = getattr(settings, name, None) if effective is None else effective(rows)
            if size is not None:
                return f"{place}.{name}", size
    raise ScenarioError(
        f"--tune tries sizes of the neighbourhood, and method {method.kind!r} has none. Leave out --tune."
    )


def choice_of(tuning: NeighborhoodSweep, folder: Path) -> Choice:
    """Choose a size from the sweep's folder.

    A size other than the scenario's is chosen only if more places are reliable in each of its runs than in any run with
    the scenario's size. Of several, the one with the largest mean is chosen.

    Raises
    ------
    RunError
        If a trial failed.
    DataError
        If the share of reliable places was not computed.
    """
    found: dict[float | int, list[float]] = {}
    for trial in read_sweep(folder).trials:
        if trial.error is not None or trial.folder is None:
            raise RunError(f"A run of --tune failed, see {folder}: {trial.error}")
        share = trial.measures.get(f"federated.{METRIC}")
        if share is None:
            why = read_run(folder / trial.folder).measures.not_computed.get(METRIC, "")
            raise DataError(f"--tune needs the metric {METRIC}, which has no value: {why}. Leave out --tune.")
        found.setdefault(trial.values[tuning.key], []).append(share)
    own = found.pop(tuning.size)
    means = {size: fmean(shares) for size, shares in found.items()}
    better = [size for size, shares in found.items() if min(shares) > max(own)]
    if better:
        size = max(better, key=lambda size: means[size])
        return Choice(
            size,
            f"{tuning.key} is {size:g}. In each of its {SEEDS} runs, more places are reliable than in any run with"
            f" {tuning.size:g}: {percent(means[size])} on average instead of {percent(fmean(own))}.",
        )
    reason = f"{tuning.key} stays {tuning.size:g}, with {percent(fmean(own))} of the places reliable"
    if means:
        size = max(means, key=lambda size: means[size])
        reason += (
            f". No other size is better in each of {SEEDS} runs. The best of them, {size:g}, has"
            f" {percent(means[size])}"
        )
    return Choice(tuning.size, f"{reason}.")
