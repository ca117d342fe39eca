"""A site's own settings, ``site.yaml``: its name, its file, its policy and its folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, ValidationError

from raydr.documents import MEGABYTE, DocumentError, parse_yaml, read_limited
from raydr.errors import ScenarioError, did_you_mean
from raydr.privacy.node_keys import read_nodes, read_private_key
from raydr.privacy.policy import PROFILES
from raydr.privacy.secrets import Secret, kept_secret
from raydr.settings import LocalPath, PathMark, Settings

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey


class SiteSettings(Settings):
    """Settings of a site in deployed runs. Relative paths start at the folder of ``site.yaml``."""

    name: str = Field(min_length=1, description="the site's name, as in the scenario's clients.deployed")
    path: LocalPath = Field(description="the site's file: .csv, .tsv, .parquet, .npy, .npz, .h5ad or .mtx")
    policy: Annotated[str, PathMark(names=tuple(PROFILES))] = Field(
        description="the site's policy: a file, or a built-in one: `open`, `aggregate-only`, `datashield`, `private`"
    )
    folder: LocalPath = Field(
        "raydr-site",
        description="the site's folder: its secret, and a page of each run with the site's own rows",
    )
    scenario: LocalPath | None = Field(
        None,
        description="the scenario that the site agreed to. A run with another one is refused. Default: any",
    )

    key: LocalPath | None = Field(
        None,
        description="the private key of the site's node. It signs the site's public keys and its ledger. Default: none",
    )
    nodes: LocalPath | None = Field(
        None,
        description="the public keys of the nodes of all sites, by name, from their owners. Default: none",
    )

    @property
    def agreed_scenario(self) -> str | None:
        """Text of the scenario that the site agreed to; None if it agrees to any."""
        return None if self.scenario is None else Path(self.scenario).read_text(encoding="utf-8")

    @property
    def node_key(self) -> EllipticCurvePrivateKey | None:
        """Private key of the site's node; None if it has named none."""
        return None if self.key is None else read_private_key(Path(self.key))

    @property
    def node_keys(self) -> dict[str, bytes]:
        """Public keys of the nodes of all sites, in PEM; empty if the site has named none."""
        return {} if self.nodes is None else read_nodes(Path(self.nodes))

    @property
    def secret(self) -> Secret:
        """The site's secret, drawn on first use and kept in its folder."""
        return kept_secret(Path(self.folder) / "secret")


_KEYS = tuple(SiteSettings.model_fields)


def read_site(source: Path | str) -> SiteSettings:
    """Return the settings in a file, with absolute paths.

    Raises
    ------
    ScenarioError
        If the file cannot be read, or a key or value is invalid.
    """
    path = Path(source).expanduser().absolute()
    try:
        content = parse_yaml(read_limited(path, MEGABYTE).decode("utf-8"))
    except DocumentError as error:
        raise ScenarioError(f"{source} is not valid YAML: {error}.") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ScenarioError(
            f"Cannot read {source}: {reason}. Pass the site's settings, such as site.yaml."
        ) from None
    if not isinstance(content, dict):
        raise ScenarioError(f"{source} has no keys: write at least name, path and policy.")
    try:
        site = SiteSettings.model_validate(content)
    except ValidationError as error:
        wrong = [_clause(details) for details in error.errors(include_url=False)]
        raise ScenarioError(f"{source} cannot be used: {'; '.join(wrong)}.") from None
    absolute = {
        key: str(path.parent / Path(value).expanduser())
        for key in ("path", "folder", "scenario", "key", "nodes")
        if (value := getattr(site, key)) is not None
    }
    own = path.parent / Path(site.policy).expanduser()
    if site.policy not in PROFILES or own.is_file():
        absolute["policy"] = str(own)
    return site.model_copy(update=absolute)


def _clause(details: object) -> str:
    """Return what is wrong with one key."""
    assert isinstance(details, dict)
    key = ".".join(map(str, details["loc"]))
    if details["type"] == "extra_forbidden":
        return f"unknown key {key!r}{did_you_mean(key, _KEYS)}, expected one of {', '.join(_KEYS)}"
    if details["type"] == "missing":
        return f"{key} is missing ({SiteSettings.model_fields[key].description})"
    message = str(details["msg"])
    return f"{key} is {details['input']!r}: {message[0].lower()}{message[1:]}"
