"""Actors share the GPUs if clients may use them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from raydr.errors import ScenarioError


@pytest.mark.parametrize("gpus", [1, 2, 3, 8])
def test_every_actor_fits_on_a_gpu(gpus: int) -> None:
    from raydr.actors.packing import gpu_share

    for actors in range(1, 60):
        share = gpu_share(gpus, actors)
        assert share <= 1
        assert gpus * round(1 / share) >= actors
        assert share == 1 or gpus * (round(1 / share) - 1) < actors, (
            "no GPU lies idle for want of a smaller share"
        )


def test_actors_request_gpus_only_if_clients_may_use_them(cluster: None) -> None:
    from raydr.actors.placement import place
    from raydr.actors.resources import Room

    parts, room = [np.zeros((2, 3)) for _ in range(4)], Room(cores=2, gpus=1.0)
    assert all("num_gpus" not in placement.options for placement in place(parts, 2, room))
    on_gpus = place(parts, 2, room, gpu_share=0.25)
    assert [placement.options["num_gpus"] for placement in on_gpus] == [0.25, 0.25]
    assert [placement.clients for placement in on_gpus] == [(0, 1), (2, 3)]


@pytest.mark.parametrize(("clients", "actors"), [(1, 1), (5, 2), (7, 3), (4, 4)])
def test_clients_are_placed_in_order_with_their_own_rows(cluster: None, clients: int, actors: int) -> None:
    import ray

    from raydr.actors.placement import place
    from raydr.actors.resources import Room
    from raydr.federation import fingerprint
    from raydr.privacy.policy import SitePolicy

    parts = [np.full((client + 1, 2), float(client)) for client in range(clients)]
    placements = place(parts, actors, Room(cores=2))
    assert [client for placement in placements for client in placement.clients] == list(range(clients))
    assert max(sizes := [len(placement.clients) for placement in placements]) - min(sizes) <= 1
    for placement in placements:
        for client, rows, known in zip(
            placement.clients, ray.get(placement.partitions), ray.get(placement.host_secrets[-1]), strict=True
        ):
            np.testing.assert_array_equal(rows, parts[client])
            assert known == (fingerprint(parts[client]), SitePolicy())


def test_each_site_has_its_own_actor_in_order(cluster: None) -> None:
    import ray

    from raydr.actors.placement import place
    from raydr.actors.resources import Room
    from raydr.data import Site, SiteFile

    sites = [Site(SiteFile(path=f"{name}.csv"), None, name) for name in ("west", "east", "north")]
    placements = place(sites, 3, Room(cores=2))
    assert [placement.clients for placement in placements] == [(0,), (1,), (2,)]
    assert [placement.partitions for placement in placements] == [site.file for site in sites]
    known = [[found for found, _ in ray.get(placement.host_secrets[-1])] for placement in placements]
    assert known == [["west"], ["east"], ["north"]]


def test_a_portable_run_is_refused_if_workers_have_other_variables(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tiny import tiny_run

    monkeypatch.setattr("raydr.scenarios.runner.require_portable", lambda: None)
    with pytest.raises(ScenarioError, match=r"^runtime\.portable needs .* This is Ray's node "):
        tiny_run(tmp_path / "out", runtime__federation="ray", runtime__portable=True)
