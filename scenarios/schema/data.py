"""Section ``data`` of a scenario: the table, its columns and its rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from raydr.data.catalogue import IN_MEMORY
from raydr.data.loading import Filling, Missing
from raydr.data.survey.codebook import ColumnSettings, read_codebook
from raydr.data.survey.layout import Categories
from raydr.data.survey.spelling import DEFAULT_THRESHOLD, Threshold
from raydr.errors import DataError
from raydr.settings import LocalPath, PathMark, Settings
from raydr.statistics.dissimilarity import AS_READ, BY_COLUMN, Metric
from raydr.statistics.scaling import Scale
from raydr.statistics.site_effects import Kind


class HoldoutSettings(Settings):
    """Rows that no client gets. They are placed on the finished map to test how it serves new rows."""

    part: float | None = Field(
        None, gt=0, lt=1, description="fraction of the rows, rounded up; drawn at random from each class"
    )
    rows: int | None = Field(None, ge=1, description="instead: number of rows, drawn in the same way")
    column: str | None = Field(
        None, description="instead: a column that marks the rows to hold out. It is not a feature"
    )
    value: str | bool | int | None = Field(None, description="the value that marks a row in that column")

    @model_validator(mode="after")
    def _one_choice(self) -> HoldoutSettings:
        if sum(choice is not None for choice in (self.part, self.rows, self.column)) != 1:
            raise ValueError(
                "give exactly one of part (a fraction below 1), rows (a number), and column with value"
            )
        if (self.column is None) != (self.value is None):
            raise ValueError("column and value go together: give both, or neither")
        return self

    @property
    def wanted(self) -> int | float | str:
        """The argument ``wanted`` of :func:`raydr.data.hold_out`."""
        return str(self.value) if self.part is None and self.rows is None else self.part or self.rows or 0


LABEL = "label"
"""Name of the label in data.harmonize.keep if data.label does not name its column."""


class HarmonizeSettings(Settings):
    """Adjustment of sites to each other before their rows are scaled. It uses only sums over sites."""

    kind: Kind = Field(
        description="center: give each column the same mean at every site; scale: also the same standard deviation;"
        " combat: both, shrunk by empirical Bayes across the site's columns (ComBat)"
    )
    keep: tuple[str, ...] = Field(
        (),
        description="mapped columns, or the label, whose effect is kept: differences between sites that these columns"
        " explain stay in the data",
    )


class WordSettings(Settings):
    """Limits for words of text columns with data.categories: one-hot."""

    rows: int = Field(
        DEFAULT_THRESHOLD.rows,
        ge=1,
        description="a site reports only words that at least this many of its rows have",
    )
    sites: int = Field(
        DEFAULT_THRESHOLD.sites,
        ge=1,
        description="a word is revealed and mapped only if at least this many sites report it, or all sites if there"
        " are fewer. Rows with any other word get zeros only",
    )

    @property
    def threshold(self) -> Threshold:
        """The threshold of the column survey."""
        return Threshold(self.rows, self.sites)


class DataSettings(Settings):
    """The table, its columns and its rows."""

    source: str | None = Field(None, description="a built-in name: raydr list datasets")
    path: LocalPath | None = Field(
        None, description="a .csv, .tsv (also .gz), .parquet, .npy, .npz, .h5ad or .mtx (also .gz) file"
    )
    graph: LocalPath | None = Field(
        None, description="a .csv or .npz edge list. Its nodes are placed in hyperbolic space"
    )
    dimensions: int = Field(5, ge=2, description="dimensions of the hyperbolic space for a graph")
    matrix: str | None = Field(
        None, description="matrix of an .h5ad file: X (the default), layers/NAME or obsm/NAME"
    )
    label: str | None = Field(None, description="the column of class labels")
    time: str | None = Field(
        None,
        description="a column that says when a row was taken: its values are the periods of the map. Dates are grouped"
        " by year, or by month if they span at most a year. It is not mapped: docs/new-rows.md",
    )
    features: tuple[str, ...] | None = Field(None, description="columns to map; default: all others")
    exclude: tuple[str, ...] = Field((), description="columns that are not mapped, instead of features")
    id: str | None = Field(None, description="the column of row identities; default: row numbers from 0")
    rows: int | None = Field(None, description="size of a random sample of the rows, including held-out rows")
    holdout: HoldoutSettings | None = Field(
        None,
        description="rows to place on the finished map, to test it: a fraction below 1, a number of rows, or a section",
    )
    scale: Scale = Field(
        "none",
        description="federated scaling of the columns. maxabs divides by the largest absolute value, which keeps zeros."
        " Except under none, a column of words counts as much as a column of numbers, however many words it has. unit"
        " is another name of metric: cosine",
    )
    metric: Metric = Field(
        "euclidean",
        description="distance between rows, by a transformation that each client applies to its own scaled rows. cosine"
        " and correlation: rows of length 1, for correlation less their own mean; hellinger: counts as shares of their"
        " row; hamming: share of columns with another category; gower: mean over columns of the difference as a part"
        " of the range, 1 for other words. docs/distances.md",
    )
    target_weight: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of the label in the variance of distances. 0: the label only colours the map. Above 0, the"
        " map shows the label: its classes move apart, and rows without a label and new rows lie between them:"
        " docs/distances.md",
    )
    missing: Missing = Field(
        "error",
        description="missing values: error refuses them; drop drops their rows; mean and median fill them in with the"
        " value over all clients, computed with sums",
    )

    categories: Categories = Field(
        "error",
        description="columns of text: error refuses them; leave-out ignores them; one-hot makes a column of zeros and"
        " ones for each of at most 50 words, on which clients agree with sums (data.words). Unless it is error, dates"
        " and identities are left out too",
    )
    words: WordSettings = Field(
        WordSettings(), description="limits for the words of data.categories: one-hot"
    )
    codebook: Annotated[tuple[ColumnSettings, ...], PathMark()] = Field(
        (),
        description="how columns are read: the path of a codebook as `raydr init --codebook` writes it, or its rows. It"
        " wins over categories and over the survey of the columns: docs/first-map.md",
    )

    harmonize: HarmonizeSettings | None = Field(
        None,
        description="adjust sites to each other: none, center, scale or combat, or a section with kind and keep. This"
        " also removes real differences between sites: docs/sites.md",
    )

    @model_validator(mode="before")
    @classmethod
    def _unit_is_cosine(cls, content: Any) -> Any:
        """Turn scale: unit into metric: cosine."""
        if not isinstance(content, Mapping) or content.get("scale") != "unit":
            return content
        metric = content.get("metric", "cosine")
        if metric not in ("cosine", "euclidean"):
            raise ValueError(
                f"scale: unit is another name of metric: cosine, but metric is {metric}: leave scale out"
            )
        return {**content, "scale": "none", "metric": "cosine"}

    @field_validator("codebook", mode="before")
    @classmethod
    def _from_file(cls, codebook: Any) -> Any:
        """Read the file, so that a run folder needs no file."""
        if not isinstance(codebook, str | PurePath):
            return codebook
        try:
            return read_codebook(Path(codebook)).rows
        except DataError as error:
            raise ValueError(str(error).rstrip(".")) from error  # a clause of the scenario's error

    @field_validator("harmonize", mode="before")
    @classmethod
    def _by_kind(cls, harmonize: Any) -> Any:
        """Turn a word into a section with that kind, and none into None."""
        if harmonize == "none":
            return None
        return {"kind": harmonize} if isinstance(harmonize, str) else harmonize

    @field_validator("holdout", mode="before")
    @classmethod
    def _by_number(cls, holdout: Any) -> Any:
        """Turn a float into a part and an integer into a number of rows."""
        match holdout:
            case None | Mapping() | HoldoutSettings():
                return holdout
            case float():
                return {"part": holdout}
            case int() if not isinstance(holdout, bool):
                return {"rows": holdout}
        raise ValueError(
            f"expected a fraction below 1, such as 0.2, a number of rows or a section of keys, got {holdout!r}"
        )

    @model_validator(mode="after")
    def _one_origin(self) -> DataSettings:
        if sum(origin is not None for origin in (self.source, self.path, self.graph)) > 1:
            raise ValueError(
                "give exactly one of source (a built-in name), path (a file of yours) and graph (an edge list)"
            )
        # Compare values with the defaults: the scenario.yaml of a run folder gives every key.
        changed = {
            name for name, field in type(self).model_fields.items() if getattr(self, name) != field.default
        }
        if self.exclude and self.features is not None:
            raise ValueError("features lists what is mapped, so exclude has no effect: leave one of them out")
        if self.time is not None and self.time == self.label:
            raise ValueError(
                f"time and label both name {self.time!r}: leave label out. The map has a colour for periods"
            )
        if self.time is not None and self.time == self.id:
            raise ValueError(f"time and id both name {self.time!r}: name another column in one of them")
        if self.time is not None and self.time in self.exclude:
            raise ValueError(
                f"time names {self.time!r}, which is in exclude: remove it there. The column of time is never mapped"
            )
        if self.categories != "one-hot" and "words" in changed:
            raise ValueError("words needs categories: one-hot: leave words out, or set categories to one-hot")
        if self.codebook and self.source not in (None, IN_MEMORY):
            raise ValueError(
                f"codebook describes a table of yours, but source is {self.source!r}: leave it out"
            )
        if self.graph is None and "dimensions" in changed:
            raise ValueError("dimensions needs a graph: leave it out, or name an edge list in graph")
        if (
            self.graph is not None
            and {
                "matrix",
                "label",
                "time",
                "features",
                "exclude",
                "id",
                "missing",
                "categories",
                "codebook",
                "harmonize",
                "metric",
                "target_weight",
            }
            & changed
        ):
            raise ValueError(
                "a graph has no columns: leave label, time, features, exclude, id, missing, categories, codebook,"
                " harmonize, metric and target_weight out"
            )
        if self.scale != "none" and self.metric in (*AS_READ, *BY_COLUMN):
            raise ValueError(
                f"metric: {self.metric} compares columns as they are read, and scale: {self.scale} changes them: leave"
                " scale out"
            )
        if self.harmonize is not None and self.metric in AS_READ:
            raise ValueError(
                f"metric: {self.metric} compares {'counts' if self.metric == 'hellinger' else 'categories'}, and"
                " harmonize changes them: leave one of them out"
            )
        if self.graph is not None and self.holdout is not None:
            raise ValueError("all edges of a graph place its nodes, so no node can be new: leave holdout out")
        return self

    @property
    def label_kept(self) -> bool:
        """Whether harmonizing keeps the effect of the label; a mapped column of the same name takes precedence."""
        return self.harmonize is not None and bool({self.label, LABEL} & set(self.harmonize.keep))

    @property
    def as_read(self) -> bool:
        """Whether distances are Euclidean, between columns as they are read."""
        return self.scale == "none" and self.metric == "euclidean"

    @property
    def harmonizing(self) -> Kind | None:
        """How sites are adjusted to each other; None if they are not."""
        return None if self.harmonize is None else self.harmonize.kind

    @property
    def filling(self) -> Filling | None:
        """Statistic that fills in missing values; None if no value may be missing."""
        return self.missing if self.missing == "mean" or self.missing == "median" else None
