"""Rows near a fracture of maps, and rows that would jump: by perplexity, and what they keep of their neighbours.

    python -m benchmarks.fractures [--quick] [--data digits ...] [--rows N ...] [--published FOLDER] [--json FILE]

The first table is t-SNE of 500 rows of a mixture of five normal clusters in the plane, as in LOO-map. Centres are drawn
from a square of side 12, for five mixtures. ``share`` is the mean share of rows near a fracture, ``largest`` the mean
of the 5 % largest singularities, in units of the median. The second table has maps by t-SNE and UMAP with raydr's
defaults. ``npa`` is ``npa_10``, and ``again`` the share of ten neighbours on the map that a map from a random start
keeps. Neither decides which rows are near a fracture. MNIST has 2,000 random rows, and noise 600 rows of 10 normal
columns. ``jumps`` and ``jump`` are of rows that would jump on maps of t-SNE. ``beyond`` are those of them that are
reliable and not near a fracture, among such rows. ``--quick`` has one mixture, and noise alone.

The third table is of 300 rows of the mixture of three normal clusters of LOO-map's package, with perplexity 75 and
moves by 0.5. ``margin`` is how much farther the second nearest mean is than the nearest. The fourth table is of t-SNE
of 600 digits 0 to 4 and 25 digits 5 to 9.

With ``--published``, the only figures are correlations with LOO-map's published perturbation scores, of its own map of
500 rows with perplexity 50, by the length of moves. FOLDER is ``Code and data/data/2GMM`` of
https://github.com/zhexuandliu/MapContinuity-NE-Reliability.

With ``--rows``, the only table compares a sample of 5,000 rows with all: of MNIST, or of normal clusters in 50 columns
if there are more than 70,000 rows. ``scores`` is the correlation of the inverse scores of the sampled rows. Above
100,000 rows, only the sample is used.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import time
from pathlib import Path

import numpy as np

from raydr.arrays import BoolArray, Float64Array
from raydr.embedding import TSNE, UMAP, principal_components
from raydr.geometry.cells import find_neighbors
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Points
from raydr.metrics import Evidence, evaluate
from raydr.metrics.evidence import Examination
from raydr.metrics.neighborhood import shared_neighbors
from raydr.metrics.perturbation import JUMP, perturbations
from raydr.metrics.singularity import NEAR, singularities
from raydr.metrics.verdicts import RELIABLE
from raydr.threads import cores

DATA = ("digits", "mnist", "heart_disease", "scrna_cell_lines_pc20", "noise")
MNIST_ROWS, ALL_ROWS = 70_000, 100_000
PERPLEXITIES = (5, 15, 30, 50, 75)


def mixture(seed: int, rows: int = 500, clusters: int = 5) -> Float64Array:
    """Return rows of normal clusters in the plane, with centres in a square of side 12."""
    random = np.random.default_rng(seed)
    centres = random.uniform(-6.0, 6.0, (clusters, 2))
    return centres[random.integers(clusters, size=rows)] + random.normal(size=(rows, 2))


def table(name: str) -> Float64Array:
    """Return the rows of a table."""
    from sklearn.datasets import load_digits

    random = np.random.default_rng(0)
    if name == "noise":
        return np.asarray(random.normal(size=(600, 10)))
    if name == "digits":
        return np.asarray(load_digits().data)
    with np.load(Path(os.environ["RAYDR_DATA"]) / f"{name}.npz", allow_pickle=False) as arrays:
        rows = arrays["X"].astype(np.float64)
    if name == "mnist":
        rows = rows[random.choice(len(rows), 2000, replace=False)] / 255.0
    if name == "heart_disease":
        rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    return np.asarray(rows, np.float64)


def drawn(rows: Float64Array, embedder: TSNE | UMAP, start: Float64Array, seed: int) -> Float64Array:
    """Return the map of rows from a start."""
    graph = nearest_neighbors(Points(rows), embedder.neighbors_needed(len(rows)))
    return np.asarray(embedder.embed(graph, start, seed=seed), np.float64)


def means(values: Float64Array, some: BoolArray) -> tuple[float, float]:
    """Return the means of some rows and of the others, not a number where there are none."""
    one, other = (float(values[rows].mean()) if rows.any() else float("nan") for rows in (some, ~some))
    return one, other


def between(seed: int) -> dict[str, float]:
    """Return how far rows are from the border between clusters: those that would jump, near a fracture, and all."""
    random, centres = np.random.default_rng(seed), np.array([[2.0, 0.0], [-2.0, 0.0], [0.0, -4.0]])
    rows, tsne = centres[random.integers(3, size=300)] + random.normal(size=(300, 2)), TSNE(perplexity=75)
    places = drawn(rows, tsne, principal_components(rows), 0)
    apart = np.sort(np.linalg.norm(rows[:, None] - centres, axis=2), axis=1)
    margin = apart[:, 1] - apart[:, 0]
    jump = perturbations(Points(rows), places, tsne, length=0.5) >= JUMP
    scores = singularities(Points(rows), places, tsne)
    singular = scores >= np.quantile(scores, 0.95)
    return {
        "share": float(jump.mean()),
        "margin, jump": means(margin, jump)[0],
        "margin, largest 5 % singularities": means(margin, singular)[0],
        "margin, all": float(margin.mean()),
    }


def strangers(seed: int) -> dict[str, float]:
    """Return what tells a few rows of other classes from the rest: shares that jump, and areas under the curve."""
    from sklearn.datasets import load_digits
    from sklearn.metrics import roc_auc_score

    rows, labels = load_digits(return_X_y=True)
    random, tsne = np.random.default_rng(seed), TSNE()
    known = random.choice(np.flatnonzero(labels < 5), 600, replace=False)
    others = random.choice(np.flatnonzero(labels >= 5), 25, replace=False)
    data = rows[np.concatenate([known, others])]
    places = drawn(data, tsne, principal_components(data), 0)
    scores = evaluate(
        ["perturbation", "fracture", "reliable"], Evidence(rows=data, embedding=places, drawn_by=tsne)
    )
    strange, by_row = np.arange(len(data)) >= 600, scores.by_row
    there, elsewhere = means((by_row["perturbation"] >= JUMP).astype(np.float64), strange)
    return {
        "jump, other classes": there,
        "jump, the rest": elsewhere,
        "area, perturbation": float(roc_auc_score(strange, by_row["perturbation"])),
        "area, singularity": float(roc_auc_score(strange, np.minimum(by_row["singularity"], 1e9))),
        "area, reliability": float(roc_auc_score(strange, -by_row["reliability"])),
    }


def numbers(file: Path) -> list[Float64Array]:
    """Return the vectors of at least 100 numbers in a file that R saved."""
    content, found = gzip.decompress(file.read_bytes()), []
    for start in re.finditer(
        rb"\x00\x00[\x00\x02]\x0e", content
    ):  # a vector of doubles, and its length follows
        count = int.from_bytes(content[start.end() : start.end() + 4], "big")
        if count >= 100 and start.end() + 4 + 8 * count <= len(content):
            found.append(np.frombuffer(content, ">f8", count, start.end() + 4).astype(np.float64))
    return found


def published(folder: Path) -> dict[str, float]:
    """Compare perturbation scores with the published ones."""
    rows, places = (
        each.reshape(2, -1).T.copy() for each in numbers(folder / "2d_2GMM_perplexity50.RData")[:2]
    )
    scores = numbers(folder / "perturbation_score_perplexity50.RData")[0]
    tsne = TSNE(perplexity=50)
    return {
        f"published.{length}": round(
            float(np.corrcoef(scores, perturbations(Points(rows), places, tsne, length=length))[0, 1]), 3
        )
        for length in (0.5, 1.0, 2.0)
    }


def kept(one: Float64Array, other: Float64Array) -> Float64Array:
    """Return the share of each row's ten nearest in one table that are among its ten nearest in the other."""
    near, found = (nearest_neighbors(Points(each), 10).indices for each in (one, other))
    return shared_neighbors(near, found) / 10


def sampled(rows: int, embedder: TSNE | UMAP) -> dict[str, float]:
    """Compare a sample of a map's rows with all of them."""
    if rows <= MNIST_ROWS:
        with np.load(Path(os.environ["RAYDR_DATA"]) / "mnist.npz", allow_pickle=False) as arrays:
            every = arrays["X"]
        some = np.random.default_rng(0).choice(len(every), rows, replace=False)
        data = every[some].astype(np.float32) / 255.0
    else:
        random = np.random.default_rng(0)
        centres = 2.0 * random.normal(size=(50, 50))[random.integers(50, size=rows)]
        data = (centres + random.normal(size=(rows, 50))).astype(np.float32)
    graph = find_neighbors(Points(data), embedder.neighbors_needed(rows), recall=0.98).graph
    start = principal_components(data)
    places = np.asarray(embedder.embed(graph, start, seed=0, threads=cores()), np.float64)
    del graph
    evidence = Evidence(rows=data, embedding=places, drawn_by=embedder)
    began = time.perf_counter()
    scores = evaluate(["fracture"], evidence, exact_rows=0)
    line = {
        "sampled share": scores.values["fracture"],
        "error": scores.standard_errors["fracture"],
        "sampled, s": time.perf_counter() - began,
    }
    if rows <= ALL_ROWS:
        began = time.perf_counter()
        exact = singularities(Points(data), places, embedder)
        line |= {"share": float((exact >= NEAR).mean()), "all, s": time.perf_counter() - began}
        own = Examination(evidence=evidence, exact_rows=0).sampled
        found = singularities(Points(data), places, embedder, own)
        line["scores"] = float(np.corrcoef(1.0 / found, 1.0 / exact[own])[0, 1])
    return line


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rows", type=int, nargs="+")
    parser.add_argument("--published", type=Path)
    options = parser.parse_args()
    figures: dict[str, float] = {}
    for rows in options.rows or ():
        for embedder in (TSNE(), UMAP()):
            line = sampled(rows, embedder)
            figures |= {f"{rows}.{embedder.kind}.{key}": round(value, 4) for key, value in line.items()}
            print(rows, embedder.kind, line, flush=True)
    if options.published:
        figures |= published(options.published)
        print(figures)
    elif not options.rows:
        compare(options, figures)
    if options.json:
        options.json.write_text(json.dumps({"figures": figures, "ratios": {}}, indent=1) + "\n")


def compare(options: argparse.Namespace, figures: dict[str, float]) -> None:
    """Print the tables of all rows, and add their figures."""
    print("| perplexity | share | largest | jumps |\n| --- | --- | --- | --- |")
    for perplexity in PERPLEXITIES:
        shares, largest, jumps = [], [], []
        for seed in range(1 if options.quick else 5):
            rows, tsne = mixture(seed), TSNE(perplexity=perplexity)
            places = drawn(rows, tsne, principal_components(rows), 0)
            found = singularities(Points(rows), places, tsne)
            jumps.append((perturbations(Points(rows), places, tsne) >= JUMP).mean())
            shares.append((found >= NEAR).mean())
            largest.append(np.sort(found)[-len(found) // 20 :].mean())
        line = {
            "share": float(np.mean(shares)),
            "largest": float(np.mean(largest)),
            "jumps": float(np.mean(jumps)),
        }
        figures |= {f"mixture.{perplexity}.{key}": round(value, 3) for key, value in line.items()}
        print(f"| {perplexity} | " + " | ".join(f"{value:.3f}" for value in line.values()) + " |", flush=True)
    print("\n| data | embedder | figures |")
    for name in ("noise",) if options.quick else options.data:
        rows = table(name)
        for embedder in (TSNE(), UMAP()):
            places = drawn(rows, embedder, principal_components(rows), 0)
            random = np.random.default_rng(1).normal(size=(len(rows), 2))
            near = singularities(Points(rows), places, embedder) >= NEAR
            line = {"share": float(near.mean())}
            measured = {
                "npa": kept(rows, places),
                "again": kept(places, drawn(rows, embedder, random, 1)),
            }
            for title, values in measured.items():
                line[f"{title}, near"], line[f"{title}, others"] = means(values, near)
            if isinstance(embedder, TSNE):
                began = time.perf_counter()
                jump = perturbations(Points(rows), places, embedder) >= JUMP
                line |= {"jump, s": time.perf_counter() - began, "jump share": float(jump.mean())}
                for title, values in measured.items():
                    line[f"{title}, jump"], line[f"{title}, no jump"] = means(values, jump)
                judged = evaluate(["reliable"], Evidence(rows=rows, embedding=places)).reliability
                sound = ~near if judged is None else ~near & (judged.verdicts == RELIABLE)
                line["beyond"] = means(jump.astype(np.float64), sound)[0]
                line["npa, beyond"] = means(measured["npa"], sound & jump)[0]
                line["npa, sound"] = means(measured["npa"], sound & ~jump)[0]
            figures |= {
                f"{name}.{embedder.kind}.{key}": round(value, 3)
                for key, value in line.items()
                if not np.isnan(value)
            }
            print(
                f"| {name} | {embedder.kind} | "
                + ", ".join(f"{key} {value:.3f}" for key, value in line.items())
                + " |",
                flush=True,
            )
    for title, example in (("clusters", between), ("strangers", strangers)):
        lines = [example(seed) for seed in range(1 if options.quick else 5)]
        for key in lines[0]:
            value = float(np.nanmean([each[key] for each in lines]))
            figures[f"{title}.{key}"] = round(value, 3)
            print(f"| {title} | {key} | {value:.3f} |", flush=True)


if __name__ == "__main__":
    main()
