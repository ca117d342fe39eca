"""A site's policy: what may leave the site, whatever the scenario asks for.

The site's host checks every message against the policy before it computes or sends a reply
(:mod:`raydr.federation.gate`). ``raydr plan`` calls the same :meth:`Policy.refusal`, so a plan and a run give the same
answer. :attr:`Policy.epsilon` limits one run, and :attr:`Policy.epsilon_in_all` all runs together, by a record that
outlives them (:mod:`raydr.privacy.site_budget`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import quote

from pydantic import Field, model_validator

from raydr.errors import RunError
from raydr.plain import short_number
from raydr.privacy.ledger import Granularity
from raydr.privacy.mechanism import Delta
from raydr.privacy.site_budget import Allowance, SiteBudget
from raydr.settings import MessageSettings

Allowed: TypeAlias = Literal["allowed", "with-noise", "never"]
"""Permission for messages about single records or about one site. Noise must have a guarantee."""

AllowedSum: TypeAlias = Literal["allowed", "in-secure-sum", "with-noise", "never"]
"""Permission for messages that are meant to be added up over sites."""

Profile: TypeAlias = Literal["open", "aggregate-only", "datashield", "private"]
"""Name of a built-in policy."""

SITE = "{site}"
"""Stands for the site's name in :attr:`Policy.releases`."""

PROFILES: Mapping[str, Mapping[str, Any]] = {
    "open": {},
    "aggregate-only": {
        "least_sites": 3,
        "per_record": "never",
        "per_client": "never",
        "aggregate": "in-secure-sum",
    },
    # DataSHIELD: nfilter.subset, nfilter.tab and nfilter.levels.max. With least_count 3, at most one word for every
    # three rows may leave, which is nfilter.levels.density.
    "datashield": {
        "least_rows": 3,
        "least_count": 3,
        "most_words": 40,
        "per_record": "never",
    },
    "private": {
        "least_rows": 5,
        "least_count": 5,
        "least_sites": 2,
        "per_record": "with-noise",
        "per_client": "with-noise",
        "aggregate": "with-noise",
        "extremes": "never",
        "epsilon": 8.0,
    },
}
"""Values of each built-in policy that differ from the defaults."""


class PolicyError(RunError):
    """A site's policy does not allow a message. The site did not send it."""


@dataclass(kw_only=True, frozen=True)
class Message:
    """The declaration of one message that is about to leave a site.

    Attributes
    ----------
    kind, what : str
        Name of its type, and its content in one sentence.
    granularity : Granularity
        Smallest unit of data that it describes, as the server can read it.
    rows : int
        Rows of the site.
    module : str
        Module of the request.
    method : bool
        Whether the request belongs to a method, and not to all runs.
    known : bool
        Whether raydr or an installed package that extends it defines the request and its mechanism.
    public : bool
        Whether it depends on no value of a record.
    stays : bool
        Whether the site keeps it.
    claimed : bool
        Whether noise with a guarantee covers it.
    secure_sites : int
        Sites in its secure sum; 0 if it is not part of one.
    extreme : bool
        Whether it bounds the values of single records.
    splits : bool
        Whether it divides single records between cells.
    counts : bool
        Whether it counts records, so that a run also checks :attr:`Policy.least_count`.
    """

    kind: str
    what: str
    granularity: Granularity
    rows: int
    module: str = ""
    method: bool = False
    known: bool = True
    public: bool = False
    stays: bool = False
    claimed: bool = False
    secure_sites: int = 0
    extreme: bool = False
    splits: bool = False
    counts: bool = False

    @property
    def described(self) -> str:
        """The message's name and content, for errors."""
        return f"the message {self.kind} ({self.what})"


@dataclass(frozen=True)
class Refusal:
    """A rule of a policy, such as ``per_record: never``, why a message breaks it, and the policy's name."""

    rule: str
    why: str
    policy: str = ""


class Policy(MessageSettings):
    """Rules about what may leave a site."""

    profile: Profile = Field("open", description="built-in policy to start from; the other keys change it")
    least_rows: int = Field(1, ge=1, description="a site with fewer rows sends nothing")
    least_count: int = Field(
        1,
        ge=1,
        description="least number of records in a cell of a count, in a group, between two answers about a median, and"
        " with a word. An empty cell may leave. Noise with a guarantee replaces this rule",
    )
    least_sites: int = Field(
        1, ge=1, description="least number of sites in a secure sum, with a column, and with a word"
    )
    most_words: int | None = Field(None, ge=0, description="most words of one text column")
    per_record: Allowed = Field("allowed", description="messages about single records")
    per_client: Allowed = Field(
        "allowed", description="messages about this site alone, which the server reads one by one"
    )
    aggregate: AllowedSum = Field(
        "allowed",
        description="messages that the server adds up over sites. Without a secure sum it can read each of them",
    )
    extremes: Literal["allowed", "never"] = Field(
        "allowed", description="bounds of single values, such as the largest value of a column"
    )
    methods: tuple[str, ...] | None = Field(None, description="methods that may run; default: all")
    columns: tuple[str, ...] | None = Field(
        None, description="columns that may be used, with label, id and site; default: all"
    )
    epsilon: float | None = Field(
        None,
        gt=0,
        description="largest epsilon of one run, as this site's host computes it; default: no limit",
    )
    epsilon_in_all: float | None = Field(
        None, gt=0, description="largest epsilon of all runs together; needs releases; default: no limit"
    )
    delta: Delta = Field(1e-5, description="delta of epsilon and epsilon_in_all")
    releases: str | None = Field(
        None,
        description="file in which this site's host records each release of all runs, relative to the policy's file;"
        " `{site}` in it stands for the site's name; default: no record",
    )
    site_name: Literal["told", "hidden"] = Field(
        "told", description="whether the run may show the site's name; hidden: the run calls it `site 1`"
    )
    readers: str = Field("", description="a comment about who may read the results; nothing checks it")

    @model_validator(mode="before")
    @classmethod
    def _started_from_profile(cls, content: Any) -> Any:
        """Fill in the values of the profile."""
        if isinstance(content, Mapping) and isinstance(content.get("profile"), str):
            return {**PROFILES.get(content["profile"], {}), **content}
        return content

    @model_validator(mode="after")
    def _recorded(self) -> Policy:
        """Check that a limit over all runs has a record, of a site that has a name."""
        if self.epsilon_in_all is not None and self.releases is None:
            raise ValueError("epsilon_in_all needs a record of all runs: name its file in releases")
        if self.releases is not None and SITE in self.releases:
            if self.site_name == "hidden":
                raise ValueError(
                    "releases has the site's name, but site_name is hidden: name a file without {site}"
                )
            if Path(self.releases).name.count(SITE) != 1 or self.releases.count(SITE) != 1:
                raise ValueError("releases can have {site} once, in the name of the file")
        return self

    def budget_of(self, site: str) -> SiteBudget | None:
        """Return the record of a site's releases, with its limit; None without a record."""
        if self.releases is None:
            return None
        file = Path(self.releases.replace(SITE, quote(site, safe="")))
        return SiteBudget(file, Allowance(self.epsilon_in_all, self.delta), site or "this site")

    @classmethod
    def of_profile(cls, profile: str) -> Policy:
        """Return a built-in policy."""
        return cls.model_validate({"profile": profile})

    @property
    def rules(self) -> tuple[str, ...]:
        """The keys that restrict something, with their values, as in a file."""
        free = Policy()
        keys = [key for key in type(self).model_fields if key not in _NO_RULES]
        return tuple(
            _rule(key, getattr(self, key)) for key in keys if getattr(self, key) != getattr(free, key)
        )

    @property
    def name(self) -> str:
        """The profile, and whether other keys change it."""
        free = {"readers": "", "delta": 1e-5, "releases": None}
        changed = self.model_copy(update=free) != Policy.of_profile(self.profile)
        return f"{self.profile}, changed" if changed else self.profile

    def refusal(self, message: Message, allowed_modules: frozenset[str] | None = None) -> Refusal | None:
        """Return why the policy does not allow a message; None if it does, apart from counts and epsilon.

        Parameters
        ----------
        message : Message
            The message, as the host knows it.
        allowed_modules : frozenset of str or None
            Modules of the requests of :attr:`methods`; None if all methods may run.
        """
        if not message.rows:
            return None  # a site without rows reveals nothing
        if message.rows < self.least_rows:
            return Refusal(
                _rule("least_rows", self.least_rows),
                f"the site has {message.rows} row" + "s" * (message.rows > 1),
            )
        if self == _FREE:
            return None
        if not message.known:
            return Refusal(
                f"profile: {self.profile}",
                "neither raydr nor an installed extension defines this request and its noise, so its declaration can be"
                " false",
            )
        if message.method and allowed_modules is not None and message.module not in allowed_modules:
            return Refusal(_rule("methods", self.methods), "the request belongs to another method")
        if message.public or message.stays:
            return None
        if message.extreme and self.extremes == "never" and not message.claimed:
            return Refusal(_rule("extremes", self.extremes), "it bounds the values of single records")
        if message.splits and self.least_count > 1 and not message.claimed:
            return Refusal(
                _rule("least_count", self.least_count), "its cells have fractions of single records"
            )
        return self._refusal_of_granularity(message)

    def _refusal_of_granularity(self, message: Message) -> Refusal | None:
        key = str(message.granularity).replace("-", "_")
        permission = getattr(self, key)
        rule = _rule(key, permission)
        match permission:
            case "never":
                return Refusal(rule, _DESCRIBES[message.granularity])
            case "with-noise" if not message.claimed:
                return Refusal(rule, "no noise with a guarantee covers it")
            case "in-secure-sum" if not message.secure_sites:
                return Refusal(rule, "it is not part of a secure sum, so the server can read it")
            case "in-secure-sum" if message.secure_sites < self.least_sites:
                found = message.secure_sites
                return Refusal(
                    _rule("least_sites", self.least_sites),
                    f"its secure sum has {found} site" + "s" * (found > 1),
                )
        return None

    def refusal_of_count(self, count: float) -> Refusal | None:
        """Return why the policy does not allow a count of this many records; None if it does."""
        if 0 < count < self.least_count:
            return Refusal(
                _rule("least_count", self.least_count),
                f"it counts {short_number(count)} record" + "s" * (count != 1),
            )
        return None

    def refusal_of_epsilon(self, epsilon: float) -> Refusal | None:
        """Return why the policy does not allow a run to cost this much; None if it does."""
        if self.epsilon is None or epsilon <= self.epsilon * (1.0 + 1e-9):
            return None
        return Refusal(
            _rule("epsilon", self.epsilon),
            f"with it, the run costs epsilon {epsilon:.4g} at delta {short_number(self.delta)}",
        )

    def refusal_without_noise(self) -> Refusal | None:
        """Return why the policy does not allow a message without a claim; None if no epsilon is limited."""
        for key in ("epsilon", "epsilon_in_all"):
            if getattr(self, key) is not None:
                return Refusal(_rule(key, getattr(self, key)), "no noise with a guarantee covers it")
        return None

    def refusal_of_all_runs(self, why: str) -> Refusal:
        """Return the refusal of a release that the budget of all runs does not allow."""
        return Refusal(_rule("epsilon_in_all", self.epsilon_in_all), why)

    def refusal_of_method(self, method: str) -> Refusal | None:
        """Return why the policy does not allow a method; None if it does."""
        if self.methods is None or method in self.methods:
            return None
        return Refusal(_rule("methods", self.methods), f"the method is {method}")

    def refusal_of_column(self, column: str) -> Refusal | None:
        """Return why the policy does not allow a column; None if it does."""
        if self.columns is None or column in self.columns:
            return None
        return Refusal(_rule("columns", self.columns), f"the run uses the column {column!r}")

    def refusal_of_words(self, column: str, words: int) -> Refusal | None:
        """Return why the policy does not allow a column with this many words; None if it does."""
        if self.most_words is None or words <= self.most_words:
            return None
        return Refusal(_rule("most_words", self.most_words), f"the column {column!r} has {words} words")


_FREE = Policy()
_LEAST_COUNT = "least_count: "
_NO_RULES = ("profile", "delta", "releases", "readers")
_DESCRIBES = {
    Granularity.PER_RECORD: "it describes single records",
    Granularity.PER_CLIENT: "it describes this site alone",
    Granularity.AGGREGATE: "it is a summand of an aggregate",
}


def _rule(key: str, value: Any) -> str:
    """Return a key and its value as in a file."""
    written = f"[{', '.join(value)}]" if isinstance(value, tuple) else str(value)
    return f"{key}: {written}"


@dataclass(frozen=True)
class AppliedPolicy:
    """The policy that a site applied in a run: its name and the rules that restrict something.

    >>> AppliedPolicy("north", "open, changed", ("least_rows: 9", "least_count: 4")).least_count
    4
    """

    site: str
    policy: str
    rules: tuple[str, ...]

    @property
    def least_count(self) -> int:
        """Value of the rule about counts of records; 1 without one."""
        found = [rule.removeprefix(_LEAST_COUNT) for rule in self.rules if rule.startswith(_LEAST_COUNT)]
        return max((int(value) for value in found if value.isdecimal()), default=1)


@dataclass(frozen=True)
class SitePolicy:
    """The policies that one site applies: its own, and one for all sites. Every rule of each holds.

    Attributes
    ----------
    policies : tuple of Policy
        The policies; none allows everything.
    site : str
        Name of the site, for errors.
    modules : frozenset of str or None
        Modules of the requests of the methods that may run; None for all.
    """

    policies: tuple[Policy, ...] = ()
    site: str = ""
    modules: frozenset[str] | None = None

    def refusal(self, message: Message) -> Refusal | None:
        """Return why the policies do not allow a message; None if they do."""
        return self.first(Policy.refusal, message, self.modules)

    def first(self, check: Callable[..., Refusal | None], *arguments: Any) -> Refusal | None:
        """Return the first refusal by a check of :class:`Policy`, with its policy's name; None if none refuses."""
        for policy in self.policies:
            found = check(policy, *arguments)
            if found is not None:
                return replace(found, policy=policy.name)
        return None

    def sentence(self, refusal: Refusal, what: str) -> str:
        """Return an error that names the site, the policy, the rule and what it does not allow."""
        site = f"site {self.site!r}" if self.site else "the site"
        return (
            f"The policy of {site} ({refusal.policy}) has the rule {refusal.rule!r}, which does not allow {what}:"
            f" {refusal.why}"
        )

    @property
    def budgets(self) -> tuple[tuple[Policy, SiteBudget], ...]:
        """The policies that keep a record of all runs, and the record of this site."""
        found = [(policy, policy.budget_of(self.site)) for policy in self.policies]
        return tuple((policy, budget) for policy, budget in found if budget is not None)

    @property
    def name(self) -> str:
        """Names of the policies."""
        return " and ".join(dict.fromkeys(policy.name for policy in self.policies)) or "open"

    @property
    def rules(self) -> tuple[str, ...]:
        """Every rule that restricts something."""
        return tuple(dict.fromkeys(rule for policy in self.policies for rule in policy.rules))

    @property
    def applied(self) -> AppliedPolicy:
        """The policy for the run's files."""
        return AppliedPolicy(self.site, self.name, self.rules)

    @property
    def methods(self) -> tuple[str, ...] | None:
        """Methods that may run; None for all."""
        named = [policy.methods for policy in self.policies if policy.methods is not None]
        return tuple(name for name in named[0] if all(name in each for each in named)) if named else None

    @property
    def least_count(self) -> int:
        """Least number of records in a cell or with a word."""
        return max((policy.least_count for policy in self.policies), default=1)

    @property
    def least_shown(self) -> int:
        """Least number of records behind a figure about this site that a run folder shows."""
        return max((max(policy.least_rows, policy.least_count) for policy in self.policies), default=1)

    @property
    def least_sites(self) -> int:
        """Least number of sites with a column or a word."""
        return max((policy.least_sites for policy in self.policies), default=1)

    @property
    def tells_name(self) -> bool:
        """Whether the run may show the site's name."""
        return all(policy.site_name == "told" for policy in self.policies)
