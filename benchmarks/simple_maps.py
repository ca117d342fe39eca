"""Fed-tSNE next to what a consortium can do without it: a public map, t-SNE of federated components, one map for each.

    python -m benchmarks.simple_maps [--quick] [--datasets digits ...] [--public 50 200 1000] [--seeds 0 1 2]
                                     [--json FILE]

Rows are dealt to five clients by a Dirichlet distribution of classes with alpha 0.3. Each line is scored by the same
metrics on the same rows, and is a mean over seeds, which draw rows, public rows, clients and maps:

- ``pooled``: openTSNE of all rows in one place.
- ``fed-tsne``: raydr's default. The server gets a squared distance to each landmark from each record.
- ``components N``: federated PCA (exact, so computed here on the pooled rows), then openTSNE of the N components that
  each client sends of each record.
- ``public K``: openTSNE of K public rows, and each client places its own rows by openTSNE's ``transform``. Nothing
  leaves a client. At most a fifth of the rows are public.
- ``public, few classes``: the same, with as many public rows as there are of half the classes.
- ``own maps``: each client maps its own rows with openTSNE, and the maps lie on top of each other.

``sent`` is the number of values that leave a client for each record. Above ``ROWS`` rows a sample is drawn.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import raydr
from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.data import load

DATASETS = ("digits", "mnist", "fashion_mnist", "breast_cancer")
ROWS = 2_000
SMALL, STANDARDISED = ("digits", "breast_cancer"), ("breast_cancer",)
CLIENTS, ALPHA = 5, 0.3
COMPONENTS = (2, 10, 50)
FED_TSNE: Any = raydr.FedTSNE
METRICS = ("npa_10", "trustworthiness", "ca_10")


def opened(rows: FloatArray, seed: int) -> Any:
    """Return openTSNE's embedding of rows, with its defaults."""
    from openTSNE import TSNE

    perplexity = min(30.0, (len(rows) - 1) / 3)
    return TSNE(perplexity=perplexity, n_jobs=1, random_state=seed).fit(np.asarray(rows))


def placed(public: FloatArray, rows: FloatArray, seed: int) -> Float64Array:
    """Return the places of rows on a map of public rows."""
    return np.asarray(opened(public, seed).transform(np.asarray(rows)))


def components(rows: FloatArray, count: int) -> Float64Array:
    """Return the first principal components of rows."""
    seen = rows - rows.mean(axis=0, dtype=np.float64)
    axes = np.linalg.svd(seen, full_matrices=False)[2][:count]
    return np.asarray(seen @ axes.T)


def clients_of(labels: Int64Array, seed: int) -> Int64Array:
    """Return the client of each row."""
    rng = np.random.default_rng(seed)
    owner = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        of_class = np.flatnonzero(labels == label)
        owner[of_class] = rng.choice(CLIENTS, len(of_class), p=rng.dirichlet(np.full(CLIENTS, ALPHA)))
    return owner


def sent(ledger: Any) -> int:
    """Return the number of distances of each record in a ledger."""
    (points,) = [entry["fixed"]["points"] for entry in ledger if entry["tells"] == "distances"]
    return int(points)


def maps(
    rows: FloatArray,
    labels: Int64Array,
    apart: FloatArray,
    apart_labels: Int64Array,
    public: list[int],
    seed: int,
) -> Iterator[tuple[str, int, FloatArray]]:
    """Yield the name of each way, the values that leave a client for each record, and the map."""
    owner = clients_of(labels, seed)
    yield "pooled", rows.shape[1], np.asarray(opened(rows, seed))
    federated = FED_TSNE(random_state=seed, metrics=()).fit(rows, sites=owner.astype(str))
    yield "fed-tsne", sent(federated.ledger_), federated.embedding_
    for count in COMPONENTS:
        if count < rows.shape[1]:
            yield f"components {count}", count, np.asarray(opened(components(rows, count), seed))
    half = np.isin(apart_labels, np.unique(labels)[: (len(np.unique(labels)) + 1) // 2])
    for count in public:
        if count <= len(apart):
            yield f"public {count}", 0, placed(apart[:count], rows, seed)
    count = min(max(public), int(half.sum()))
    yield "public, few classes", 0, placed(apart[half][:count], rows, seed)
    own = np.empty((len(rows), 2))
    for client in np.unique(owner):
        mine = owner == client
        own[mine] = np.asarray(opened(rows[mine], seed))
    yield "own maps", 0, own


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=DATASETS)
    parser.add_argument("--public", nargs="+", type=int, default=[50, 200, 1000])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.datasets, options.public, options.seeds = ("digits",), [200], [0]
    from raydr.metrics import Evidence, evaluate

    figures: dict[str, float] = {}
    print(f"| data, way | sent | {' | '.join(METRICS)} |\n|" + " --- |" * (2 + len(METRICS)))
    for name in options.datasets:
        found: dict[tuple[str, int], list[list[float]]] = {}
        for seed in options.seeds:
            wanted = None if name in SMALL else ROWS + max(options.public)
            table = load(source=name, rows=wanted, seed=seed)
            assert table.labels is not None
            order = np.random.default_rng(seed).permutation(len(table.rows))
            rows, labels = np.asarray(table.rows, np.float64)[order], table.labels[order]
            if name in STANDARDISED:
                rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
            apart = min(max(options.public), len(rows) // 5)
            for way, values, places in maps(
                rows[apart:], labels[apart:], rows[:apart], labels[:apart], options.public, seed
            ):
                evidence = Evidence(rows=rows[apart:], embedding=places, labels=labels[apart:], seed=seed)
                scores = evaluate(METRICS, evidence).values
                found.setdefault((way, values), []).append([scores[metric] for metric in METRICS])
        for (way, values), scored in found.items():
            mean = np.mean(scored, axis=0)
            key = f"{name}.{way}".replace(" ", "-").replace(",", "")
            figures |= {f"{key}.{metric}": float(score) for metric, score in zip(METRICS, mean, strict=True)}
            figures[f"{key}.sent"] = float(values)
            print(
                f"| {name}, {way} | {values} | " + " | ".join(f"{score:.3f}" for score in mean) + " |",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps({"figures": figures, "ratios": {}}, indent=2) + "\n")


if __name__ == "__main__":
    main()
