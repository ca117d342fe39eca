"""How faithful a map of all periods is, compared with a map of each period and with successive redraws.

    python -m benchmarks.periods [--quick] [--data drift ...] [--methods fed-umap ...] [--json FILE]

``drift`` has 4 years of 500 rows at 5 sites: rows of 8 clusters in 10 dimensions, of which each year after the first
takes 15 % of its rows from one more cluster that the years before it lack. ``beijing`` has 500 rows of each year, from
March to February, of the 12 stations of beijing_air in ``$RAYDR_DATA``, and ``months`` has 250 rows of each month.

``joint`` is one run with ``data.time``, ``alone`` a run of each period, and ``redrawn`` the map after the file of each
further period joined with ``raydr join --redraw``, for years only. ``within`` is NPA-10 among the rows of the same
period, the mean over all rows. ``over all`` is NPA-10 among all rows; maps of single periods are laid on each other at
equal size. ``unlike`` is the share of rows that are unlike those of the first year. All runs are in this process, with
default settings and seed 0. ``--quick`` uses Fed-UMAP on ``drift``.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import raydr
from raydr.arrays import Float64Array, Int64Array
from raydr.metrics import Evidence, evaluate
from raydr.runfolder import read_run

DATA = ("drift", "beijing", "months")
METHODS = ("fed-tsne", "fed-umap")
ROWS, MONTH_ROWS, NEW = 500, 250, 0.15


def drifting() -> tuple[Float64Array, Int64Array, Int64Array]:
    """Return rows, years and sites of a population that changes as the docstring says."""
    random = np.random.default_rng(0)
    middles = 3.0 * random.normal(size=(11, 10))
    years = np.repeat(np.arange(4), ROWS)
    kinds = random.integers(8, size=years.size)
    for year in range(1, 4):
        own = np.flatnonzero(years == year)[: round(NEW * ROWS)]
        kinds[own] = 7 + year
    return middles[kinds] + random.normal(size=(years.size, 10)), years, random.integers(5, size=years.size)


def beijing(each: int, *, by_month: bool) -> tuple[Float64Array, Int64Array, Int64Array]:
    """Return rows, periods and stations. The rows of a station are in the order of time, and the first is of March."""
    with np.load(Path(os.environ["RAYDR_DATA"]) / "beijing_air.npz", allow_pickle=False) as arrays:
        values, months, sites = arrays["X"].astype(float), arrays["month"], arrays["client"]
    since_march = (months - 3) % 12
    turns = (np.diff(since_march, prepend=0) < 0) & (np.diff(sites, prepend=0) == 0)
    years = np.cumsum(turns)
    years -= years[np.searchsorted(sites, sites)]
    periods = months if by_month else years
    random = np.random.default_rng(0)
    some = [
        random.choice(np.flatnonzero(periods == period), each, replace=False) for period in np.unique(periods)
    ]
    chosen = np.sort(np.concatenate(some))
    rows = values[chosen]
    return (rows - rows.mean(axis=0)) / rows.std(axis=0), periods[chosen], sites[chosen]


def table_of(name: str) -> tuple[Float64Array, Int64Array, Int64Array]:
    """Return rows, periods and sites of a table."""
    if name == "drift":
        return drifting()
    return beijing(MONTH_ROWS if name == "months" else ROWS, by_month=name == "months")


def scored(rows: Float64Array, places: Float64Array) -> float:
    """Return NPA-10 of places (rows, 2)."""
    return float(evaluate(["npa_10"], Evidence(rows=rows, embedding=places)).values["npa_10"])


def measured(name: str, method: str) -> dict[str, float]:
    """Return the figures of a table and a method."""
    rows, periods, sites = table_of(name)
    names = np.unique(periods)
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)

        def file(which: str, some: Int64Array) -> Path:
            path = folder / f"{which}.csv"
            with path.open("w", newline="") as opened:
                writer = csv.writer(opened)
                writer.writerow(
                    ["number", "site", "period", *(f"x{column}" for column in range(rows.shape[1]))]
                )
                writer.writerows([row, f"s{sites[row]}", f"p{periods[row]:02}", *rows[row]] for row in some)
            return path

        def run(which: str, some: Int64Array, **data: Any) -> raydr.Result:
            scenario = {
                "name": "periods",
                "data": {"path": str(file(which, some)), "id": "number"} | data,
                "clients": {"partition": {"kind": "by-column", "column": "site"}},
                "method": {"kind": method},
                "runtime": {"federation": "inline"},
                "metrics": ["npa_10"],
            }
            return raydr.run(scenario, out=folder / f"run-{which}")

        def places_of(result: raydr.Result) -> Float64Array:
            found = read_run(result.folder)
            order = np.argsort(np.array([int(row) for row in found.rows]))
            return np.asarray(found.federated[order])

        def add(title: str, places: Float64Array) -> None:
            within = [scored(rows[periods == each], places[periods == each]) for each in names]
            figures[f"within, {title}"] = float(np.mean(within))
            figures[f"over all, {title}"] = scored(rows, places)

        every = np.arange(len(rows))
        joint = run("joint", every, time="period")
        add("joint", places_of(joint))
        for each in joint.periods[1:]:
            figures[f"unlike, {each['period']}"] = each["unlike"] / each["compared"]
        alone = np.empty((len(rows), 2))
        for each in names:
            own = np.flatnonzero(periods == each)
            found = places_of(run(f"alone-{each}", own, exclude=["period"]))
            found = found - found.mean(axis=0)
            alone[own] = found / np.sqrt((found**2).sum(axis=1).mean())
        add("alone", alone)
        if name != "months":
            last = run(f"first-{names[0]}", np.flatnonzero(periods == names[0]), exclude=["period"])
            for each in names[1:]:
                path = file(f"year-{each}", np.flatnonzero(periods == each))
                last = raydr.redraw(last.folder, path, out=folder / f"redrawn-{each}")
            add("redrawn", places_of(last))
    return {key: round(value, 3) for key, value in figures.items()}


def main() -> None:
    """Print a line of the table for each data set and method."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    data, methods = (("drift",), ("fed-umap",)) if options.quick else (options.data, options.methods)
    found: dict[str, float] = {}
    for name in data:
        for method in methods:
            line = measured(name, method)
            found |= {f"{name}.{method}.{key}": value for key, value in line.items()}
            print(name, method, line, flush=True)
    if options.json:
        options.json.write_text(json.dumps({"figures": found, "ratios": {}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
