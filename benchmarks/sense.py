"""SENSE against the pooled rows: recovered geometry, and the map of every embedder, as in P3's tables 1, 3, 9 and 12.

    python -m benchmarks.sense [--quick] [--rows N] [--regimes R ...] [--embedders E ...] [--repeats N]
                              [--partition P] [--json FILE]

MNIST, 10 clients, dealt by ``--partition`` (see :mod:`benchmarks.partitions`; the default is dirichlet-0.5,
and balanced-0.5 is table 12's), 783 anchors. The geometry is completed once for each regime. Each embedder
then maps it and the pooled rows with the same settings. A score is the mean over ``--repeats`` seeds of the
embedder. For steadiness and cohesiveness, which sample, it is also the mean over 4 of their seeds, because
both vary more between seeds (0.004 to 0.01) than SENSE costs. ``--quick`` uses 1,000 rows, two regimes, two
embedders and one seed of each.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import numpy as np

from benchmarks.partitions import DEALINGS
from raydr.arrays import FloatArray, Int64Array
from raydr.journal import Journal
from raydr.threads import one_blas_thread

CLIENTS, ANCHORS = 10, 783
REGIMES = {
    "multisite-full": {"regime": "multisite", "visibility": "full"},
    "multisite-partial": {"regime": "multisite", "visibility": "partial"},
    "pointwise-full": {"regime": "pointwise", "visibility": "full"},
}
EMBEDDERS: dict[str, dict[str, Any]] = {
    "tsne": {"kind": "tsne"},
    "umap": {"kind": "umap"},
    "phate": {"kind": "phate"},
    "cne-0": {"kind": "cne", "s": 0.0},
    "cne-0.5": {"kind": "cne", "s": 0.5},
    "cne-1": {"kind": "cne", "s": 1.0},
}
MAP_METRICS = ("trustworthiness", "continuity", "steadiness", "cohesiveness")
POINTWISE_ROWS = 1_000
SAMPLINGS = 4


def completed_geometry(
    rows: FloatArray, client_of_row: Int64Array, public: FloatArray, settings: Any
) -> tuple[Any, float]:
    """Return the geometry of the rows, in client order, and the seconds from the first message on."""
    from raydr.federation import ClientHost, Context, Federation, HostedClient, InlineTransport, fingerprint
    from raydr.methods.sense.server import completed

    parts = [rows[client_of_row == client] for client in range(int(client_of_row.max()) + 1)]
    hosted = [HostedClient(index, part, fingerprint(part)) for index, part in enumerate(parts)]
    federation = Federation(
        InlineTransport([ClientHost(hosted=hosted, seed=0)]), len(hosted), Context(seed=0, public=public)
    )
    started = time.perf_counter()
    with one_blas_thread():
        known = completed(federation, settings)
    return known, time.perf_counter() - started


def scores(
    rows: FloatArray, labels: Int64Array, embedding: FloatArray, graph: Any, seed: int, samplings: int
) -> dict[str, float]:
    """Compute the metrics of one map."""
    from raydr.metrics import Evidence, evaluate

    ranked, sampled = MAP_METRICS[:2], MAP_METRICS[2:]
    values = evaluate(
        ranked,
        Evidence(
            rows=rows, embedding=embedding, labels=labels, recovered=None, seed=seed, row_neighbors=graph
        ),
    ).values
    drawn = [
        evaluate(
            sampled,
            Evidence(
                rows=rows,
                embedding=embedding,
                labels=labels,
                recovered=None,
                seed=samplings * seed + draw,
                row_neighbors=graph,
            ),
        ).values
        for draw in range(samplings)
    ]
    return values | {name: statistics.mean(each[name] for each in drawn) for name in sampled}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sense", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=int, default=25_000)
    parser.add_argument("--regimes", nargs="+", choices=REGIMES, default=list(REGIMES))
    parser.add_argument("--embedders", nargs="+", choices=EMBEDDERS, default=list(EMBEDDERS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--partition", choices=DEALINGS, default="dirichlet-0.5")
    parser.add_argument("--json", dest="file")
    options = parser.parse_args()
    if options.quick:
        options.rows, options.repeats = 1_000, 1
        options.regimes, options.embedders = ["multisite-full", "multisite-partial"], ["tsne", "cne-0.5"]

    from raydr.data import load, set_apart
    from raydr.geometry.points import Points
    from raydr.methods.sense.server import SENSE, draw
    from raydr.metrics import Evidence, evaluate, row_graph
    from raydr.partition import Pointwise

    samplings = 1 if options.quick else SAMPLINGS
    figures: dict[str, float] = {}
    pooled: dict[str, dict[str, float]] = {}
    for regime in options.regimes:
        count = min(options.rows, POINTWISE_ROWS) if regime.startswith("pointwise") else options.rows
        settings = SENSE(**REGIMES[regime], anchors=ANCHORS)
        table = load(source="mnist")
        clients = count if regime.startswith("pointwise") else CLIENTS
        wanted = settings.public_rows(len(table.rows), count, table.rows.shape[1], clients)
        table, public = set_apart(table, count, wanted, seed=0)
        dealing = Pointwise() if regime.startswith("pointwise") else DEALINGS[options.partition]
        partition = dealing.deal(table, clients, seed=0)
        order = np.argsort(partition.client_of_row, kind="stable")
        rows, labels = table.rows[order], table.labels[order]  # type: ignore[index]
        known, seconds = completed_geometry(rows, partition.client_of_row[order], public.rows, settings)
        graph = row_graph(rows)
        evidence = Evidence(
            rows=rows,
            embedding=rows[:, :2],
            labels=labels,
            recovered=known.geometry,
            seed=0,
            row_neighbors=graph,
        )
        recovery = evaluate(["f_score", "distance_error"], evidence).values
        figures |= {f"{regime}.{name}": value for name, value in recovery.items()}
        figures[f"{regime}.completion_s"] = seconds
        print(
            f"{regime}: {len(rows):,} rows, F-score {recovery['f_score']:.4f}, distance error"
            f" {recovery['distance_error']:.6f}, completed in {seconds:.1f} s on one core",
            flush=True,
        )
        for name in options.embedders:
            drawn = SENSE(**REGIMES[regime], anchors=ANCHORS, embedder=EMBEDDERS[name])
            sides: dict[str, tuple[Any, FloatArray]] = {
                "federated": (known.geometry, drawn.space.chart(known.points))
            }
            if f"{len(rows)} {name}" not in pooled:
                sides["pooled"] = (Points(rows), rows)
            means: dict[str, dict[str, float]] = {}
            for side, (geometry, chart) in sides.items():
                each = [
                    scores(
                        rows,
                        labels,
                        draw(geometry, chart, drawn, seed, Journal()).embedding,
                        graph,
                        seed,
                        samplings,
                    )
                    for seed in range(options.repeats)
                ]
                means[side] = {
                    metric: statistics.mean(values[metric] for values in each) for metric in MAP_METRICS
                }
            central = pooled.setdefault(f"{len(rows)} {name}", means.get("pooled", {}))
            texts = []
            for metric in MAP_METRICS:
                own = means["federated"][metric]
                figures[f"{regime}.{name}.{metric}"] = own
                figures[f"{regime}.{name}.{metric}.pooled"] = central[metric]
                texts.append(f"{metric} {own:.4f} ({own - central[metric]:+.4f})")
            print(f"  {name:8} " + "  ".join(texts), flush=True)
    ratios = {
        name: value / figures[f"{name}.pooled"]
        for name, value in figures.items()
        if f"{name}.pooled" in figures
    }
    if options.file:
        with open(options.file, "w") as file:
            json.dump({"figures": figures, "ratios": ratios}, file, indent=2)


if __name__ == "__main__":
    main()
