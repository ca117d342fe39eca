"""What a scenario may say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, Union

from pydantic import Field, model_validator

from raydr.methods import METHODS
from raydr.scaling import Scale
from raydr.settings import Settings

if TYPE_CHECKING:
    from raydr.methods.fed_tsne_umap import FedTSNE, FedUMAP


class DataSettings(Settings):
    """Which table, which of its columns, which of its rows."""

    source: str | None = Field(None, description="a built-in name: raydr list datasets")
    path: str | None = Field(None, description="a .csv, .parquet, .npy or .npz file")
    label: str | None = Field(None, description="the column of class labels")
    features: tuple[str, ...] | None = Field(None, description="columns to map; default: all others")
    id: str | None = Field(None, description="the column of row identities; default: row numbers from 0")
    rows: int | None = Field(None, description="seeded sub-sample of so many rows")
    scale: Scale = Field("none", description="federated scaling of the features")
    missing: Literal["error", "drop"] = Field(
        "error", description="what to do about rows with missing values"
    )

    @model_validator(mode="after")
    def _one_origin(self) -> DataSettings:
        if (self.source is None) == (self.path is None):
            raise ValueError("give exactly one of source (a built-in name) and path (a file of yours)")
        return self


class IID(Settings):
    """Rows dealt at random, as evenly as can be."""

    kind: Literal["iid"] = "iid"


class Dirichlet(Settings):
    """Each class dealt in Dirichlet(alpha) proportions."""

    kind: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(0.5, gt=0)
    min_rows: int = Field(1, ge=0)


class Shards(Settings):
    """Each client holds rows of so many classes."""

    kind: Literal["shards"] = "shards"
    classes: int = Field(2, ge=1)


class OneClass(Settings):
    """Each client holds rows of one class."""

    kind: Literal["one-class"] = "one-class"


class ByColumn(Settings):
    """The values of a column are the clients."""

    kind: Literal["by-column"] = "by-column"
    column: str
    min_rows: int = Field(1, ge=0)


class Pointwise(Settings):
    """Each row is a client."""

    kind: Literal["pointwise"] = "pointwise"


class ClientsSettings(Settings):
    """How many clients, and which rows each holds."""

    count: int | None = Field(
        None, ge=1, description="number of clients; where the partition fixes it, optional"
    )
    partition: Annotated[
        IID | Dirichlet | Shards | OneClass | ByColumn | Pointwise, Field(discriminator="kind")
    ] = IID()

    @model_validator(mode="after")
    def _count_where_needed(self) -> ClientsSettings:
        if self.count is None and self.partition.kind in ("iid", "dirichlet", "shards"):
            raise ValueError(
                f"a partition of kind {self.partition.kind!r} needs count, the number of clients"
            )
        return self


class RuntimeSettings(Settings):
    """How the simulation runs; changes no bit of the outcome."""

    federation: Literal["ray", "inline"] = Field("ray", description="Ray's actors, or this process alone")
    actors: Literal["auto", "per-client"] | Annotated[int, Field(ge=1)] = Field(
        "auto", description="client actors: as many as fit, one per client, or a number"
    )
    timeout_s: float = Field(600.0, gt=0, description="seconds that clients have for one call")


if TYPE_CHECKING:
    MethodSettings: TypeAlias = FedTSNE | FedUMAP
else:
    MethodSettings = Annotated[
        Union[tuple(method.settings for method in METHODS.values())], Field(discriminator="kind")  # noqa: UP007
    ]


class Scenario(Settings):
    """One simulation, complete: the same scenario gives the same bits."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)
    seed: int = Field(0, ge=0, lt=2**32)
    data: DataSettings
    clients: ClientsSettings
    method: MethodSettings
    runtime: RuntimeSettings = RuntimeSettings()
    compare: tuple[Literal["central"], ...] = ()
    metrics: Literal["default"] | tuple[str, ...] = "default"
