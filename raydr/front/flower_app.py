"""The two apps of a deployed run over Flower, which a Flower app of a few lines names as its components."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raydr.deployment.signed_ledger import write_signed_ledger
from raydr.deployment.site_host import Finished
from raydr.deployment.site_settings import read_site
from raydr.errors import ScenarioError
from raydr.extras import imported
from raydr.privacy.node_keys import read_nodes
from raydr.runtimes.flower.deployed import FlowerPort, deployed_node
from raydr.runtimes.flower.site_node import SiteNode
from raydr.scenarios.afterwards.site_page import write_site_page
from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import read


def app_of_site() -> Any:
    """Return the ``ClientApp``. The node's configuration has the key ``site``, the path of the site's ``site.yaml``."""
    imported("flwr", "A run over Flower")
    from raydr.runtimes.flower.client_app import client_app

    return client_app(_node)


def app_of_server() -> Any:
    """Return the ``ServerApp``. The run's configuration has three paths at the server.

    These are ``scenario``, ``nodes`` (:func:`raydr.privacy.node_keys.read_nodes`) and ``out``, the run folder.
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
    from raydr.runtimes.flower.grid import GridCourier

    scenario, keys = read(Path(config["scenario"])), read_nodes(Path(config["nodes"]))
    sites = scenario.clients.deployed
    unknown = [site for site in sites if site not in keys]
    if unknown:
        raise ScenarioError(
            f"{config['nodes']} has no public key of {', '.join(unknown)}: add the keys of these sites."
        )
    courier = GridCourier(grid, {site: keys[site] for site in sites})
    port = FlowerPort(courier, sites, scenario.name, scenario.runtime.timeout_s)
    run(scenario, out=Path(config["out"]), port=port)
