"""Sites of a deployed run in this process, each with its own settings alone: for tests and for trying a deployment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from raydr.deployment.messages import StartRequest
from raydr.deployment.site_host import SiteHost
from raydr.federation import ClientHost, InlineTransport, Transport
from raydr.federation.wire import Answer, Call


@dataclass
class InlineSites:
    """Hosts of sites, in client order."""

    hosts: list[SiteHost]
    name: str = "deployed inline"

    def ask(self, call: Call) -> list[Answer]:
        """Return each site's answer."""
        return self._transport.ask(call)

    def transport(self, start: StartRequest) -> Transport:
        """Return the transport of the run that has started."""
        return self._transport

    @property
    def _transport(self) -> InlineTransport:
        return InlineTransport(cast(list[ClientHost], self.hosts))
