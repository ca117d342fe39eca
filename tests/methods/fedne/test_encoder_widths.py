"""Default widths of the encoder by the number of columns."""

from __future__ import annotations

import numpy as np
import pytest
from fedne_tables import blobs
from inline_federations import federate

from raydr.methods import METHODS
from raydr.methods.fedne.baselines import GlobalNE
from raydr.methods.fedne.fedne import FedAvgNE, FedNE, FedProxNE
from raydr.methods.fedne.settings import NARROW, NARROW_COLUMNS, WIDE, ContrastiveEncoder


def test_fedne_has_a_small_encoder_for_few_columns_alone() -> None:
    assert FedNE().widths(16) == (48, 48)
    assert FedNE().widths(17) == (128, 128, 128)
    assert FedNE(hidden=(7,)).widths(2) == (7,)
    assert FedNE(preset="published").widths(2) == (500, 200, 100)


@pytest.mark.parametrize("settings", [FedAvgNE(), FedProxNE(), GlobalNE()])
def test_other_methods_have_one_width_for_any_columns(settings: ContrastiveEncoder) -> None:
    assert settings.widths(2) == settings.widths(1000) == WIDE


@pytest.mark.parametrize("features", [NARROW_COLUMNS, NARROW_COLUMNS + 1])
def test_model_has_the_default_widths_and_places_rows_by_them(features: int) -> None:
    parts = blobs(features=features)
    found = METHODS["fedne"].serve(federate(parts), FedNE(rounds=1))
    widths = NARROW if features == NARROW_COLUMNS else WIDE
    biases = [found.model[f"encoder.layers.{layer}.bias"].size for layer in range(len(widths) + 1)]
    assert tuple(biases) == (*widths, 2)
    # By the model's widths: a run folder may be older than the default.
    for settings in (FedNE(), FedNE(hidden=(9,))):
        placed = settings.transform(found.model, np.concatenate(parts).astype(np.float32))
        np.testing.assert_allclose(placed, found.embedding, atol=1e-3)
