"""Clients with files of their own: found and counted on their nodes, and read only there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import ray
from ray.exceptions import RayTaskError

from raydr.actors.resources import Room
from raydr.actors.streaming import own
from raydr.arrays import FloatArray
from raydr.data import Census, Layout, Site, SiteFile, census
from raydr.data.site import laid_out
from raydr.data.survey.categories import Survey
from raydr.errors import ScenarioError
from raydr.sparse_rows import stacked


def pinned(node: str | None, room: Room) -> dict[str, Any]:
    """Return Ray options that place a process on a node.

    A site's node is where its rows are. So its process runs on that node even in a trial whose placement group does
    not include the node. It takes no core from Ray, and ends with the trial's coordinator.

    Parameters
    ----------
    node : str or None
        ``NAME``: a node that offers the custom resource NAME (``ray start --resources='{"NAME": 1}'``).
        ``KEY=VALUE``: a node with that label (``ray start --labels=KEY=VALUE``). None: anywhere in the room.
    room : Room
        Resources of the run.
    """
    if node is None:
        return room.anywhere()
    # Stated explicitly, because Ray otherwise places a process started in a placement group inside it.
    outside = {"num_cpus": 0, "scheduling_strategy": "DEFAULT"}
    key, equals, value = node.partition("=")
    return outside | ({"label_selector": {key: value}} if equals else {"resources": {node: 0.001}})


def reachable(node: str | None) -> bool:
    """Return whether a living node has that name or label."""
    if node is None:
        return True
    key, equals, value = node.partition("=")
    alive = (described for described in ray.nodes() if described["Alive"])
    if equals:
        return any(described["Labels"].get(key) == value for described in alive)
    return any(described["Resources"].get(node, 0) > 0 for described in alive)


def require_nodes(nodes: Sequence[str | None]) -> None:
    """Raise ScenarioError unless every named node exists."""
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
    """Read each file on its node and return everything except the rows.

    Raises
    ------
    ScenarioError
        If a node does not exist.
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
    """Survey each file on its node, and combine the surveys in a separate process.

    Raises
    ------
    ScenarioError
        If a node does not exist.
    DataError
        If a file cannot be used, or the files have no common columns to map.
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
    """The rows of all sites, pooled when it is called: only for the evaluation task."""

    parts: tuple[ray.ObjectRef[FloatArray], ...]

    def __call__(self) -> FloatArray:
        """Fetch and join the rows, client by client."""
        rows: FloatArray = stacked(ray.get(list(self.parts)))
        return rows


def pool(sites: Sequence[Site]) -> PooledSites:
    """Read each site's rows on its node, for the evaluation to fetch; the caller receives no rows."""
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
