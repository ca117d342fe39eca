"""Public copies of built-in data sets, downloaded once and kept next to scikit-learn's own downloads.

Tests do not use the network. An archive of MedMNIST must have the MD5 that its authors state. For data sets
on OpenML, only the name, version and size are known.
"""

from __future__ import annotations

import hashlib
import http.client
import logging
import os
import urllib.request
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.array_files import ArrayArchive, ArrayFileError, write_array_archive
from raydr.data.datasets import Dataset
from raydr.errors import DataError

_LOGGER = logging.getLogger(__name__)

Arrays = dict[str, NDArray[Any]]

_OPENML = {
    "mnist": ("mnist_784", 1),
    "fashion_mnist": ("Fashion-MNIST", 1),
    "cifar_10": ("CIFAR_10", 1),
    "svhn": ("SVHN", 1),
}
"""Name and version on OpenML."""

_TRAINING_ROWS = {"mnist": 60_000, "fashion_mnist": 60_000}
"""Training rows of data sets with separate test rows, which OpenML puts last."""

_CLASSES = {
    "fashion_mnist": (
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
    ),
    "cifar_10": (
        "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
    ),
}  # fmt: skip
"""Class names, for data sets whose classes are not digits."""

_ZENODO = "https://zenodo.org/records/10519652/files/"
_MEDMNIST = {
    "breastmnist": "750601b1f35ba3300ea97c75c52ff8f6",
    "pneumoniamnist": "28209eda62fecd6e6a2d98b1501bb15f",
    "retinamnist": "bd4c0672f1bba3e3a89f0e4e876791e4",
    "dermamnist": "0744692d530f8e62ec473284d019b0c7",
    "bloodmnist": "7053d0359d879ad8a5505303e11de1dc",
    "organcmnist": "b9ceb9546e10131b32923c5bbeaea2b1",
    "organsmnist": "9ab87b696fb54e2a387ebe992d6ed5f1",
}
"""MD5 of the archives of 28 x 28 pixels, as stated by MedMNIST."""
_SPLITS = ("train", "test", "val")
"""Splits of MedMNIST's archives, in the order of the column ``split``."""
PATIENCE_S = 60.0
"""Seconds without a byte until the server counts as unreachable."""


def kept(dataset: Dataset) -> Path:
    """Return the path of the local copy of a data set."""
    from sklearn.datasets import get_data_home

    return Path(get_data_home()) / "raydr" / f"{dataset.name}.npz"


def public_copy(dataset: Dataset, remedy: str) -> Arrays:
    """Return the public copy of a data set, downloaded and parsed once, then kept.

    Parameters
    ----------
    dataset : Dataset
        A data set whose origin has a public copy.
    remedy : str
        What to do instead if it cannot be downloaded.

    Raises
    ------
    DataError
        If it cannot be downloaded, or does not match the published data.
    """
    place = kept(dataset)
    if place.is_file():
        try:
            with ArrayArchive(place) as archive:
                return dict(archive)
        except (OSError, ArrayFileError) as error:
            raise DataError(
                f"{place}, the copy of {dataset.name}, cannot be read: {error} Delete it to download it again."
            ) from error
    _LOGGER.info("downloading %s from %s, once", dataset.name, dataset.published)
    try:
        arrays = _from_openml(dataset) if dataset.origin == "openml" else _from_zenodo(dataset)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise DataError(
            f"{dataset.name} could not be downloaded from {dataset.published} ({error or type(error).__name__}), and"
            f" {remedy}"
        ) from error
    try:
        place.parent.mkdir(exist_ok=True)
        partial = place.with_name(f"{dataset.name}.{os.getpid()}.npz")
        write_array_archive(partial, arrays, is_compressed=True)
        partial.replace(place)
    except OSError as error:
        _LOGGER.warning("%s is not kept (%s): it will be downloaded again next time", dataset.name, error)
    return arrays


def _from_openml(dataset: Dataset) -> Arrays:
    from sklearn.datasets import fetch_openml

    name, version = _OPENML[dataset.name]
    # Without pandas only the slower parser works; both give the same numbers.
    pixels, codes = fetch_openml(
        name,
        version=version,
        return_X_y=True,
        as_frame=False,
        parser="pandas" if find_spec("pandas") else "liac-arff",
        n_retries=1,
    )
    names = tuple(str(digit) for digit in range(10))
    arrays: Arrays = {
        "X": np.asarray(pixels).astype(np.uint8),
        "y": np.asarray(codes).astype(np.int64),
        "class_names": np.array(_CLASSES.get(dataset.name, names), dtype=np.str_),
    }
    if dataset.name in _TRAINING_ROWS:
        arrays["split"] = (np.arange(dataset.rows) >= _TRAINING_ROWS[dataset.name]).astype(np.int64)
    return arrays


def _from_zenodo(dataset: Dataset) -> Arrays:
    with urllib.request.urlopen(f"{_ZENODO}{dataset.name}.npz?download=1", timeout=PATIENCE_S) as reply:
        content = reply.read()
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != _MEDMNIST[dataset.name]:
        raise ValueError(f"the MD5 is {found}, but expected {_MEDMNIST[dataset.name]}")
    with np.load(BytesIO(content), allow_pickle=False) as archive:
        return from_medmnist(dict(archive))


def from_medmnist(archive: Arrays) -> Arrays:
    """Return the images of a MedMNIST archive as rows, colours last.

    ``split`` is 0 for training, 1 test, 2 validation.
    """
    images = [archive[f"{split}_images"] for split in _SPLITS]
    labels = [archive[f"{split}_labels"].reshape(-1) for split in _SPLITS]
    return {
        "X": np.concatenate([part.reshape(len(part), -1) for part in images]),
        "y": np.concatenate(labels).astype(np.int64),
        "split": np.repeat(np.arange(len(_SPLITS)), [len(part) for part in labels]),
    }
