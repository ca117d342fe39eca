"""What an encoder is fed, what a run keeps of it, and where it places new rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from raydr.arrays import Float32Array, Float64Array, FloatArray
from raydr.federation import Federation
from raydr.methods.fedne.settings import ContrastiveEncoder
from raydr.statistics.moments import wide_spread
from raydr.statistics.scaling import ScaleRows, Scaling, scale_rows


def standardised(federation: Federation) -> tuple[Scaling, Float64Array]:
    """Have clients shift their rows to mean 0 and divide them by one number: variance 1 of a feature on average.

    One number for all features, so neighbours stay neighbours; an encoder learns at the same rate from any unit. Once
    rows lie around 0, the single precision that networks compute in holds them.

    Returns
    -------
    scaling : Scaling
        What clients did.
    reach : (features,) float64
        Bound on what is then the size of every value of each feature.

    Raises
    ------
    DataError
        If all rows of all clients are equal.
    """
    moments = wide_spread(federation)
    scale = float(np.sqrt((moments.deviation**2).mean()))
    scaling = Scaling(moments.mean, np.full(federation.features, 1.0 / scale), False)
    federation.ask(ScaleRows(scaling.shift, scaling.factor, scaling.unit, single=True))
    return scaling, moments.reach / scale


def scaled(federation: Federation, settings: ContrastiveEncoder) -> tuple[Scaling, Float64Array]:
    """Have clients standardise their rows, or leave them as they are: then nothing is asked, and no reach is known."""
    if settings.standardise:
        return standardised(federation)
    return unscaled(federation.features), np.zeros(0)


def unscaled(features: int) -> Scaling:
    """Leaves rows of so many features as they are."""
    return Scaling(np.zeros(features), np.ones(features), False)


def model_of(layers: dict[str, Float32Array], scaling: Scaling) -> dict[str, FloatArray]:
    """What places new rows: the encoder's layers, and the shift and factor that come before them."""
    tensors: dict[str, FloatArray] = {f"encoder.{name}": values for name, values in layers.items()}
    return tensors | {"encoder.shift": scaling.shift, "encoder.factor": scaling.factor}


def encoding(
    hidden: tuple[int, ...], model: Mapping[str, FloatArray], rows: FloatArray
) -> tuple[Callable[[FloatArray], FloatArray], Float32Array]:
    """What places rows that are scaled for an encoder of these widths, and these rows so scaled."""
    from raydr.methods.fedne.encoder import Architecture, place

    architecture = Architecture(rows.shape[1], hidden)
    weights = architecture.flat({name.removeprefix("encoder."): values for name, values in model.items()})
    shift, factor = (np.asarray(model[f"encoder.{name}"], np.float64) for name in ("shift", "factor"))
    scaled = scale_rows(rows, Scaling(shift, factor, False), single=True)
    return partial(place, architecture, weights), scaled
