"""Deployed runs over nodes: the node of a site with settings, and the server's way to the sites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from raydr.deployment.messages import StartRequest
from raydr.deployment.site_host import Finished, SiteHost, keep_nothing
from raydr.deployment.site_settings import SiteSettings
from raydr.federation import Transport
from raydr.federation.wire import Answer, Call
from raydr.runtimes.flower.site_node import SiteNode
from raydr.runtimes.flower.transport import Courier, FlowerTransport


def deployed_node(site: SiteSettings, at_end: Callable[[Finished], None] = keep_nothing) -> SiteNode:
    """Return the node of a site with these settings; ``at_end`` receives what the site has at the end of a run."""
    return SiteNode(Path(site.folder), lambda client: SiteHost(site=site, index=client, at_end=at_end))


@dataclass
class FlowerPort:
    """Reaches the sites of a deployed run.

    Attributes
    ----------
    courier : Courier
        Carries messages to the sites' nodes.
    sites : sequence of str
        Names of the sites, in client order.
    run : str
        Name under which sites keep their records, the same when a run is resumed.
    timeout_s : float
        Seconds that a site has for one message.
    """

    courier: Courier
    sites: Sequence[str]
    run: str
    timeout_s: float = 600.0
    name: str = "flower"
    _transport: FlowerTransport = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._transport = FlowerTransport(
            courier=self.courier, sites=self.sites, run=self.run, timeout_s=self.timeout_s
        )

    def ask(self, call: Call) -> list[Answer]:
        """Return each site's answer."""
        return self._transport.ask(call)

    def transport(self, start: StartRequest) -> Transport:
        """Return the transport of the run that has started."""
        return self._transport
