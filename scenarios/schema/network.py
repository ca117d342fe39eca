"""Section ``network`` of a scenario: the lines between sites and server."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from raydr.errors import ScenarioError, did_you_mean
from raydr.federation.network import Line, Network
from raydr.settings import Settings


class SiteLine(Settings):
    """The line of one client. A key that it leaves out is that of all lines."""

    name: str = Field(description="name of the client")
    up_mbit_s: float | None = Field(None, gt=0, description="bandwidth to the server, in Mbit/s")
    down_mbit_s: float | None = Field(None, gt=0, description="bandwidth from the server, in Mbit/s")
    latency_ms: float | None = Field(None, ge=0, description="time of a round trip, in ms")


class NetworkSettings(Line):
    """The lines on which raydr plan and the report count the time of messages. A simulation does not wait for them."""

    sites: tuple[SiteLine, ...] = Field((), description="clients with another line")

    def of(self, names: Sequence[str]) -> Network:
        """Return the lines of these clients.

        Raises
        ------
        ScenarioError
            If ``sites`` names a client twice, or one that is not there.
        """
        common = {key: getattr(self, key) for key in Line.model_fields}
        own: dict[str, SiteLine] = {}
        for site in self.sites:
            if site.name not in names:
                raise ScenarioError(
                    f"network.sites names {site.name!r}, but no client has this name{did_you_mean(site.name, names)}."
                )
            if site.name in own:
                raise ScenarioError(f"network.sites names {site.name!r} twice: give each client one line.")
            own[site.name] = site
        return Network(
            tuple(
                Line(
                    **common
                    | (own[name].model_dump(exclude_none=True, exclude={"name"}) if name in own else {})
                )
                for name in names
            )
        )
