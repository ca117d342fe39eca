"""Section ``clients`` of a scenario: their number and their rows."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from raydr.partition import IID, PARTITIONS, Dealing
from raydr.privacy.policy import PROFILES
from raydr.settings import PathMark, Settings

if TYPE_CHECKING:
    AnyPartition: TypeAlias = Dealing
else:
    AnyPartition = PARTITIONS.choice


class SiteSettings(Settings):
    """A client with its own file."""

    path: Annotated[str, PathMark(elsewhere="node")] = Field(description="path of its file on its node")
    node: str | None = Field(
        None,
        description="a node's custom resource, or LABEL=VALUE; default: any node, so all must see the file",
    )
    name: str | None = Field(None, description="name of the client; default: the file's name without ending")
    policy: Annotated[str, PathMark(elsewhere="node", names=tuple(PROFILES))] | None = Field(
        None,
        description="path of the site's policy on its node, or a built-in one: `open`, `aggregate-only`, `datashield`,"
        " `private`. It decides what leaves the site",
    )


class ClientsSettings(Settings):
    """Number of clients, and the rows of each."""

    count: int | None = Field(None, ge=1, description="number of clients; optional if the partition fixes it")
    partition: AnyPartition = Field(IID(), description="how rows are dealt to clients")
    sites: tuple[SiteSettings, ...] = Field(
        (), description="instead of count and partition: one client for each file"
    )
    deployed: tuple[str, ...] = Field(
        (),
        description="instead of count and partition: names of sites that read their own files in a deployed run, which"
        " `raydr export` writes: docs/deploying.md",
    )
    policy: Annotated[str, PathMark(names=tuple(PROFILES))] | None = Field(
        None,
        description="a policy for all sites, as in sites. The rules of a site's own policy hold too. Default: `private`"
        " with privacy.epsilon_max if privacy.strict is true, else `open`",
    )
    join_spellings: bool = Field(
        False,
        description="with a partition by-column: names that differ only in case and blanks are one site, called by the"
        " most frequent spelling",
    )
    without: tuple[str, ...] = Field(
        (),
        description="names of clients that take no part, such as sites that withdrew: their rows are dealt and left"
        " out, so all other clients keep theirs",
    )
    joined: tuple[SiteSettings, ...] = Field(
        (),
        description="with a table: further clients, one for each file, with the columns of the table matched by name",
    )
    participation: float = Field(
        1.0,
        gt=0,
        le=1,
        description="fraction of the clients that takes part in a round, drawn for each round",
    )

    @model_validator(mode="after")
    def _count_where_needed(self) -> ClientsSettings:
        if self.join_spellings and self.sites:
            raise ValueError(
                "join_spellings joins the names in a column of sites, and clients.sites has a file for each: write the"
                " rows of a site in one file, and leave join_spellings out"
            )
        if self.join_spellings and self.partition.client_column is None:
            raise ValueError(
                "join_spellings joins the names in a column of sites: leave it out, or use a partition of kind"
                " 'by-column'"
            )
        if len(set(self.without)) < len(self.without):
            raise ValueError("without names a client twice: name it once")
        if self.joined and self.sites:
            raise ValueError("joined adds files to the clients of a table: add them to sites")
        if any(site.node is not None for site in self.joined):
            raise ValueError("files in joined are read with the table: leave node out")
        if self.without and self.sites:
            raise ValueError(
                "without names clients of a table: leave it out, and leave their files out of sites"
            )
        if self.deployed:
            replaced = ("count", "partition", "sites", "without", "joined", "join_spellings")
            given = [key for key in replaced if key in self.model_fields_set and getattr(self, key)]
            if given:
                raise ValueError(f"deployed names all clients: leave {' and '.join(given)} out")
            if len(set(self.deployed)) < len(self.deployed):
                raise ValueError("deployed names a site twice: give each a different name")
            return self
        if self.sites:
            if self.count is not None or "partition" in self.model_fields_set:
                raise ValueError("sites replace count and partition: leave count and partition out")
            names = [site.name or PurePath(site.path).stem for site in self.sites]
            if len(set(names)) < len(names):
                raise ValueError("two sites have the same name: give each a different name")
            return self
        if self.count is None and self.partition.needs_count:
            raise ValueError(
                f"a partition of kind {self.partition.kind!r} needs count, the number of clients"
            )
        return self

    @property
    def natural(self) -> bool:
        """Whether clients are real sites of the data."""
        return bool(self.sites or self.deployed) or self.partition.natural

    @property
    def known_count(self) -> int | None:
        """Number of clients, if it does not depend on the rows."""
        return self.count or len(self.sites) or len(self.deployed) or None

    @model_serializer(mode="wrap")
    def _without_what_sites_replace(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write no partition if sites are named: reading both would be refused."""
        content: dict[str, Any] = written(self)
        return {
            key: value
            for key, value in content.items()
            if not ((self.sites or self.deployed) and key == "partition")
        }
