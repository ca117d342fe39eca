"""The description of a built-in data set: name, size, licence and origin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(kw_only=True, frozen=True)
class Dataset:
    """A built-in data set.

    Attributes
    ----------
    name : str
        What ``data.source`` and, in a data folder, NAME.npz are called.
    description : str
        One line for ``raydr list datasets``.
    rows, features, classes : int
        Its size; ``classes`` counts the values of the default label.
    published : str
        Where the data are published.
    licence : str
        As stated there.
    origin : {"bundled", "openml", "zenodo", "folder"}
        Installed with scikit-learn; fetched from there unless the data folder has it (two); data folder only.
    client_keys : tuple of str
        Columns that name a natural owner of the rows, for ``clients.partition.column``.
    """

    name: str
    description: str
    rows: int
    features: int
    classes: int
    published: str
    licence: str
    origin: Literal["bundled", "openml", "zenodo", "folder"] = "folder"
    client_keys: tuple[str, ...] = ()
