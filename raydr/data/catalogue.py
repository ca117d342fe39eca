"""Catalogue of the built-in data sets: content, licence and origin."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from raydr.array_files import ArrayArchive
from raydr.data.bundled import read_bundled
from raydr.data.datasets import Dataset
from raydr.data.fetching import kept, public_copy
from raydr.data.files.numpy_files import from_arrays, read_npz
from raydr.data.german_credit import with_attributes
from raydr.data.node_features import with_degrees
from raydr.data.survey.columns import Choice, Columns
from raydr.errors import DataError, did_you_mean

DATA_VARIABLE = "RAYDR_DATA"
"""Environment variable that names the data folder."""
IN_MEMORY = "memory"
"""``data.source`` of a run whose rows came from Python and are not stored."""


_UCI = "https://archive.ics.uci.edu/dataset/"
_OPENML_SITE = "https://www.openml.org/d/"
_MEDMNIST = "https://medmnist.com"
_GITHUB = "https://github.com/"
_CC_BY = "CC BY 4.0"
_NONE_STATED = "none stated"

_ENTRIES = (
    Dataset(
        name="digits",
        description="handwritten digits, 8x8 pixels",
        rows=1797,
        features=64,
        classes=10,
        published=f"{_UCI}80",
        licence=_CC_BY,
        origin="bundled",
    ),
    Dataset(
        name="iris",
        description="iris flowers, petal and sepal sizes",
        rows=150,
        features=4,
        classes=3,
        published=f"{_UCI}53",
        licence=_CC_BY,
        origin="bundled",
    ),
    Dataset(
        name="wine",
        description="chemical analysis of wines",
        rows=178,
        features=13,
        classes=3,
        published=f"{_UCI}109",
        licence=_CC_BY,
        origin="bundled",
    ),
    Dataset(
        name="breast_cancer",
        description="cell nuclei of breast tumours",
        rows=569,
        features=30,
        classes=2,
        published=f"{_UCI}17",
        licence=_CC_BY,
        origin="bundled",
    ),
    Dataset(
        name="mnist",
        description="handwritten digits, 28x28 pixels",
        rows=70_000,
        features=784,
        classes=10,
        published=f"{_OPENML_SITE}554",
        licence="CC BY-SA 3.0",
        origin="openml",
    ),
    Dataset(
        name="fashion_mnist",
        description="clothing, 28x28 pixels",
        rows=70_000,
        features=784,
        classes=10,
        published=f"{_OPENML_SITE}40996",
        licence="MIT",
        origin="openml",
    ),
    Dataset(
        name="coil20_32",
        description="20 objects on a turntable, 32x32 pixels",
        rows=1440,
        features=1024,
        classes=20,
        published="https://www.cs.columbia.edu/CAVE/software/softlib/coil-20.php",
        licence=_NONE_STATED,
    ),
    Dataset(
        name="mice_protein",
        description="proteins in the cortex of 72 mice",
        rows=1080,
        features=77,
        classes=8,
        published=f"{_UCI}342",
        licence=_CC_BY,
        client_keys=("mouse",),
    ),
    Dataset(
        name="german_credit",
        description="credit applicants, good and bad",
        rows=1000,
        features=24,
        classes=2,
        published=f"{_UCI}144",
        licence=_CC_BY,
    ),
    Dataset(
        name="german_credit_20",
        description="credit applicants by 20 attributes, categories as numbers",
        rows=1000,
        features=20,
        classes=2,
        published=f"{_UCI}144",
        licence=_CC_BY,
        file="german_credit",
    ),
    Dataset(
        name="seeds",
        description="wheat kernels of three varieties",
        rows=210,
        features=7,
        classes=3,
        published=f"{_UCI}236",
        licence=_CC_BY,
    ),
    Dataset(
        name="airport",
        description="airports of a flight network",
        rows=3188,
        features=4,
        classes=4,
        published=f"{_GITHUB}HazyResearch/hgcn",
        licence=_NONE_STATED,
    ),
    Dataset(
        name="airport_11",
        description="airports of a flight network, with their degree and a constant as columns",
        rows=3188,
        features=11,
        classes=4,
        published=f"{_GITHUB}HazyResearch/hgcn",
        licence=_NONE_STATED,
        file="airport",
    ),
    Dataset(
        name="disease_lp",
        description="people in a simulated epidemic tree",
        rows=2665,
        features=11,
        classes=2,
        published=f"{_GITHUB}HazyResearch/hgcn",
        licence=_NONE_STATED,
    ),
    Dataset(
        name="breastmnist",
        description="breast ultrasound images, 28x28 pixels",
        rows=780,
        features=784,
        classes=2,
        published=_MEDMNIST,
        licence=_CC_BY,
        origin="zenodo",
    ),
    Dataset(
        name="pneumoniamnist",
        description="chest X-rays of children, 28x28 pixels",
        rows=5856,
        features=784,
        classes=2,
        published=_MEDMNIST,
        licence=_CC_BY,
        origin="zenodo",
    ),
    Dataset(
        name="retinamnist",
        description="retinas, 28x28 pixels in colour",
        rows=1600,
        features=2352,
        classes=5,
        published=_MEDMNIST,
        licence=_CC_BY,
        origin="zenodo",
    ),
    Dataset(
        name="dermamnist",
        description="skin lesions, 28x28 pixels in colour",
        rows=10_015,
        features=2352,
        classes=7,
        published=_MEDMNIST,
        licence="CC BY-NC 4.0",
        origin="zenodo",
    ),
    Dataset(
        name="bloodmnist",
        description="blood cells, 28x28 pixels in colour",
        rows=17_092,
        features=2352,
        classes=8,
        published=_MEDMNIST,
        licence=_CC_BY,
        origin="zenodo",
    ),
    Dataset(
        name="organcmnist",
        description="organs in coronal CT, 28x28 pixels",
        rows=23_583,
        features=784,
        classes=11,
        published=_MEDMNIST,
        licence=_CC_BY,
        origin="zenodo",
    ),
    Dataset(
        name="organsmnist",
        description="organs in sagittal CT, 28x28 pixels",
        rows=25_211,
        features=784,
        classes=11,
        published=_MEDMNIST,
        licence=_CC_BY,
        origin="zenodo",
    ),
    Dataset(
        name="cifar_10",
        description="things and animals, 32x32 pixels in colour",
        rows=60_000,
        features=3072,
        classes=10,
        published=f"{_OPENML_SITE}40927",
        licence=_NONE_STATED,
        origin="openml",
    ),
    Dataset(
        name="svhn",
        description="house numbers from streets, 32x32 pixels in colour",
        rows=99_289,
        features=3072,
        classes=10,
        published=f"{_OPENML_SITE}41081",
        licence=_NONE_STATED,
        origin="openml",
    ),
    Dataset(
        name="scrna_worm_neuron_pc50",
        description="worm neurons, 50 principal components of their transcripts",
        rows=4186,
        features=50,
        classes=10,
        published=f"{_GITHUB}ttgump/scDeepCluster",
        licence="Apache-2.0",
    ),
    Dataset(
        name="scrna_cell_lines_pc20",
        description="two cell lines in three batches, 20 principal components",
        rows=2370,
        features=20,
        classes=2,
        published=f"{_GITHUB}immunogenomics/harmony",
        licence="GPL-3",
        client_keys=("client",),
    ),
    Dataset(
        name="heart_disease",
        description="patients of four hospitals",
        rows=920,
        features=13,
        classes=2,
        published=f"{_UCI}45",
        licence=_CC_BY,
        client_keys=("client",),
    ),
    Dataset(
        name="beijing_air",
        description="air and weather at twelve stations, by season",
        rows=76_740,
        features=11,
        classes=4,
        published=f"{_UCI}501",
        licence=_CC_BY,
        client_keys=("client",),
    ),
)

FETCHED = ("openml", "zenodo")
"""Origins with a public copy."""

DATASETS: Mapping[str, Dataset] = MappingProxyType({dataset.name: dataset for dataset in _ENTRIES})
"""Every built-in data set by its name."""


def find(name: str) -> Dataset:
    """Return the built-in data set of that name.

    Raises
    ------
    DataError
        If there is none. The message names the nearest one and all of them.
    """
    if name == IN_MEMORY:
        raise DataError(
            f"data.source {name!r} stands for rows that a Python program held, which are not stored. Fit its estimator"
            " again, or save the rows to a file and name it in data.path."
        )
    if name not in DATASETS:
        raise DataError(
            f"There is no built-in data set {name!r}{did_you_mean(name, tuple(DATASETS))}. data.source must be one of "
            f"{', '.join(DATASETS)}. For your own file, use data.path."
        )
    return DATASETS[name]


_DERIVED = {
    "german_credit_20": (with_attributes, "X_onehot (1000, 61)"),
    "airport_11": (with_degrees, "X (3188, 4), edges (18631, 2)"),
}
"""Functions of the arrays of a file to those of a data set, by name, and what the arrays are besides ``y``."""


def read_builtin(dataset: Dataset, choice: Choice, data_dir: Path | None) -> Columns:
    """Read a built-in data set from scikit-learn, the data folder or its public copy, in that order.

    Raises
    ------
    DataError
        If none of them has it. The message says what to do.
    """
    if dataset.origin == "bundled":
        return from_arrays(dataset.name, read_bundled(dataset.name), choice)
    folder = _data_folder(data_dir)
    file = None if folder is None else folder / f"{dataset.file or dataset.name}.npz"
    if file is not None and file.is_file() and dataset.name in _DERIVED:
        with ArrayArchive(file) as archive:
            columns = from_arrays(dataset.name, _DERIVED[dataset.name][0](dict(archive)), choice)
    elif file is not None and file.is_file():
        columns = read_npz(file, choice, name=dataset.name)
    elif dataset.origin in FETCHED:
        columns = from_arrays(dataset.name, public_copy(dataset, _remedy(dataset, folder)), choice)
    else:
        held = _DERIVED[dataset.name][1] if dataset.file else f"X ({dataset.rows}, {dataset.features})"
        raise DataError(
            f"{dataset.name} is read from a data folder, but {_lack(dataset, folder)}. The data are published at "
            f"{dataset.published}. Save them as {dataset.file or dataset.name}.npz with "
            f"{held} and y ({dataset.rows},) whole numbers from 0"
            f"{''.join(f', {key} ({dataset.rows},)' for key in dataset.client_keys)}, and name the folder with "
            f"--data-dir or the environment variable {DATA_VARIABLE}."
        )
    expected = dataset.features if choice.features is None else len(choice.features)
    if columns.matrix.shape != (dataset.rows, expected):
        raise DataError(
            f"{file or dataset.published} is not the built-in {dataset.name}: X has {columns.matrix.shape} rows "
            f"and features, but ({dataset.rows}, {expected}) are expected. For your own data, use data.path."
        )
    return columns


def file_of(dataset: Dataset, data_dir: Path | None) -> Path | None:
    """Return the local file of a built-in data set, or None."""
    folder = _data_folder(data_dir)
    candidates = [] if folder is None else [folder / f"{dataset.file or dataset.name}.npz"]
    if dataset.origin in FETCHED:
        candidates.append(kept(dataset))
    return next((path for path in candidates if path.is_file()), None)


def _lack(dataset: Dataset, folder: Path | None) -> str:
    return (
        "no data folder is set" if folder is None else f"{folder} has no {dataset.file or dataset.name}.npz"
    )


def _remedy(dataset: Dataset, folder: Path | None) -> str:
    return (
        f"{_lack(dataset, folder)}. Either connect to the network and run again (it is downloaded once), or put"
        f" {dataset.name}.npz, with X ({dataset.rows}, {dataset.features}) uint8 and y ({dataset.rows},) whole numbers"
        f" from 0, in a folder and name the folder with --data-dir or the environment variable {DATA_VARIABLE}."
    )


def _data_folder(data_dir: Path | None) -> Path | None:
    if data_dir is not None:
        folder = data_dir.expanduser()
        if not folder.is_dir():
            raise DataError(
                f"The data folder {folder} does not exist or is not a folder. Correct --data-dir."
            )
        return folder
    named = os.environ.get(DATA_VARIABLE)
    return Path(named).expanduser() if named else None
