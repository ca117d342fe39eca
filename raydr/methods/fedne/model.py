"""Scaling of an encoder's input, the model that a run keeps, and the positions of new rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from raydr.arrays import Float32Array, Float64Array, FloatArray
from raydr.errors import ScenarioError
from raydr.federation import Federation
from raydr.geometry.blocks import in_blocks
from raydr.methods.fedne.settings import ContrastiveEncoder
from raydr.statistics.moments import wide_spread
from raydr.statistics.scaling import ScaleRows, Scaling, scale_rows

if TYPE_CHECKING:
    from raydr.methods.fedne.encoder import Architecture


def standardised(federation: Federation) -> tuple[Scaling, Float64Array, Float64Array]:
    """Have clients shift their rows to mean 0 and divide them by one number, for a mean variance of 1 per feature.

    One number for all features keeps the neighbours; an encoder then learns at the same rate in any unit.
    Around 0, the single precision of the networks resolves the rows.

    Returns
    -------
    scaling : Scaling
        Scaling of the clients.
    reach : (features,) float64
        Bound on the absolute values of each feature after scaling.
    deviation : (features,) float64
        Standard deviation of each feature before it.

    Raises
    ------
    DataError
        If all rows of all clients are equal.
    """
    moments = wide_spread(federation)
    scale = float(np.sqrt((moments.deviation**2).mean()))
    scaling = Scaling(moments.mean, np.full(federation.features, 1.0 / scale))
    federation.ask(ScaleRows(scaling.shift, scaling.factor, single=True))
    return scaling, moments.reach / scale, moments.deviation


def scaled(
    federation: Federation, settings: ContrastiveEncoder
) -> tuple[Scaling, Float64Array, Float64Array]:
    """Have clients standardise their rows, or leave them as they are, without a question.

    Reach and deviation are then unknown.
    """
    if settings.standardise:
        return standardised(federation)
    return unscaled(federation.features), np.zeros(0), np.zeros(0)


def unscaled(features: int) -> Scaling:
    """Return a scaling that leaves rows of this many features as they are."""
    return Scaling(np.zeros(features), np.ones(features))


def model_of(layers: dict[str, Float32Array], scaling: Scaling) -> dict[str, FloatArray]:
    """Return the model for new rows: the encoder's layers, and the shift and factor before them."""
    tensors: dict[str, FloatArray] = {f"encoder.{name}": values for name, values in layers.items()}
    return tensors | {"encoder.shift": scaling.shift, "encoder.factor": scaling.factor}


def encoding(
    model: Mapping[str, FloatArray], rows: FloatArray
) -> tuple[Callable[[FloatArray], FloatArray], Float32Array]:
    """Return a function from scaled rows to positions, by the encoder of a model, and the rows scaled for it."""
    from raydr.methods.fedne.encoder import Architecture, place

    layers = sum(name.startswith("encoder.layers.") for name in model) // 2
    hidden = tuple(len(model[f"encoder.layers.{layer}.bias"]) for layer in range(layers - 1))
    architecture = Architecture(rows.shape[1], hidden)
    weights = architecture.flat({name.removeprefix("encoder."): values for name, values in model.items()})
    return partial(place, architecture, weights), encoder_input(model, rows)


def encoded(model: Mapping[str, FloatArray], rows: FloatArray) -> FloatArray:
    """Return positions (rows, 2) of rows (rows, features), scaled as in the run, by a model's encoder."""
    encode, scaled = encoding(model, rows)
    return in_blocks(encode, scaled)


def encoder_input(model: Mapping[str, FloatArray], rows: FloatArray) -> Float32Array:
    """Return rows (rows, features) scaled for a model's encoder."""
    shift, factor = (np.asarray(model[f"encoder.{name}"], np.float64) for name in ("shift", "factor"))
    return scale_rows(rows, Scaling(shift, factor), single=True)


def weights_of_prior(
    model: Mapping[str, FloatArray], architecture: Architecture, *, wide: bool
) -> Float32Array:
    """Return the weights (parameters,) of an earlier run's encoder, from which this run's training starts.

    Raises
    ------
    ScenarioError
        If rows are projected before the encoder (``wide``), or the earlier encoder has other layers.
    """
    if wide:
        raise ScenarioError(
            "prior needs an encoder of the columns, and this table is so wide that its rows are projected first: leave"
            " prior out."
        )
    layers = {name.removeprefix("encoder."): values for name, values in model.items()}
    wanted = architecture.layers(np.zeros(architecture.parameters, np.float32))
    if any(name not in layers or layers[name].shape != values.shape for name, values in wanted.items()):
        raise ScenarioError(
            "prior names a run whose encoder has other layers: set method.hidden to the widths of that run."
        )
    return architecture.flat(layers)
