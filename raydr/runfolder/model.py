"""A run's model: what placing new rows on its map needs, and what it was made from, checked by whoever reads it."""

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
from raydr.errors import OutputError
from raydr.files import open_private
from raydr.runfolder import records
from raydr.runfolder.records import MODEL, SCENARIO
from raydr.runfolder.writing import write_json
from raydr.statistics.preparing import Preparation
from raydr.statistics.scaling import Scale
from raydr.statistics.site_effects import Kind

FORMAT = 1
"""Of ``model.json``; another is refused."""
CARD, ARRAYS, ENCODER, SITES = (
    PurePath(file).name for file in (records.CARD, records.ARRAYS, records.ENCODER, records.SITES)
)
"""Files in the folder; the last is what sites that were harmonized keep to themselves, and may be taken away."""
KEYED = "keyed_scaling"
"""Name of the array that holds a keyed run's scaling, sealed: only clients can read it."""
_MADE_FROM = "made_from"
_PREFIX = "encoder."
"""Before the names of arrays that are an encoder's."""


@dataclass(kw_only=True, frozen=True)
class Card:
    """What a model was made from: ``model.json``.

    Attributes
    ----------
    scenario : str
        SHA-256 of the run's scenario.yaml, whose method and scaling place new rows.
    columns : tuple of str
        Names of the features, in the order of the arrays.
    named : bool
        Whether the data named them; else they were counted.
    left_out : tuple of str
        Columns of the data that are no features: new rows may have them or not.
    files : dict of str to str
        SHA-256 of each file of arrays, but for that of sites, which stays with them.
    words : dict of str to tuple of str
        Columns of the data that are a feature of zeros and ones for each of these words.
    sites : tuple of str
        Of a run that harmonized sites, their names, in the order of what each keeps to itself.
    raydr : str
        The version that made it.
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
    sites: tuple[str, ...] = ()


@dataclass(frozen=True)
class Model:
    """Arrays by name, and what they were made from.

    ``own`` are what sites keep to themselves: empty where nothing, or where its file was taken away.
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

    What each of the ``sites`` keeps to itself, its ``own``, has a file of its own, which can be taken away.
    """
    folder = run / MODEL
    folder.mkdir(exist_ok=True)  # a resumed run may have come as far as this before
    encoder = {name.removeprefix(_PREFIX): arrays[name] for name in arrays if name.startswith(_PREFIX)}
    others = {name: arrays[name] for name in arrays if not name.startswith(_PREFIX)}
    write_array_archive(folder / ARRAYS, others)  # numbers of this kind hardly shrink
    if encoder:
        from safetensors.numpy import save

        # The library's own `save_file` makes a file that only its owner can read.
        encoded = save({name: np.ascontiguousarray(values) for name, values in encoder.items()})
        (folder / ENCODER).write_bytes(encoded)
    card = Card(
        scenario=sha256_of_file(run / SCENARIO),
        columns=data.columns,
        named=data.named,
        left_out=tuple(dict.fromkeys(column for source in data.sources for column in source.left_out)),
        files={name: sha256_of_file(folder / name) for name in [ARRAYS, *[ENCODER] * bool(encoder)]},
        words=data.words,
        sites=tuple(sites) if own else (),
    )
    content = asdict(card)
    write_json(folder / CARD, {"sha256": digest_of(content), **content})
    if own:
        with open_private(folder / SITES) as file:
            write_array_archive(file, {**own, _MADE_FROM: np.array(_digest_of_sites(card, own))})


def made_from_renamed(run: Path, before: str) -> None:
    """Have a model go on with its scenario after that file's paths were renamed, if it was made from it.

    Parameters
    ----------
    run : Path
        The run folder.
    before : str
        SHA-256 of its scenario.yaml before.
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
    """Return the model that :func:`write_model` wrote, once nothing of it has changed.

    Raises
    ------
    OutputError
        If it is not there, is damaged, or was made from another scenario than the one that stands in the folder.
    """
    folder = run / MODEL
    card = _card(folder)
    for name, digest in card.files.items():
        if _checked(folder, name) != digest:
            raise _broken(folder, f"{name} is not the file that the run wrote")
    if _checked(run, SCENARIO) != card.scenario:
        raise _broken(folder, f"{run / SCENARIO} is not the scenario that it was made by")
    try:
        arrays, own = _arrays(folder, card), _own(folder, card)
    except Exception as error:  # whatever readers make of a file that is not what its name says
        raise _broken(folder, " ".join(str(error).split())) from error
    for name, values in arrays.items():
        if values.dtype.kind not in "fiu" or not np.isfinite(values).all():
            raise _broken(folder, f"the array {name} has values that are no finite numbers")
    by_column = {"fill", "site_centre", "site_deviation", "site_adjusted"} & set(arrays)
    for name in () if KEYED in arrays else ("shift", "factor", *sorted(by_column)):
        if name not in arrays or arrays[name].shape != (len(card.columns),):
            raise _broken(
                folder, f"the array {name} is not one number for each of {len(card.columns)} columns"
            )
    for name, values in own.items():
        if values.shape != (len(card.sites), len(card.columns)) or not np.isfinite(values).all():
            raise _broken(
                folder,
                f"the array {name} of {SITES} is not one number for each of {len(card.columns)} columns and"
                f" {len(card.sites)} sites",
            )
    return Model(arrays, card, own)


def preparation_of(
    run: Path, model: Model, scale: Scale, harmonized: Kind | None, *, of_sites: bool = True
) -> Preparation:
    """What a model's arrays say became of rows before they were mapped, ``of_sites`` with what each kept to itself.

    Raises
    ------
    OutputError
        If they do not say it, or what sites keep to themselves was taken away.
    """
    if of_sites and harmonized is not None and not model.own:
        raise OutputError(
            f"The model in {run / MODEL} is without {SITES}, in which each site has what its rows are adjusted by: only"
            " a site that has kept its own can place its rows."
        )
    try:
        return Preparation.of(model.arrays, model.own if of_sites else {}, scale, harmonized)
    except (KeyError, IndexError) as error:
        raise _broken(run / MODEL, f"it lacks the array {error}, which data.harmonize needs") from error


def _card(folder: Path) -> Card:
    from pydantic import TypeAdapter

    try:
        content = json.loads((folder / CARD).read_bytes())
        digest = content.pop("sha256")
        known = {key: content[key] for key in content if key in {each.name for each in fields(Card)}}
        card = TypeAdapter(Card).validate_python(known)
    except Exception as error:  # not there, not JSON, not with these keys: each has its own type
        raise _broken(folder, f"{CARD}: {' '.join(str(error).split())}") from error
    if card.format != FORMAT:
        raise OutputError(
            f"The model in {folder} was written by raydr {card.raydr} in format {card.format}, and raydr"
            f" {version('raydr')} reads format {FORMAT}: take that version, or repeat the run with this one."
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
    """Digest of what sites keep to themselves, and of the model that it belongs to; it lies in their file alone."""
    names = sorted(own)
    return digest_of(
        {"files": card.files, "names": names, "arrays": sha256_of_arrays(own[name] for name in names)}
    )


def digest_of(content: Mapping[str, Any]) -> str:
    """SHA-256 of what a card says, in whatever order."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _checked(folder: Path, name: str) -> str:
    try:
        return sha256_of_file(folder / name)
    except OSError as error:
        raise _broken(folder, f"{name} cannot be read ({error.strerror})") from error


def _broken(folder: Path, reason: str) -> OutputError:
    return OutputError(
        f"The model in {folder} cannot be used: {reason}. Bring back the run folder as the run wrote it, or repeat"
        " the run."
    )
