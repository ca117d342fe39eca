"""Actors share what GPUs there are, where clients may use them."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.mark.parametrize("gpus", [1, 2, 3, 8])
def test_every_actor_finds_room_on_a_gpu(gpus: int) -> None:
    from raydr.actors.placement import gpu_share

    for actors in range(1, 60):
        share = gpu_share(gpus, actors)
        assert share <= 1
        assert gpus * round(1 / share) >= actors
        assert share == 1 or gpus * (round(1 / share) - 1) < actors, (
            "no GPU lies idle for want of a smaller share"
        )


def test_actors_ask_for_gpus_only_where_clients_may_use_them(cluster: None) -> None:
    from raydr.actors.placement import place

    parts = [np.zeros((2, 3)) for _ in range(4)]
    assert all("num_gpus" not in placement.options for placement in place(parts, 2, 2))
    assert [placement.options["num_gpus"] for placement in place(parts, 2, 2, gpus=1.0)] == [0.5, 0.5]
    assert [placement.clients for placement in place(parts, 2, 2, gpus=1.0)] == [(0, 1), (2, 3)]
