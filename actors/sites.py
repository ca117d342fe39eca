"""Clients with files of their own: found on their nodes, counted there, and read nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import ray
from ray.exceptions import RayTaskError

from raydr.actors.resources import Room
from raydr.actors.streaming import own
from raydr.arrays import FloatArray
from raydr.data import Census, Layout, Site, SiteFile, census
from raydr.data.categories import Survey
from raydr.data.site import laid_out
from raydr.errors import ScenarioError


def pinned(node: str | None, room: Room) -> dict[str, Any]:
    """Ray options that place a process on a node.

    A site's node is where its rows are, so its process keeps to that node also in a trial, whose placement group
    need not reach there: it takes no core of Ray's, and ends with the trial's coordinator.

    Parameters
    ----------
    node : str or None
        ``NAME``: a node that offers the custom resource NAME (``ray start --resources='{"NAME": 1}'``).
        ``KEY=VALUE``: a node with that label (``ray start --labels=KEY=VALUE``). None: anywhere in the room.
    room : Room
        Of the run.
    """
    if node is None:
        return room.anywhere()
    # Said in so many words, since Ray puts what is started inside a placement group there.
    outside = {"num_cpus": 0, "scheduling_strategy": "DEFAULT"}
    key, equals, value = node.partition("=")
    return outside | ({"label_selector": {key: value}} if equals else {"resources": {node: 0.001}})


def reachable(node: str | None) -> bool:
    """Whether a living node answers to that name or label."""
    if node is None:
        return True
    key, equals, value = node.partition("=")
    alive = (described for described in ray.nodes() if described["Alive"])
    if equals:
        return any(described["Labels"].get(key) == value for described in alive)
    return any(described["Resources"].get(node, 0) > 0 for described in alive)


def require_nodes(nodes: Sequence[str | None]) -> None:
    """Raise ScenarioError unless every node named is there."""
    absent = sorted({node for node in nodes if node is not None and not reachable(node)})
    if absent:
        offered = sorted(
            {
                name
                for described in ray.nodes()
                if described["Alive"]
                for name in (
                    *(
                        name
                        for name in described["Resources"]
                        if name not in ("CPU", "GPU", "memory", "object_store_memory")
                        and not name.startswith("node:")
                    ),
                    *(
                        f"{key}={value}"
                        for key, value in described["Labels"].items()
                        if not key.startswith("ray.io/")
                    ),
                )
            }
        )
        raise ScenarioError(
            f"clients.sites names {'nodes' if len(absent) > 1 else 'a node'} that the cluster does not have:"
            f" {', '.join(absent)}. It has {', '.join(offered) or 'no named node'}. Start the node with"
            " `ray start --resources='{\"NAME\": 1}'` or `--labels=KEY=VALUE`, or correct the name."
        )


def count_sites(files: Sequence[tuple[SiteFile, str | None]]) -> list[Census]:
    """Read each file on its node and bring back everything but the rows.

    Raises
    ------
    ScenarioError
        If a node is not there.
    DataError
        If a file cannot be used.
    """
    require_nodes([node for _, node in files])
    room = Room.here()
    counted = [_count.options(**pinned(node, room)).remote(file) for file, node in files]
    try:
        return list(ray.get(counted))
    except RayTaskError as error:
        raise own(error) from None


def lay_out_sites(files: Sequence[tuple[SiteFile, str | None]]) -> Layout:
    """Survey each file on its node, and have a process that is none of them add up what they say.

    Raises
    ------
    ScenarioError
        If a node is not there.
    DataError
        If a file cannot be used, or there is nothing that all could map.
    """
    require_nodes([node for _, node in files])
    room = Room.here()
    surveys = [_survey.options(**pinned(node, room)).remote(file) for file, node in files]
    try:
        return cast(Layout, ray.get(_lay_out.options(**room.anywhere()).remote(files[0][0], *surveys)))
    except RayTaskError as error:
        raise own(error) from None


@dataclass(frozen=True)
class PooledSites:
    """All sites' rows, in one place once it is called: for the evaluation task alone."""

    parts: tuple[ray.ObjectRef[FloatArray], ...]

    def __call__(self) -> FloatArray:
        """Fetch and join the rows, client by client."""
        return np.concatenate(ray.get(list(self.parts)))


def pool(sites: Sequence[Site]) -> PooledSites:
    """Have each site's rows read on its node, for the evaluation to fetch; nothing comes to the caller."""
    room = Room.here()
    return PooledSites(tuple(_rows.options(**pinned(site.node, room)).remote(site.file) for site in sites))


def _read_rows(file: SiteFile) -> FloatArray:
    return file.read().rows


def _surveyed(file: SiteFile) -> Survey:
    return file.survey()


def _laid_out(file: SiteFile, *surveys: Survey) -> Layout:
    return laid_out(file, surveys)


_survey = ray.remote(max_retries=0)(_surveyed)
_lay_out = ray.remote(max_retries=0)(_laid_out)
_count = ray.remote(max_retries=0)(census)
_rows = ray.remote(max_retries=0)(_read_rows)
