"""Description of a built-in data set: name, size, licence and origin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(kw_only=True, frozen=True)
class Dataset:
    """A built-in data set.

    Attributes
    ----------
    name : str
        Its name in ``data.source``, and of NAME.npz in a data folder, unless ``file`` is given.
    description : str
        One line for ``raydr list datasets``.
    rows, features, classes : int
        Its size; ``classes`` counts the values of the default label.
    published : str
        The page where the data are published.
    licence : str
        The licence on that page.
    origin : {"bundled", "openml", "zenodo", "folder"}
        "bundled" is installed with scikit-learn. "openml" and "zenodo" are downloaded unless the data folder
        has them. "folder" is read only from the data folder.
    client_keys : tuple of str
        Columns that name a natural owner of the rows, for ``clients.partition.column``.
    file : str
        Name of the .npz that it is made from, if not its own.
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
    file: str = ""
