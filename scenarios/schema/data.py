"""Section ``data`` of a scenario: which table, which of its columns, which of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator, model_validator

from raydr.data.layout import Categories
from raydr.data.loading import Filling, Missing
from raydr.data.spelling import DEFAULT_THRESHOLD, Threshold
from raydr.settings import LocalPath, Settings
from raydr.statistics.scaling import Scale
from raydr.statistics.site_effects import Kind


class HoldoutSettings(Settings):
    """Rows that no client is given, which are placed on the map once it is drawn: how it serves rows to come."""

    part: float | None = Field(
        None, gt=0, lt=1, description="part of the rows, rounded up; drawn by the seed, class by class"
    )
    rows: int | None = Field(None, ge=1, description="instead: so many rows, drawn likewise")
    column: str | None = Field(
        None, description="instead: those that a column of the data marks, which is then no feature"
    )
    value: str | bool | int | None = Field(None, description="what that column says of the rows held out")

    @model_validator(mode="after")
    def _one_choice(self) -> HoldoutSettings:
        if sum(choice is not None for choice in (self.part, self.rows, self.column)) != 1:
            raise ValueError(
                "give a number: a part of the rows below 1, or how many; or column and value, where a column marks them"
            )
        if (self.column is None) != (self.value is None):
            raise ValueError("column and value go together: which column marks the rows, and how")
        return self

    @property
    def wanted(self) -> int | float | str:
        """As :func:`raydr.data.hold_out` takes it."""
        return str(self.value) if self.part is None and self.rows is None else self.part or self.rows or 0


LABEL = "label"
"""What the label is called in data.harmonize.keep where data.label does not name its column."""


class HarmonizeSettings(Settings):
    """How sites are adjusted to each other before their rows are scaled, by sums alone."""

    kind: Kind = Field(
        description="center: each column's mean at every site is that of all; scale: its standard deviation too;"
        " combat: both, drawn by empirical Bayes to what a site's other columns say (ComBat)"
    )
    keep: tuple[str, ...] = Field(
        (),
        description="what is to stay of the differences between sites, as far as it goes with these: columns that are"
        " mapped, and the label's",
    )


class WordSettings(Settings):
    """Which words of columns of text a site tells, and the map knows (data.categories: one-hot)."""

    rows: int = Field(
        DEFAULT_THRESHOLD.rows,
        ge=1,
        description="a site tells only words that at least this many of its rows have",
    )
    sites: int = Field(
        DEFAULT_THRESHOLD.sites,
        ge=1,
        description="a word is spelt to its end and mapped only if at least this many sites tell it; of fewer sites,"
        " all of them. Rows with any other word have zeros only",
    )

    @property
    def threshold(self) -> Threshold:
        """As the survey of columns takes it."""
        return Threshold(self.rows, self.sites)


class DataSettings(Settings):
    """Which table, which of its columns, which of its rows."""

    source: str | None = Field(None, description="a built-in name: raydr list datasets")
    path: LocalPath | None = Field(
        None, description="a .csv, .tsv (also .gz), .parquet, .npy, .npz or .h5ad file"
    )
    graph: LocalPath | None = Field(
        None, description="a .csv or .npz edge list, whose nodes are placed in hyperbolic space"
    )
    dimensions: int = Field(5, ge=2, description="of the hyperbolic space that a graph is placed in")
    matrix: str | None = Field(
        None, description="of an .h5ad file which numbers: X, the default, layers/NAME or obsm/NAME"
    )
    label: str | None = Field(None, description="the column of class labels")
    features: tuple[str, ...] | None = Field(None, description="columns to map; default: all others")
    id: str | None = Field(None, description="the column of row identities; default: row numbers from 0")
    rows: int | None = Field(
        None, description="seeded sub-sample of so many rows, those that are held out among them"
    )
    holdout: HoldoutSettings | None = Field(
        None,
        description="rows to place on the map once it is drawn, and to judge it by: a part of them below 1, how many,"
        " or a section",
    )
    scale: Scale = Field("none", description="federated scaling of the features")
    missing: Missing = Field(
        "error",
        description="what to do about missing values: refuse them, drop their rows, or have each client fill in its"
        " own by the mean or median of all clients, learnt by sums",
    )

    categories: Categories = Field(
        "error",
        description="what becomes of columns of text: refused, left out, or a column of zeros and ones for each of at"
        " most 50 words, on which clients agree by sums (data.words); unless refused, dates and identities are left out"
        " too",
    )
    words: WordSettings = Field(
        WordSettings(), description="which words data.categories: one-hot makes zeros and ones of"
    )

    harmonize: HarmonizeSettings | None = Field(
        None,
        description="adjust sites to each other: none, center, scale or combat, or a section that also says what to"
        " keep. Real differences between sites go too: docs/sites.md",
    )

    @field_validator("harmonize", mode="before")
    @classmethod
    def _by_kind(cls, harmonize: Any) -> Any:
        """A word is the kind; none is nothing."""
        if harmonize == "none":
            return None
        return {"kind": harmonize} if isinstance(harmonize, str) else harmonize

    @field_validator("holdout", mode="before")
    @classmethod
    def _by_number(cls, holdout: Any) -> Any:
        """A number is a part where it has a point, else a count."""
        match holdout:
            case None | Mapping() | HoldoutSettings():
                return holdout
            case float():
                return {"part": holdout}
            case int() if not isinstance(holdout, bool):
                return {"rows": holdout}
        raise ValueError(
            f"{holdout!r} is none of a part of the rows below 1, such as 0.2, a number of rows, and a section of keys"
        )

    @model_validator(mode="after")
    def _one_origin(self) -> DataSettings:
        if sum(origin is not None for origin in (self.source, self.path, self.graph)) > 1:
            raise ValueError(
                "give exactly one of source (a built-in name), path (a file of yours) and graph (an edge list)"
            )
        # By value, not by what was given: the scenario.yaml of a run folder gives every key.
        changed = {
            name for name, field in type(self).model_fields.items() if getattr(self, name) != field.default
        }
        if self.categories != "one-hot" and "words" in changed:
            raise ValueError(
                "words says which words become zeros and ones: leave it out, or set categories to one-hot"
            )
        if self.graph is None and "dimensions" in changed:
            raise ValueError("dimensions are of a graph: leave them out, or name an edge list in graph")
        if (
            self.graph is not None
            and {"matrix", "label", "features", "id", "missing", "categories", "harmonize"} & changed
        ):
            raise ValueError(
                "a graph has no columns: leave label, features, id, missing, categories and harmonize out"
            )
        if self.graph is not None and self.holdout is not None:
            raise ValueError(
                "the nodes of a graph are placed by all its edges, so none is new: leave holdout out"
            )
        return self

    @property
    def label_kept(self) -> bool:
        """Whether harmonizing keeps what goes with the label, unless a column that is mapped is called so."""
        return self.harmonize is not None and bool({self.label, LABEL} & set(self.harmonize.keep))

    @property
    def harmonizing(self) -> Kind | None:
        """How sites are adjusted to each other; None where they are not."""
        return None if self.harmonize is None else self.harmonize.kind

    @property
    def filling(self) -> Filling | None:
        """What clients fill missing values in by; None where none may be missing."""
        return self.missing if self.missing == "mean" or self.missing == "median" else None
