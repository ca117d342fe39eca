"""A run's model: arrays that place new rows on its map, with checked provenance."""

from __future__ import annotations

import hashlib
import json
import types
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import version
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.array_files import ArrayArchive, write_array_archive
from raydr.arrays import FloatArray
from raydr.data.provenance import Provenance, sha256_of_arrays, sha256_of_file
from raydr.data.survey.coding import Coding
from raydr.errors import OutputError
from raydr.files import open_private
from raydr.runfolder import records
from raydr.runfolder.records import MODEL, SCENARIO
from raydr.runfolder.writing import write_json
from raydr.statistics.dissimilarity import CELLS, Metric
from raydr.statistics.preparing import Preparation
from raydr.statistics.site_effects import Kind
from raydr.statistics.steering import STEERING

FORMAT = 1
"""Format of ``model.json``; any other is refused."""
CARD, ARRAYS, ENCODER, SITES = (
    PurePath(file).name for file in (records.CARD, records.ARRAYS, records.ENCODER, records.SITES)
)
"""Files in the folder. The last holds what harmonized sites keep to themselves, and may be removed."""
KEYED = "keyed_scaling"
"""Name of the array with a keyed run's sealed scaling, which only clients can read."""
_MADE_FROM = "made_from"
_PREFIX = "encoder."
"""Prefix of the names of an encoder's arrays."""


@dataclass(kw_only=True, frozen=True)
class Card:
    """Provenance of a model: ``model.json``.

    Attributes
    ----------
    scenario : str
        SHA-256 of the run's scenario.yaml, which has the method and scaling for new rows.
    columns : tuple of str
        Names of the features, in the order of the arrays.
    named : bool
        Whether the names come from the data; else they are numbers.
    left_out : tuple of str
        Columns of the data that are not features; new rows may have them.
    files : dict of str to str
        SHA-256 of each file of arrays, except that of the sites.
    words : dict of str to tuple of str
        Text columns with their words; each word is a feature of zeros and ones.
    units : dict of str to str
        Columns of numbers that some file spells as text, with their unit.
    codings : dict of str to Coding
        How columns are read that are more than numbers or words.
    sites : tuple of str
        Names of harmonized sites, in the order of the arrays in ``sites.npz``.
    raydr : str
        Version of raydr that wrote the model.
    format : int
    """

    scenario: str
    columns: tuple[str, ...]
    named: bool
    left_out: tuple[str, ...]
    files: dict[str, str]
    raydr: str = field(default_factory=lambda: version("raydr"))
    format: int = FORMAT
    words: dict[str, tuple[str, ...]] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    codings: dict[str, Coding] = field(default_factory=dict)
    sites: tuple[str, ...] = ()


@dataclass(frozen=True)
class Model:
    """Arrays by name, and their provenance.

    ``own`` has the arrays that sites keep to themselves; it is empty if there are none or their file was removed.
    """

    arrays: dict[str, FloatArray]
    card: Card
    own: dict[str, FloatArray] = field(default_factory=dict)


def write_model(
    run: Path,
    arrays: Mapping[str, NDArray[Any]],
    data: Provenance,
    *,
    sites: Sequence[str] = (),
    own: Mapping[str, NDArray[Any]] = types.MappingProxyType({}),
) -> None:
    """Write ``model/`` in a run folder that has its scenario: an encoder as safetensors, other arrays as npz.

    The arrays that the ``sites`` keep to themselves, ``own``, go to a separate file, which can be removed.
    """
    folder = run / MODEL
    folder.mkdir(exist_ok=True)  # it exists if a resumed run had reached this step
    encoder = {name.removeprefix(_PREFIX): arrays[name] for name in arrays if name.startswith(_PREFIX)}
    others = {name: arrays[name] for name in arrays if not name.startswith(_PREFIX)}
    write_array_archive(folder / ARRAYS, others)  # not compressed: such numbers hardly shrink
    if encoder:
        from safetensors.numpy import save

        # safetensors' own `save_file` makes a file that only its owner can read.
        encoded = save({name: np.ascontiguousarray(values) for name, values in encoder.items()})
        (folder / ENCODER).write_bytes(encoded)
    card = Card(
        scenario=sha256_of_file(run / SCENARIO),
        columns=data.columns,
        named=data.named,
        left_out=tuple(dict.fromkeys(column for source in data.sources for column in source.left_out)),
        files={name: sha256_of_file(folder / name) for name in [ARRAYS, *[ENCODER] * bool(encoder)]},
        words=data.words,
        units=data.units,
        codings=data.codings,
        sites=tuple(sites) if own else (),
    )
    content = asdict(card)
    write_json(folder / CARD, {"sha256": digest_of(content), **content})
    if own:
        with open_private(folder / SITES) as file:
            write_array_archive(file, {**own, _MADE_FROM: np.array(_digest_of_sites(card, own))})


def made_from_renamed(run: Path, before: str) -> None:
    """Update a model's scenario digest after paths in scenario.yaml were renamed, if the model was made from it.

    Parameters
    ----------
    run : Path
        The run folder.
    before : str
        SHA-256 of scenario.yaml before the change.
    """
    file = run / MODEL / CARD
    if not file.is_file():
        return
    content = json.loads(file.read_bytes())
    digest = content.pop("sha256")
    if digest == digest_of(content) and content["scenario"] == before:
        content["scenario"] = sha256_of_file(run / SCENARIO)
        write_json(file, {"sha256": digest_of(content), **content})


def read_model(run: Path) -> Model:
    """Read the model that :func:`write_model` wrote, and check that it is unchanged.

    Raises
    ------
    OutputError
        If the model is missing or damaged, or was made from another scenario than the one in the folder.
    """
    folder = run / MODEL
    card = _card(folder)
    for name, digest in card.files.items():
        if _checked(folder, name) != digest:
            raise _broken(folder, f"{name} is not the file that the run wrote")
    if _checked(run, SCENARIO) != card.scenario:
        raise _broken(folder, f"{run / SCENARIO} is not the scenario that it was made from")
    try:
        arrays, own = _arrays(folder, card), _own(folder, card)
    except Exception as error:  # readers raise many types for a file of another format
        raise _broken(folder, " ".join(str(error).split())) from error
    for name, values in arrays.items():
        if values.dtype.kind not in "fiu" or not np.isfinite(values).all():
            raise _broken(folder, f"the array {name} has values that are not finite numbers")
    by_column = {"fill", "site_centre", "site_deviation", "site_adjusted"} & set(arrays)
    for name in () if KEYED in arrays else ("shift", "factor", *sorted(by_column)):
        if name not in arrays or arrays[name].shape != (len(card.columns),):
            raise _broken(
                folder, f"the array {name} must have one number for each of {len(card.columns)} columns"
            )
    if CELLS in arrays and arrays[CELLS].shape != (3, len(card.columns) + 1):
        raise _broken(
            folder, f"the array {CELLS} must have three numbers for each of {len(card.columns)} columns"
        )
    steering = arrays.get(STEERING)
    if steering is not None and (steering.ndim != 1 or len(steering) < 4 or not steering[0] < steering[1]):
        raise _broken(folder, f"the array {STEERING} must have a range, a factor and a centre")
    for name, values in own.items():
        if values.shape != (len(card.sites), len(card.columns)) or not np.isfinite(values).all():
            raise _broken(
                folder,
                f"the array {name} of {SITES} must have one finite number for each of {len(card.columns)} columns and"
                f" {len(card.sites)} sites",
            )
    return Model(arrays, card, own)


def preparation_of(
    run: Path, model: Model, metric: Metric, harmonized: Kind | None, *, of_sites: bool = True
) -> Preparation:
    """Return the preparation of rows from a model's arrays; with ``of_sites``, including what sites keep.

    Raises
    ------
    OutputError
        If an array is missing, or the file of what sites keep to themselves was removed.
    """
    if of_sites and harmonized is not None and not model.own:
        raise OutputError(
            f"The model in {run / MODEL} has no {SITES}, which holds the adjustments of each site's rows. Only a site"
            " that kept its own adjustment can place its rows."
        )
    try:
        return Preparation.of(model.arrays, model.own if of_sites else {}, metric, harmonized)
    except (KeyError, IndexError) as error:
        raise _broken(
            run / MODEL, f"it lacks the array {error}, which data.harmonize or data.metric needs"
        ) from error


def _card(folder: Path) -> Card:
    from pydantic import TypeAdapter

    try:
        content = json.loads((folder / CARD).read_bytes())
        digest = content.pop("sha256")
        known = {key: content[key] for key in content if key in {each.name for each in fields(Card)}}
        card = TypeAdapter(Card).validate_python(known)
    except Exception as error:  # a missing file, other content or other keys: each has its own type
        raise _broken(folder, f"{CARD}: {' '.join(str(error).split())}") from error
    if card.format != FORMAT:
        raise OutputError(
            f"The model in {folder} was written by raydr {card.raydr} in format {card.format}, but raydr"
            f" {version('raydr')} reads format {FORMAT}. Use raydr {card.raydr}, or repeat the run with this version."
        )
    if digest != digest_of(content):
        raise _broken(folder, f"{CARD} is not the file that the run wrote")
    return card


def _arrays(folder: Path, card: Card) -> dict[str, FloatArray]:
    with ArrayArchive(folder / ARRAYS) as file:
        arrays: dict[str, FloatArray] = dict(file)
    if ENCODER in card.files:
        from safetensors.numpy import load_file

        arrays |= {f"{_PREFIX}{name}": values for name, values in load_file(folder / ENCODER).items()}
    return arrays


def _own(folder: Path, card: Card) -> dict[str, FloatArray]:
    if not card.sites or not (folder / SITES).exists():
        return {}
    with ArrayArchive(folder / SITES) as file:
        own: dict[str, NDArray[Any]] = dict(file)
    if str(own.pop(_MADE_FROM, "")) != _digest_of_sites(card, own):
        raise ValueError(f"{SITES} is not the file that the run wrote")
    return own


def _digest_of_sites(card: Card, own: Mapping[str, NDArray[Any]]) -> str:
    """Return the digest of what sites keep and of its model; it is stored only in the sites' file."""
    names = sorted(own)
    return digest_of(
        {"files": card.files, "names": names, "arrays": sha256_of_arrays(own[name] for name in names)}
    )


def digest_of(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a card's content, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _checked(folder: Path, name: str) -> str:
    try:
        return sha256_of_file(folder / name)
    except OSError as error:
        raise _broken(folder, f"{name} cannot be read ({error.strerror})") from error


def _broken(folder: Path, reason: str) -> OutputError:
    return OutputError(
        f"The model in {folder} cannot be used: {reason}. Restore the run folder as the run wrote it, or repeat the"
        " run."
    )
