"""Section ``clients`` of a scenario: how many, and who holds which rows."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from raydr.partition import IID, PARTITIONS, Dealing
from raydr.settings import OfFile, Settings

if TYPE_CHECKING:
    AnyPartition: TypeAlias = Dealing
else:
    AnyPartition = PARTITIONS.choice


class SiteSettings(Settings):
    """One client with a file of its own."""

    path: Annotated[str, OfFile(elsewhere="node")] = Field(description="its file, as its node sees it")
    node: str | None = Field(
        None,
        description="a node's custom resource, or LABEL=VALUE; default: any node, all of which see the file",
    )
    name: str | None = Field(None, description="of the client; default: the file's name without its ending")


class ClientsSettings(Settings):
    """How many clients, and which rows each holds."""

    count: int | None = Field(
        None, ge=1, description="number of clients; where the partition fixes it, optional"
    )
    partition: AnyPartition = Field(IID(), description="which client holds which rows")
    sites: tuple[SiteSettings, ...] = Field(
        (), description="instead of count and partition: clients that read files of their own"
    )
    participation: float = Field(
        1.0, gt=0, le=1, description="part of the clients, drawn anew each round, that takes part in it"
    )

    @model_validator(mode="after")
    def _count_where_needed(self) -> ClientsSettings:
        if self.sites:
            if self.count is not None or "partition" in self.model_fields_set:
                raise ValueError("sites say which client holds which rows, so leave count and partition out")
            names = [site.name or PurePath(site.path).stem for site in self.sites]
            if len(set(names)) < len(names):
                raise ValueError("two sites have the same name: give each a name of its own")
            return self
        if self.count is None and self.partition.needs_count:
            raise ValueError(
                f"a partition of kind {self.partition.kind!r} needs count, the number of clients"
            )
        return self

    @property
    def natural(self) -> bool:
        """Whether clients are sites of the data's own."""
        return bool(self.sites) or self.partition.natural

    @model_serializer(mode="wrap")
    def _without_what_sites_replace(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Sites beside a partition are refused, so no partition is written beside sites."""
        content: dict[str, Any] = written(self)
        return {key: value for key, value in content.items() if not (self.sites and key == "partition")}
