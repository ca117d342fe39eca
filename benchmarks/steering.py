"""Maps that labels steer: how far classes lie apart, and how well held-out rows are placed, next to umap-learn.

    python -m benchmarks.steering [--quick] [--json FILE]

Tables are digits, heart disease (``heart_disease.csv`` in the folder ``RAYDR_DATA``; gaps filled in by the
median, columns with variance 1), and digits with shuffled labels, about which the features say nothing. A fifth
of the rows, drawn by class, is held out and placed without labels. The others are dealt to ten clients.

``silhouette`` is that of the classes on the map. ``accuracy`` is the share of held-out rows that have the class of
most of their seven nearest mapped rows. ``trustworthiness`` compares ten neighbours on the map with the features.
umap-learn gets the pooled rows; at weight 0 it gets no labels. With ``--quick``: digits by Fed-UMAP at one weight.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.manifold import trustworthiness
from sklearn.metrics import silhouette_score
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

import raydr

WEIGHTS = (0.0, 0.2, 0.5, 0.9)
METHODS: dict[str, Any] = {"fed-umap": raydr.FedUMAP, "fed-tsne": raydr.FedTSNE}


def tables() -> Iterator[tuple[str, Any, Any]]:
    """Yield name, rows (rows, features) and classes (rows,) of each table."""
    import pandas as pd

    rows, classes = load_digits(return_X_y=True)
    yield "digits", rows, classes
    heart = pd.read_csv(Path(os.environ["RAYDR_DATA"]) / "heart_disease.csv")
    table = heart.drop(columns=["hospital", "disease"])
    table = table.fillna(table.median())
    yield (
        "heart disease",
        ((table - table.mean()) / table.std()).to_numpy(),
        np.unique(heart["disease"], return_inverse=True)[1],
    )
    yield "digits, labels shuffled", rows, np.random.default_rng(0).permutation(classes)


def measured(model: Any, split: Any, labels: Any = None) -> dict[str, float]:
    """Fit a model to the mapped rows and place the others."""
    rows, others, classes, theirs = split
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        places = model.fit(rows, labels).embedding_
        new = model.transform(others)
    nearest = KNeighborsClassifier(7).fit(places, classes)
    return {
        "silhouette": float(silhouette_score(places, classes)),
        "accuracy": float(nearest.score(new, theirs)),
        "trustworthiness": float(trustworthiness(rows, places, n_neighbors=10)),
    }


def main() -> None:
    """Print the table and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steering", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="digits by Fed-UMAP at one weight")
    parser.add_argument("--json", type=Path, help="also write figures and ratios to this file")
    options = parser.parse_args()
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    print("| data | weight | method | silhouette | accuracy | trustworthiness |", flush=True)
    print("| --- | ---: | --- | ---: | ---: | ---: |", flush=True)
    for name, rows, classes in tables():
        split = train_test_split(rows, classes, test_size=0.2, stratify=classes, random_state=0)
        for weight in (0.5,) if options.quick else WEIGHTS:
            import umap

            kinds = list(METHODS)[: 1 if options.quick else None]
            models = {kind: METHODS[kind](target_weight=weight, metrics=()) for kind in kinds}
            models["umap-learn"] = umap.UMAP(target_weight=weight, random_state=0)
            for method, model in models.items():
                labels = split[2] if method != "umap-learn" or weight else None
                line = measured(model, split, labels)
                figures |= {f"{name}.{weight}.{method}.{key}": value for key, value in line.items()}
                each = " | ".join(f"{value:.3f}" for value in line.values())
                print(f"| {name} | {weight:g} | {method} | {each} |", flush=True)
            figures[f"{name}.{weight}.weight"] = weight
            peer = f"{name}.{weight}.umap-learn.accuracy"
            ratios[f"{name}.{weight}.accuracy"] = (
                figures[f"{name}.{weight}.fed-umap.accuracy"] / figures[peer]
            )
        if options.quick:
            break
    if options.json is not None:
        options.json.write_text(json.dumps({"figures": figures, "ratios": ratios}, indent=2) + "\n")


if __name__ == "__main__":
    main()
