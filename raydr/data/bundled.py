"""The data sets in scikit-learn's package, read from its files: importing scikit-learn takes two seconds."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_CELL = (
    "radius",
    "texture",
    "perimeter",
    "area",
    "smoothness",
    "compactness",
    "concavity",
    "concave points",
    "symmetry",
    "fractal dimension",
)
_FEATURES = {
    "digits": [f"pixel_{row}_{column}" for row, column in product(range(8), repeat=2)],
    "iris": [f"{part} {size} (cm)" for part, size in product(("sepal", "petal"), ("length", "width"))],
    "wine": [
        "alcohol",
        "malic_acid",
        "ash",
        "alcalinity_of_ash",
        "magnesium",
        "total_phenols",
        "flavanoids",
        "nonflavanoid_phenols",
        "proanthocyanins",
        "color_intensity",
        "hue",
        "od280/od315_of_diluted_wines",
        "proline",
    ],
    "breast_cancer": [
        *(f"mean {each}" for each in _CELL),
        *(f"{each} error" for each in _CELL),
        *(f"worst {each}" for each in _CELL),
    ],
}
_FILES = {
    "digits": "digits.csv.gz",
    "iris": "iris.csv",
    "wine": "wine_data.csv",
    "breast_cancer": "breast_cancer.csv",
}


def read_bundled(name: str) -> dict[str, NDArray[Any]]:
    """Return rows ``X`` (rows, features) float64, classes ``y`` (rows,), ``feature_names`` and ``class_names``.

    Examples
    --------
    >>> iris = read_bundled("iris")
    >>> iris["X"].shape, iris["class_names"].tolist()
    ((150, 4), ['setosa', 'versicolor', 'virginica'])
    """
    package = find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    file = Path(package.origin).parent / "datasets" / "data" / _FILES[name]
    if name == "digits":
        table, classes = np.loadtxt(file, delimiter=","), [str(digit) for digit in range(10)]
    else:
        with file.open(encoding="utf-8") as lines:
            # The first line has the number of rows and of columns, then the classes.
            classes = next(lines).strip().split(",")[2:]
            table = np.loadtxt(lines, delimiter=",")
    return {
        "X": np.ascontiguousarray(table[:, :-1]),
        "y": table[:, -1].astype(np.int64),
        "feature_names": np.array(_FEATURES[name]),
        "class_names": np.array(classes),
    }
