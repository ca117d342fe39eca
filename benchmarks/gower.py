"""Ten nearest neighbours by Gower's distance, as landmark methods recover them, against Gower's definition.

    python -m benchmarks.gower [--quick] [--json FILE] [TABLE ...]

Tables are heart disease (``heart_disease.csv`` in the folder ``RAYDR_DATA``) and those given: CSV files of
numbers and words, with a header line. docs/distances.md has German credit (UCI Statlog, ``german.data``
without the class) and titanic (887 passengers, without names and survival; classes are words). Missing cells
are filled in first, by the median or the most frequent word. Codes of heart disease are written as words.
Rows without a column ``site`` are dealt to five sites.

``recovered`` is the share of the ten nearest neighbours in the server's geometry that are at most as far by
Gower's distance as the tenth. ``map`` is the same for neighbours on the map, also for that of umap-learn on
the matrix of Gower's distances, without a federation. With ``--quick``: heart disease by Fed-UMAP.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import raydr
from raydr.arrays import Float64Array
from raydr.scenarios.afterwards.repetition import repeated

METHODS: dict[str, dict[str, Any]] = {
    "fed-umap": {},
    "fed-tsne": {},
    "fed-spectral": {"method__clusters": 2},
    "landmark-ne": {},
}
CODES = (
    "sex",
    "chest_pain",
    "fasting_blood_sugar",
    "resting_ecg",
    "exercise_angina",
    "st_slope",
    "thal",
)
"""Columns of heart disease that are codes."""
NEIGHBORS, SITES = 10, 5


def tables(files: list[Path]) -> Iterator[tuple[str, Any]]:
    """Yield the name of each table, and a data frame of numbers, words and the site of each row."""
    import pandas as pd

    heart = pd.read_csv(Path(os.environ["RAYDR_DATA"]) / "heart_disease.csv")
    heart = heart.rename(columns={"hospital": "site"}).drop(columns="disease")
    for column in CODES:
        heart[column] = [None if pd.isna(code) else f"code {code:g}" for code in heart[column]]
    for name, table in [("heart disease", heart), *((file.stem, pd.read_csv(file)) for file in files)]:
        for column in table:
            values = table[column]
            typical = values.median() if pd.api.types.is_numeric_dtype(values) else values.mode()[0]
            table[column] = values.fillna(typical)
        if "site" not in table:
            table["site"] = [f"site {row % SITES}" for row in range(len(table))]
        yield name, table


def gower(table: Any) -> Float64Array:
    """Return Gower's distances (rows, rows) by definition."""
    import pandas as pd

    columns = [column for column in table if column != "site"]
    total = np.zeros((len(table), len(table)))
    for column in columns:
        if pd.api.types.is_numeric_dtype(table[column]):
            values = table[column].to_numpy(float)
            total += np.abs(values[:, None] - values) / np.ptp(values)
        else:
            codes = pd.factorize(table[column])[0]
            total += codes[:, None] != codes
    return total / len(columns)


def squared_distances(points: Any) -> Float64Array:
    """Return squared distances (rows, rows) between points."""
    from scipy.spatial.distance import cdist

    return np.asarray(cdist(points, points, "sqeuclidean"), np.float64)


def kept(true: Float64Array, found: Float64Array) -> float:
    """Return the share of the found nearest neighbours that are no farther than the true tenth."""
    true, found = true + np.diag([np.inf] * len(true)), found + np.diag([np.inf] * len(true))
    tenth = np.sort(true, axis=1)[:, NEIGHBORS - 1, None]
    near = np.argsort(found, axis=1, kind="stable")[:, :NEIGHBORS]
    return float((np.take_along_axis(true, near, 1) <= tenth + 1e-9).mean())


def measured(table: Any, method: str, true: Float64Array) -> dict[str, float]:
    """Map a table by a method, and return what its geometry and its map keep of Gower's neighbours."""
    with tempfile.TemporaryDirectory() as folder:
        file, run = Path(folder) / "table.csv", Path(folder) / "run"
        table.to_csv(file, index=False)
        settings = METHODS[method] | {"data__metric": "gower", "data__words": {"rows": 1, "sites": 1}}
        result = raydr.map(
            file, site="site", method=method, out=run, metrics=[], compare=[], runtime__federation="inline",
            **settings,
        )  # fmt: skip
        again, embedding = repeated(run, None, lambda event: None), result.embedding
    served = again.served.reordered(again.client_data.in_table_order)
    geometry = served.outcome.geometry
    assert geometry is not None
    rows = served.prepared.applied(again.client_data.pooled()).astype(np.float64)
    return {
        "features": float(rows.shape[1]),
        "error": float(np.abs(squared_distances(rows) - true).max()),
        "recovered": kept(true, geometry.squared_distance_block(0, len(true)).astype(np.float64)),
        "map": kept(true, squared_distances(embedding)),
    }


def main() -> None:
    """Print the table and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gower", description=__doc__)
    parser.add_argument("tables", nargs="*", type=Path, metavar="TABLE", help="further CSV files")
    parser.add_argument("--quick", action="store_true", help="heart disease by Fed-UMAP")
    parser.add_argument("--json", type=Path, help="also write figures and ratios to this file")
    options = parser.parse_args()
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    print("| data | rows | columns | features | largest error | method | recovered | map |", flush=True)
    print("| --- | ---: | ---: | ---: | ---: | --- | ---: | ---: |", flush=True)
    for name, table in tables(options.tables):
        true = gower(table)
        size = f"| {name} | {len(table):,} | {table.shape[1] - 1}"
        figures |= {f"{name}.rows": float(len(table)), f"{name}.columns": float(table.shape[1] - 1)}
        for method in list(METHODS)[: 1 if options.quick else None]:
            line = measured(table, method, true)
            figures |= {f"{name}.{method}.{key}": value for key, value in line.items()}
            print(
                f"{size} | {line['features']:,.0f} | {line['error']:.1g} | {method} | {line['recovered']:.3f}"
                f" | {line['map']:.3f} |",
                flush=True,
            )
        import umap

        peer = kept(
            true, squared_distances(umap.UMAP(metric="precomputed", random_state=0).fit_transform(true))
        )
        figures[f"{name}.umap-learn.map"] = peer
        ratios[f"{name}.fed-umap/umap-learn.map"] = figures[f"{name}.fed-umap.map"] / peer
        print(f"{size} | | | umap-learn | | {peer:.3f} |", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps({"figures": figures, "ratios": ratios}, indent=2) + "\n")


if __name__ == "__main__":
    main()
