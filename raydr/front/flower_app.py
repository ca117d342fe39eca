"""The two apps of a deployed run over Flower, which a Flower app of a few lines names as its components."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raydr.deployment.signed_ledger import write_signed_ledger
from raydr.deployment.site_host import Finished
from raydr.deployment.site_settings import read_site
from raydr.errors import RaydrError, RunError, ScenarioError
from raydr.extras import imported
from raydr.privacy.node_keys import read_nodes
from raydr.runfolder.making import interrupted
from raydr.runfolder.records import SCENARIO
from raydr.runtimes.flower.deployed import FlowerPort, deployed_node
from raydr.runtimes.flower.site_node import SiteNode
from raydr.scenarios.afterwards.site_page import write_site_page
from raydr.scenarios.runner import resume, run
from raydr.scenarios.running.checkpoints import Checkpoints
from raydr.scenarios.schema.reading import read


def app_of_site() -> Any:
    """Return the ``ClientApp``. The node's configuration has the key ``site``, the path of the site's ``site.yaml``."""
    imported("flwr", "A run over Flower")
    from raydr.runtimes.flower.client_app import client_app

    return client_app(_node)


def app_of_server() -> Any:
    """Return the ``ServerApp``. The run's configuration has three paths at the server.

    These are ``scenario``, ``nodes`` (:func:`raydr.privacy.node_keys.read_nodes`) and ``out``, the run folder.
    With ``resume=true`` the run goes on from the last checkpoint of an interrupted run with the same ``out``.
    """
    imported("flwr", "A run over Flower")
    from raydr.runtimes.flower.server_app import server_app

    return server_app(_run)


def _node(context: Any) -> SiteNode:
    settings = context.node_config.get("site")
    if not isinstance(settings, str):
        raise ScenarioError(
            "The node does not know its site: start it with `--node-config 'site=\"/path/of/site.yaml\"'`."
        )
    return deployed_node(read_site(settings), _keep)


def _keep(ended: Finished) -> None:
    write_signed_ledger(ended)
    write_site_page(ended)


def _run(grid: Any, config: Mapping[str, Any]) -> None:
    out = Path(config["out"])
    try:
        _start(grid, config, out)
    except RaydrError as error:
        left = interrupted(out, Checkpoints)
        again = "" if left is None else f" Continue from {left} with `flwr run . --run-config resume=true`."
        # Flower prints the error with its causes and notes, of which the notes are for `raydr run`.
        raise RunError(f"{error}{again}") from None


def _start(grid: Any, config: Mapping[str, Any], out: Path) -> None:
    from raydr.runtimes.flower.grid import GridCourier

    left = interrupted(out, Checkpoints) if config.get("resume") else None
    if config.get("resume") and left is None:
        raise RunError(f"There is no interrupted run of {out} to resume: start the run without resume=true.")
    scenario = read(Path(config["scenario"]) if left is None else left / SCENARIO)
    keys = read_nodes(Path(config["nodes"]))
    sites = scenario.clients.deployed
    unknown = [site for site in sites if site not in keys]
    if unknown:
        raise ScenarioError(
            f"{config['nodes']} has no public key of {', '.join(unknown)}: add the keys of these sites."
        )
    courier = GridCourier(grid, {site: keys[site] for site in sites})
    port = FlowerPort(courier, sites, scenario.name, scenario.runtime.timeout_s)
    if left is None:
        run(scenario, out=out, port=port)
    else:
        resume(left, port=port)
