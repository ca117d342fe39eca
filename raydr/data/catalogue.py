"""The built-in data sets: what each is, under which licence, and where its numbers come from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.data.columns import Choice, Columns
from raydr.data.datasets import Dataset
from raydr.data.fetching import kept, public_copy
from raydr.data.numpy_files import from_arrays, read_npz
from raydr.errors import DataError, did_you_mean

DATA_VARIABLE = "RAYDR_DATA"
"""Environment variable that names the data folder."""
IN_MEMORY = "memory"
"""``data.source`` of a run whose rows were handed over from Python, and are written down nowhere."""


_UCI = "https://archive.ics.uci.edu/dataset/"
_OPENML_SITE = "https://www.openml.org/d/"
_MEDMNIST = "https://medmnist.com"
_GITHUB = "https://github.com/"
_CC_BY = "CC BY 4.0"
_NONE_STATED = "none stated"

_ENTRIES = (
    Dataset("digits", "handwritten digits, 8x8 pixels", 1797, 64, 10, f"{_UCI}80", _CC_BY, "bundled"),
    Dataset("iris", "iris flowers, petal and sepal sizes", 150, 4, 3, f"{_UCI}53", _CC_BY, "bundled"),
    Dataset("wine", "chemical analysis of wines", 178, 13, 3, f"{_UCI}109", _CC_BY, "bundled"),
    Dataset("breast_cancer", "cell nuclei of breast tumours", 569, 30, 2, f"{_UCI}17", _CC_BY, "bundled"),
    Dataset(
        "mnist",
        "handwritten digits, 28x28 pixels",
        70_000,
        784,
        10,
        f"{_OPENML_SITE}554",
        "CC BY-SA 3.0",
        "openml",
    ),
    Dataset(
        "fashion_mnist", "clothing, 28x28 pixels", 70_000, 784, 10, f"{_OPENML_SITE}40996", "MIT", "openml"
    ),
    Dataset(
        "coil20_32",
        "20 objects on a turntable, 32x32 pixels",
        1440,
        1024,
        20,
        "https://www.cs.columbia.edu/CAVE/software/softlib/coil-20.php",
        _NONE_STATED,
    ),
    Dataset(
        "mice_protein",
        "proteins in the cortex of 72 mice",
        1080,
        77,
        8,
        f"{_UCI}342",
        _CC_BY,
        client_keys=("mouse",),
    ),
    Dataset("german_credit", "credit applicants, good and bad", 1000, 24, 2, f"{_UCI}144", _CC_BY),
    Dataset("seeds", "wheat kernels of three varieties", 210, 7, 3, f"{_UCI}236", _CC_BY),
    Dataset(
        "airport", "airports of a flight network", 3188, 4, 4, f"{_GITHUB}HazyResearch/hgcn", _NONE_STATED
    ),
    Dataset(
        "disease_lp",
        "people in a simulated epidemic tree",
        2665,
        11,
        2,
        f"{_GITHUB}HazyResearch/hgcn",
        _NONE_STATED,
    ),
    Dataset(
        "breastmnist", "breast ultrasound images, 28x28 pixels", 780, 784, 2, _MEDMNIST, _CC_BY, "zenodo"
    ),
    Dataset(
        "pneumoniamnist", "chest X-rays of children, 28x28 pixels", 5856, 784, 2, _MEDMNIST, _CC_BY, "zenodo"
    ),
    Dataset("retinamnist", "retinas, 28x28 pixels in colour", 1600, 2352, 5, _MEDMNIST, _CC_BY, "zenodo"),
    Dataset(
        "dermamnist",
        "skin lesions, 28x28 pixels in colour",
        10_015,
        2352,
        7,
        _MEDMNIST,
        "CC BY-NC 4.0",
        "zenodo",
    ),
    Dataset(
        "bloodmnist", "blood cells, 28x28 pixels in colour", 17_092, 2352, 8, _MEDMNIST, _CC_BY, "zenodo"
    ),
    Dataset(
        "organcmnist", "organs in coronal CT, 28x28 pixels", 23_583, 784, 11, _MEDMNIST, _CC_BY, "zenodo"
    ),
    Dataset(
        "organsmnist", "organs in sagittal CT, 28x28 pixels", 25_211, 784, 11, _MEDMNIST, _CC_BY, "zenodo"
    ),
    Dataset(
        "cifar_10",
        "things and animals, 32x32 pixels in colour",
        60_000,
        3072,
        10,
        f"{_OPENML_SITE}40927",
        _NONE_STATED,
        "openml",
    ),
    Dataset(
        "svhn",
        "house numbers from streets, 32x32 pixels in colour",
        99_289,
        3072,
        10,
        f"{_OPENML_SITE}41081",
        _NONE_STATED,
        "openml",
    ),
    Dataset(
        "scrna_worm_neuron_pc50",
        "worm neurons, 50 principal components of their transcripts",
        4186,
        50,
        10,
        f"{_GITHUB}ttgump/scDeepCluster",
        "Apache-2.0",
    ),
    Dataset(
        "scrna_cell_lines_pc20",
        "two cell lines in three batches, 20 principal components",
        2370,
        20,
        2,
        f"{_GITHUB}immunogenomics/harmony",
        "GPL-3",
        client_keys=("client",),
    ),
    Dataset(
        "heart_disease",
        "patients of four hospitals",
        920,
        13,
        2,
        f"{_UCI}45",
        _CC_BY,
        client_keys=("client",),
    ),
    Dataset(
        "beijing_air",
        "air and weather at twelve stations, by season",
        76_740,
        11,
        4,
        f"{_UCI}501",
        _CC_BY,
        client_keys=("client",),
    ),
)

FETCHED = ("openml", "zenodo")
"""Origins that have a public copy."""

DATASETS: Mapping[str, Dataset] = MappingProxyType({dataset.name: dataset for dataset in _ENTRIES})
"""Every built-in data set by its name."""


def find(name: str) -> Dataset:
    """Return the built-in data set of that name.

    Raises
    ------
    DataError
        When there is none; the message names the nearest and all of them.
    """
    if name == IN_MEMORY:
        raise DataError(
            f"data.source {name!r} stands for rows that a Python program held, which are written down nowhere: fit its"
            " estimator again, or save the rows to a file and name that in data.path."
        )
    if name not in DATASETS:
        raise DataError(
            f"There is no built-in data set {name!r}{did_you_mean(name, tuple(DATASETS))}. data.source must be one of "
            f"{', '.join(DATASETS)}; for a file of your own use data.path."
        )
    return DATASETS[name]


def read_builtin(dataset: Dataset, choice: Choice, data_dir: Path | None) -> Columns:
    """Read a built-in data set from scikit-learn, the data folder or OpenML, in that order.

    Raises
    ------
    DataError
        When none of them has it; the message says what would help.
    """
    if dataset.origin == "bundled":
        return from_arrays(dataset.name, _bundled(dataset.name), choice)
    folder = _data_folder(data_dir)
    file = None if folder is None else folder / f"{dataset.name}.npz"
    if file is not None and file.is_file():
        columns = read_npz(file, choice, name=dataset.name)
    elif dataset.origin in FETCHED:
        columns = from_arrays(dataset.name, public_copy(dataset, _remedy(dataset, folder)), choice)
    else:
        raise DataError(
            f"{dataset.name} is read from a data folder, and {_lack(dataset, folder)}. The data are published at "
            f"{dataset.published}: save them as {dataset.name}.npz with X ({dataset.rows}, {dataset.features}) and "
            f"y ({dataset.rows},) whole numbers from 0"
            f"{''.join(f', {key} ({dataset.rows},)' for key in dataset.client_keys)}, and name the folder with "
            f"--data-dir or the environment variable {DATA_VARIABLE}."
        )
    expected = dataset.features if choice.features is None else len(choice.features)
    if columns.matrix.shape != (dataset.rows, expected):
        raise DataError(
            f"{file or dataset.published} is not the built-in {dataset.name}: X gives {columns.matrix.shape} rows "
            f"and features where ({dataset.rows}, {expected}) belong. For data of your own use data.path."
        )
    return columns


def file_of(dataset: Dataset, data_dir: Path | None) -> Path | None:
    """Return the file here that has a built-in data set, None where there is none; arguments as for reading it."""
    folder = _data_folder(data_dir)
    candidates = [] if folder is None else [folder / f"{dataset.name}.npz"]
    if dataset.origin in FETCHED:
        candidates.append(kept(dataset))
    return next((path for path in candidates if path.is_file()), None)


def _lack(dataset: Dataset, folder: Path | None) -> str:
    return "no data folder is set" if folder is None else f"{folder} has no {dataset.name}.npz"


def _remedy(dataset: Dataset, folder: Path | None) -> str:
    return (
        f"{_lack(dataset, folder)}. Either connect to the network and run again (it is fetched once), or put"
        f" {dataset.name}.npz, with X ({dataset.rows}, {dataset.features}) uint8 and y ({dataset.rows},) whole numbers"
        f" from 0, in a folder named with --data-dir or the environment variable {DATA_VARIABLE}."
    )


def _data_folder(data_dir: Path | None) -> Path | None:
    if data_dir is not None:
        folder = data_dir.expanduser()
        if not folder.is_dir():
            raise DataError(
                f"The data folder {folder} does not exist or is not a folder; correct --data-dir."
            )
        return folder
    named = os.environ.get(DATA_VARIABLE)
    return Path(named).expanduser() if named else None


def _bundled(name: str) -> dict[str, NDArray[Any]]:
    """Return scikit-learn's bundled copy, with its names of features and classes."""
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")()
    return {
        "X": bunch.data,
        "y": bunch.target,
        "feature_names": np.array(bunch.feature_names, dtype=np.str_),
        "class_names": np.array(bunch.target_names).astype(np.str_),
    }
