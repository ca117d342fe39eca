"""Pydantic models for scenario files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidatorFunctionWrapHandler,
    create_model,
    field_validator,
    model_serializer,
    model_validator,
)

from raydr.data.columns import listing
from raydr.data.layout import Categories
from raydr.data.loading import TABLES, Filling, Missing, ending
from raydr.data.spelling import DEFAULT_THRESHOLD, Threshold
from raydr.device import Device
from raydr.errors import ScenarioError, did_you_mean
from raydr.federation.secure import SecureSums
from raydr.federation.simulated import ADVERSARIES, Adversary, attackers
from raydr.federation.simulated.faults import Faults
from raydr.methods import METHODS, MethodSettings, unplaceable
from raydr.partition import IID, PARTITIONS, Dealing
from raydr.privacy.accounting import Budget, require_planned
from raydr.privacy.gaussian import GaussianNoise
from raydr.privacy.masking import degrees
from raydr.privacy.mechanism import MECHANISMS, Coverage, Delta, Mechanism, mechanism_of
from raydr.registry import ExtensionError, kind_of, one_of
from raydr.robust import RobustRule
from raydr.settings import LocalPath, OfFile, SecretPath, Settings
from raydr.statistics.scaling import Scale
from raydr.statistics.site_effects import Kind


class NoiseSettings(Mechanism):
    """A mechanism, and who applies it, which no client is told."""

    clients: float = Field(1.0, gt=0, le=1, description="part of the clients that add it, drawn by the seed")


def _section(mechanism: type[Settings]) -> type[Settings]:
    """Section of a scenario for a mechanism; ExtensionError if it has a key of the section's own."""
    if "clients" in mechanism.model_fields:
        raise ExtensionError(
            f"The mechanism {kind_of(mechanism)!r} has a key `clients`, which privacy.noise has for every mechanism:"
            " rename it."
        )
    name, bases = f"{mechanism.__name__}Settings", (NoiseSettings, mechanism)
    return create_model(name, __base__=bases, __doc__=mechanism.__doc__, __module__=__name__)


if TYPE_CHECKING:
    AnyMethod: TypeAlias = MethodSettings
    AnyPartition: TypeAlias = Dealing
    AnyAdversary: TypeAlias = Adversary
    AnyNoise: TypeAlias = NoiseSettings
else:
    METHODS.close()
    AnyMethod = one_of(tuple(method.settings for method in METHODS.values()))
    AnyPartition = PARTITIONS.choice
    AnyAdversary = ADVERSARIES.choice
    MECHANISMS.close()
    _SECTIONS = tuple(_section(mechanism) for mechanism in MECHANISMS.values())
    globals().update({section.__name__: section for section in _SECTIONS})  # found there when it is unpickled
    AnyNoise = one_of(_SECTIONS)


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


MOST_SHOWN = 50
"""Columns that a page tells of each row."""

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


class RuntimeSettings(Settings):
    """How the simulation runs. Unless clients are lost, it changes no bit of the outcome."""

    federation: Literal["ray", "inline"] = Field("ray", description="Ray's actors, or this process alone")
    actors: Literal["auto", "per-client"] | Annotated[int, Field(ge=1)] = Field(
        "auto",
        description="client actors: per-client is one for each client, or give a number; auto is one for each client up"
        " to 16 on a core, if they and their rows need at most a quarter of the memory, beyond that one for each core,"
        " and with batch_clients one for each core",
    )
    batch_clients: bool = Field(
        False,
        description="train clients of one actor as one where the method can: other bits, within rounding",
    )
    device: Device = Field(
        "cpu",
        description="what computes large products, at clients, server and evaluation: cuda is a GPU, of which Ray gives"
        " each process a part; auto is one where there is one. Other bits than the cpu's, within rounding",
    )
    timeout_s: float = Field(600.0, gt=0, description="seconds that clients have for one call")
    retries: int = Field(
        2, ge=0, description="how often a dead or late process is started again for one call"
    )
    quorum: float = Field(1.0, gt=0, le=1, description="part of a round's clients that must answer; 1: all")
    checkpoint_every: int = Field(10, ge=0, description="rounds between checkpoints; 0: none")


class FaultSettings(Faults):
    """Simulated reality: what goes wrong on purpose, by the seed."""

    adversary: AnyAdversary | None = Field(None, description="clients that lie")


class PrivacySettings(Settings):
    """What is to protect the messages."""

    noise: AnyNoise | None = Field(None, description="noise that clients add, where the method offers it")

    @field_validator("noise", mode="wrap")
    @classmethod
    def _of_the_usual_kind(cls, noise: Any, checked: ValidatorFunctionWrapHandler) -> Any:
        """The kind need not be written where it is the default, and noise of level 0 is none."""
        if not isinstance(noise, Mapping):
            return checked(noise)
        content = {"kind": kind_of(GaussianNoise), **noise}
        if type(content.get("level")) in (int, float) and content["level"] == 0:
            checked(content | {"level": 1.0})  # all else must be right
            return None
        return checked(content)

    secret: SecretPath | None = Field(
        None,
        description="file with at least 32 secret bytes, from which clients' keys, masks and noise follow, and so a run"
        " that can be repeated to the bit, unless it may lose clients (runtime.quorum); default: drawn from the system,"
        " with new noise in each run. The server does not have it",
    )
    isometry_key: bool = Field(
        False,
        description="turn and shift all records by an isometry that clients agree on and the server does not know: the"
        " same map, and known anchors stop helping. Obfuscation, not protection: raydr audit shows how far it goes",
    )
    secure_aggregation: bool = Field(
        False,
        description="hide each client's summand from the server, which learns sums alone: pairwise masks (Bell et al."
        " 2020) that come off the total; needs 3 clients in each sum",
    )
    colluding: float = Field(
        0.2,
        ge=0,
        lt=1,
        description="part of the clients in a sum that may tell the server all they know without weakening"
        " secure_aggregation: noise of per: sum is enough without their shares, and without one client's",
    )

    delta: Delta = Field(1e-5, description="at which epsilon is told: below 1 / rows, and less than 0.1")
    epsilon_max: float | None = Field(
        None,
        gt=0,
        description="what all releases may come to together: a run that would pass it is refused or stopped",
    )
    strict: bool | Literal["sums"] = Field(
        False,
        description="whether nothing may leave a client that no noise with a claim covers: nothing at all, or no sum",
    )

    @model_validator(mode="after")
    def _budget_that_binds(self) -> PrivacySettings:
        if self.epsilon_max is not None and not self.strict:
            raise ValueError(
                "epsilon_max bounds what the accountant charges, and a release that no noise covers has no epsilon:"
                " set strict to true, or to sums where what is posted of each record is not meant"
            )
        if self.strict and self.noise is not None and self.noise.by_level:
            raise ValueError(
                "strict needs noise that claims something, and a level depends on the data: give noise.epsilon,"
                " noise.multiplier or noise.sigma"
            )
        return self

    @property
    def budget(self) -> Budget:
        """What the run may cost."""
        return Budget(self.delta, self.epsilon_max, self.strict, self.colluding)

    def coverage(self, releases: float) -> Coverage | None:
        """The mechanism as clients are told it, fit for so many releases, and who applies it."""
        if self.noise is None:
            return None
        mechanism = mechanism_of(self.noise.model_dump(exclude={"clients"}))
        return Coverage(mechanism.calibrated(releases, self.delta), self.noise.clients)


class AuditSettings(Settings):
    """Attacks on the run's own messages: what an honest but curious server recovers."""

    attacks: tuple[str, ...] | None = Field(
        None, description="names of attacks, raydr list attacks; default: all that apply"
    )
    public_rows: int = Field(
        10_000,
        ge=0,
        description="rows of like data that the server is given, at most: rows of the source that are not mapped, or,"
        " where all are, a fifth of those that are",
    )
    known_records: tuple[Annotated[int, Field(ge=0)], ...] | None = Field(
        None,
        description="how many records of the run the server knows; default: 0, 1, 5, 20 and features + 1",
    )

    @field_validator("attacks")
    @classmethod
    def _attacks_that_there_are(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        from raydr.attacks import ATTACKS

        for name in names or ():
            if name not in ATTACKS:
                raise ValueError(f"there is no attack {name!r}: choose among {', '.join(ATTACKS)}")
        return names


NAME_PATTERN, LONGEST_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$", 100
"""Of a scenario's name, which is part of the name of a folder wherever it runs."""


class Scenario(Settings):
    """One simulation, complete: the same scenario gives the same bits."""

    name: str = Field(
        pattern=NAME_PATTERN, max_length=LONGEST_NAME, description="names the run and its folder"
    )
    seed: int = Field(0, ge=0, lt=2**32, description="of every random draw: another seed, another run")
    data: DataSettings = Field(description="the table to map")
    clients: ClientsSettings = Field(description="who holds its rows")
    method: AnyMethod = Field(description="how it is mapped: raydr list methods")
    runtime: RuntimeSettings = Field(
        RuntimeSettings(),
        description="where and how it runs; as long as no client is lost, changes no bit of the map",
    )
    privacy: PrivacySettings = Field(PrivacySettings(), description="what is to protect the messages")
    faults: FaultSettings = Field(FaultSettings(), description="what goes wrong on purpose")
    compare: tuple[Literal["central"], ...] = Field(
        (), description="[central] also maps the pooled data by the same embedder: a reference"
    )
    metrics: Literal["default"] | tuple[str, ...] = Field(
        "default",
        description="default for all, or a list of names: raydr list metrics; those of neighbours with any number of"
        " them, as trustworthiness_7 or npa_20",
    )
    evaluate_every: int = Field(
        0,
        ge=0,
        description="also draw and score the map after every so many rounds, and before the first; 0: do not",
    )
    show: tuple[str, ...] = Field(
        (),
        max_length=MOST_SHOWN,
        description="mapped columns that the page tells of each row and colours by: their values are copied into the"
        " run folder, which holds none otherwise",
    )
    audit: AuditSettings | None = Field(
        None, description="true, or a section: attack the run once it is whole, as raydr audit does"
    )

    @field_validator("audit", mode="before")
    @classmethod
    def _audit_or_not(cls, audit: Any) -> Any:
        return {} if audit is True else None if audit is False else audit

    @model_validator(mode="after")
    def _one_origin(self) -> Scenario:
        given = any(origin is not None for origin in (self.data.source, self.data.path, self.data.graph))
        if self.clients.sites and (given or self.data.rows is not None):
            raise ValueError(
                "clients.sites have files of their own, so leave data.source, data.path, data.graph and data.rows"
                " out"
            )
        if not self.clients.sites and not given:
            raise ValueError(
                "data: give exactly one of source (a built-in name), path (a file of yours) and graph (an edge list)"
            )
        return self

    @model_validator(mode="after")
    def _rows_that_can_be_held_out(self) -> Scenario:
        if self.data.holdout is None:
            return self
        if self.clients.sites:
            raise ValueError(
                "data.holdout: clients.sites have files of their own, whose rows nobody else can hold out: leave it"
                " out, keep the new rows in a file apart, and place them by raydr transform"
            )
        reason = unplaceable(self.method)
        if reason is not None:
            raise ValueError(f"data.holdout: {reason}")
        return self

    @model_validator(mode="after")
    def _sites_that_can_be_harmonized(self) -> Scenario:
        wanted = self.data.harmonize
        if wanted is None:
            return self
        if not self.clients.natural:
            raise ValueError(
                "data.harmonize takes off rows what is their site's, and clients.partition deals rows to clients that"
                " are no sites: name a column in {kind: by-column, column: ...}, or give clients.sites"
            )
        if self.data.holdout is not None and wanted.kind != "center" and self.data.label_kept:
            raise ValueError(
                "data.harmonize.keep names the label, and rows that are held out would be placed by the very label that"
                " they are judged by: leave it out of keep, set kind to center, or leave data.holdout out"
            )
        return self

    @model_validator(mode="after")
    def _sums_that_can_be_kept_secret(self) -> Scenario:
        if not self.privacy.secure_aggregation:
            return self
        rule = getattr(self.method, "aggregation", None)
        if isinstance(rule, RobustRule):
            raise ValueError(
                f"method.aggregation {rule.kind!r} compares each client's upload with the others',"
                " which is what privacy.secure_aggregation would hide: choose one of the two"
            )
        return self

    @model_validator(mode="after")
    def _noise_that_the_method_offers(self) -> Scenario:
        noise, offered = self.privacy.noise, METHODS[self.method.kind].noise_on
        if noise is not None and noise.on not in offered:
            places = " or ".join(sorted(offered)) or "nowhere"
            raise ValueError(
                f"privacy.noise.on is {noise.on!r}, but clients of method.kind {self.method.kind!r} can add noise"
                f" {'on ' if offered else ''}{places}: leave privacy.noise out, or choose another"
            )
        if noise is None:
            return self
        method = METHODS[self.method.kind]
        if not method.releases(self.method, noise):
            raise ValueError(
                f"privacy.noise.on is {noise.on!r}, and with these settings of method.kind {self.method.kind!r} clients"
                " upload nothing of that sort: look at privacy.noise.stage, method.landmarks_from, method.share and"
                " method.rounds"
            )
        reason = method.unpayable(self.method, noise)
        if reason is not None:
            raise ValueError(f"privacy.noise.on is {noise.on!r}, and {reason}")
        if noise.clients < 1 and not method.some_noisy:
            raise ValueError(
                f"privacy.noise.clients is {noise.clients:g}, but with method.kind {self.method.kind!r} all clients add"
                " noise or none: leave it out"
            )
        if noise.shared and isinstance(getattr(self.method, "aggregation", None), RobustRule):
            raise ValueError(
                "privacy.noise.per 'sum' covers a sum alone, and a robust method.aggregation looks at each upload:"
                " choose per: client, or aggregation 'mean'"
            )
        posted = method.posts(self.method)
        if self.privacy.strict is True and posted is not None and not noise.for_good:
            raise ValueError(
                f"privacy.strict lets nothing leave without a claim, and method.kind {self.method.kind!r} posts"
                f" {posted} in the clear: put noise on data with stage: all, or set strict to sums, which leaves that"
                " out and says so"
            )
        return self

    @model_validator(mode="after")
    def _noise_where_nothing_else_may_leave(self) -> Scenario:
        own = METHODS[self.method.kind].noise_of_its_own
        if self.privacy.strict and self.privacy.noise is None and not own:
            raise ValueError(
                "privacy.strict lets nothing leave without noise, and there is none: give privacy.noise"
            )
        return self

    @property
    def noisy(self) -> bool:
        """Whether noise covers any of what leaves the clients."""
        return self.privacy.noise is not None or METHODS[self.method.kind].noise_of_its_own

    @property
    def hides_by_secrets(self) -> bool:
        """Whether anything is hidden by what follows from the clients' secrets: noise, an isometry key or masks."""
        return self.noisy or self.privacy.isometry_key or self.privacy.secure_aggregation

    @model_validator(mode="after")
    def _columns_that_no_row_decides(self) -> Scenario:
        """Refuse a survey of columns where nothing may leave without noise: no noise covers it."""
        if not self.privacy.strict:
            return self
        data = self.data
        paths = [data.path] if data.path else [site.path for site in self.clients.sites]
        wanted = []
        if data.categories != "error":
            wanted.append("data.categories to error")
        if data.features is None and any(ending(PurePath(path)) in TABLES for path in paths):
            wanted.append("data.features to the columns of numbers to map")
        if wanted:
            raise ValueError(
                "privacy.strict lets nothing leave that no noise covers, and a single row can decide which columns of a"
                f" table are mapped, and as what: set {' and '.join(wanted)}"
            )
        return self

    @model_validator(mode="after")
    def _rows_that_can_be_keyed(self) -> Scenario:
        if not self.privacy.isometry_key:
            return self
        reason = METHODS[self.method.kind].unkeyable(self.method)
        noise = self.privacy.noise
        if self.data.scale == "minmax":
            reason = "extremes of features are no sums, and would be told: set data.scale to standard, unit or none"
        elif self.data.harmonize is not None:
            reason = (
                "what sites are adjusted by would tell the means that the key hides: leave data.harmonize out"
            )
        elif self.data.filling is not None:
            reason = (
                f"what fills missing values in would tell the {self.data.filling} of features that the key hides: set"
                " data.missing to drop"
            )
        elif (
            noise is not None
            and noise.on == "data"
            and (noise.for_good or getattr(noise, "clip", None) is not None)
        ):
            reason = (
                "noise that records carry for good is measured, and its clip seen, where the key hides them: leave"
                " out privacy.noise.stage and privacy.noise.clip"
            )
        elif self.evaluate_every:
            reason = "maps along the way are drawn from rows without the key: leave out evaluate_every"
        if reason is not None:
            raise ValueError(f"privacy.isometry_key: {reason}")
        return self

    @property
    def secure_sums(self) -> SecureSums | None:
        """What sums are to withstand; None where the server may see their summands."""
        if not self.privacy.secure_aggregation:
            return None
        # By the decimal that was written: of 0.8, 0.2 are left.
        return SecureSums(self.privacy.colluding, float(1 - Fraction(repr(self.runtime.quorum))))

    @property
    def coverage(self) -> Coverage | None:
        """The mechanism as clients are told it, and who applies it."""
        noise = self.privacy.noise
        if noise is None:
            return None
        return self.privacy.coverage(METHODS[self.method.kind].releases(self.method, noise))

    @model_validator(mode="after")
    def _within_budget(self) -> Scenario:
        """Refuse what is known to cost too much before anything runs."""
        noise, budget = self.privacy.noise, self.privacy.budget
        epsilon = getattr(noise, "epsilon", None)
        if epsilon is not None and (getattr(noise, "delta", None) or budget.delta) == budget.delta:
            try:
                require_planned(epsilon, budget)
            except ScenarioError as error:
                raise ValueError(str(error).rstrip(".")) from None
        return self

    @model_validator(mode="after")
    def _maps_along_the_way(self) -> Scenario:
        if not self.evaluate_every:
            return self
        if METHODS[self.method.kind].redraw is None:
            able = ", ".join(name for name, method in METHODS.items() if method.redraw is not None)
            raise ValueError(
                f"evaluate_every draws maps of what a method has learnt after some rounds, and method.kind"
                f" {self.method.kind!r} has nothing to draw before its end; leave it out, or choose one of {able}"
            )
        noise = self.privacy.noise
        if noise is not None and (noise.for_good or noise.on == "distances"):
            raise ValueError(
                f"evaluate_every draws maps from the rows themselves, without the noise that privacy.noise.on"
                f" {noise.on!r} adds to the run's own map, so the two could not be compared; leave out one of the two"
            )
        return self

    @model_validator(mode="after")
    def _table_where_needed(self) -> Scenario:
        reason = METHODS[self.method.kind].needs_table(self.method) if self.clients.sites else None
        if reason is not None:
            raise ValueError(reason)
        return self

    @model_validator(mode="after")
    def _survivable(self) -> Scenario:
        if self.runtime.quorum == 1 and (self.faults.dropout or self.faults.corrupt):
            raise ValueError(
                "faults.dropout and faults.corrupt lose clients, and runtime.quorum 1 can do without none:"
                " set runtime.quorum below 1"
            )
        if self.runtime.quorum == 1 and not self.runtime.retries and self.faults.crashes:
            raise ValueError("faults.crashes need runtime.retries of at least 1, or runtime.quorum below 1")
        return self

    @model_validator(mode="after")
    def _rounds_to_strike_in(self) -> Scenario:
        """Refuse what would do nothing in silence."""
        rounds = METHODS[self.method.kind].rounds(self.method)
        struck = [f"faults.{name}" for name in ("dropout", "stragglers", "corrupt", "crashes", "adversary")]
        given = [key for key in struck if getattr(self.faults, key.removeprefix("faults."))]
        if self.clients.participation < 1:
            given.append("clients.participation")
        if given and not rounds:
            raise ValueError(
                f"{' and '.join(given)} would do nothing: only rounds know such things, and method.kind"
                f" {self.method.kind!r} asks clients nothing in rounds; leave {'them' if len(given) > 1 else 'it'} out"
            )
        for crash in self.faults.crashes:
            if crash.round > rounds:
                raise ValueError(
                    f"faults.crashes has a crash in round {crash.round}, and the method has {rounds} rounds: choose a"
                    " round of them"
                )
        return self

    @model_validator(mode="after")
    def _clients_that_are_there(self) -> Scenario:
        """Refused here, where the number of clients is known beforehand, and otherwise by the runner."""
        count = self.clients.count or len(self.clients.sites)
        if count:
            try:
                self.require_clients(count)
            except ScenarioError as error:
                raise ValueError(str(error).rstrip(".")) from None
        return self

    def require_columns(self, mapped: Sequence[str]) -> None:
        """Raise ScenarioError where the scenario shows a column that is not mapped, or one twice."""
        for column in self.show:
            if column not in mapped:
                raise ScenarioError(
                    f"show names the column {column!r}, which is not mapped{did_you_mean(column, mapped)}. Mapped are"
                    f" {listing(mapped)}: correct the name, or leave it out."
                )
            if self.show.count(column) > 1:
                raise ScenarioError(f"show names the column {column!r} twice: leave one out.")

    def require_clients(self, count: int) -> None:
        """Raise ScenarioError where the scenario does not fit so many clients."""
        absent = sorted({crash.client for crash in self.faults.crashes if crash.client >= count})
        if absent:
            raise ScenarioError(
                f"faults.crashes names client {absent[0]}, and there are {count} clients, counted from 0: choose at"
                f" most {count - 1}."
            )
        liars = self.faults.adversary
        if liars is not None and not attackers(self.seed, count, liars.fraction):
            raise ScenarioError(
                f"faults.adversary.fraction is {liars.fraction:g}, which of {count} clients is none, so nobody would"
                f" lie: choose at least {1 / count:.2g}, or leave faults.adversary out."
            )
        coverage = self.coverage
        if coverage is not None:
            coverage.count(count)
        taking_part = max(1, round(self.clients.participation * count))
        rule = getattr(self.method, "aggregation", None)
        if isinstance(rule, RobustRule):
            rule.require(taking_part)
        if self.secure_sums is not None:
            degrees(taking_part, self.secure_sums.colluding, self.secure_sums.dropping)
