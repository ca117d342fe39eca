"""Identity of a run: settings and fingerprints of data that a checkpoint must match."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from raydr.arrays import fingerprint
from raydr.data import Site
from raydr.device import Found
from raydr.errors import DataError, OutputError, ScenarioError
from raydr.plain import listed
from raydr.privacy.secrets import Origin
from raydr.registry import extensions
from raydr.scenarios.running.client_data import ClientData
from raydr.scenarios.running.prior import prior_digest
from raydr.scenarios.schema.scenario import Scenario
from raydr.settings import path_mark

_NAMED = 5
"""Maximum number of differences that an error lists."""


def origin_of(scenario: Scenario) -> Origin:
    """Return the origin of the secrets of a scenario's runs."""
    return Origin(scenario.resolved().privacy.secret, is_optional=not scenario.hides_by_secrets)


@dataclass(frozen=True)
class Identity:
    """Everything that determines the result of a run.

    Attributes
    ----------
    raydr : str
        Version of raydr and of packages that extend it.
    scenario : mapping of dotted key to value
        All settings, with resolved paths. Not included: settings of ``runtime`` that do not change the result, the
        budget and the sites' policies, which can only end a run, and ``network``, which is an account. Also not
        ``runtime.quorum``: with it, each start draws new noise.
    data : mapping of name to fingerprint
        Fingerprints of each client's rows, public and held-out rows, identities, owners, feature names and labels.
    paths : tuple of str
        Keys of the scenario that name files.
    secret : str
        Fingerprint of the secret that keys all fingerprints. Without the secret, they reveal nothing about rows.
    """

    raydr: str
    scenario: Mapping[str, Any]
    data: Mapping[str, str]
    paths: tuple[str, ...] = ()
    secret: str = ""

    @classmethod
    def of(cls, scenario: Scenario, client_data: ClientData, device: Found = "cpu") -> Identity:
        """Return the identity of a run of the scenario with these data on this device."""
        settings = scenario.resolved().model_dump(mode="json")
        # Clients that are trained together have results that differ in rounding.
        settings["runtime"] = {"batch_clients": scenario.runtime.batch_clients}
        if scenario.runtime.portable:  # such processes round differently
            settings["runtime"]["portable"] = True
        del settings["privacy"]["epsilon_max"], settings["clients"]["policy"], settings["network"]
        for site in settings["clients"]["sites"] + settings["clients"]["joined"]:
            del site["policy"]
        # Without defaults of newer keys, so that digests are those of runs before them.
        newer: list[tuple[str, str, Any]] = [
            ("data", "metric", "euclidean"),
            ("data", "codebook", []),
            ("data", "target_weight", 0.0),
            ("data", "time", None),
            ("clients", "without", []),
            ("clients", "joined", []),
            ("clients", "deployed", []),
        ]
        if scenario.method.kind in ("fed-tsne", "fed-umap"):
            newer.append(("method", "dimensions", 2))
        if scenario.method.kind in ("fed-tsne", "fed-umap", "fed-spectral", "sense"):
            newer.append(("method", "preset", None))
        if scenario.method.kind == "fedne":
            newer.append(("method", "weight_decay", 0.0))
        for section, key, default in newer:
            if settings[section][key] == default:
                del settings[section][key]
        for key in ("fidelity_rows", "prior"):  # for the same reason
            if not settings[key]:
                del settings[key]
        if device != "cpu":  # a run that found a GPU with device auto resumes on any GPU
            settings["runtime"]["device"] = device
        data = {
            f"the rows of client {name}": part.fingerprint if isinstance(part, Site) else fingerprint(part)
            for name, part in zip(client_data.names, client_data.parts, strict=True)
        }
        data["the rows' identities"] = fingerprint(np.asarray(client_data.ids))
        data["which client holds which row"] = fingerprint(client_data.client_of_row)
        data["the features' names"] = _digest(client_data.feature_names)
        labels = None if client_data.labels is None else fingerprint(client_data.labels)
        data["the labels"] = _digest([labels, client_data.label_names])
        if client_data.times is not None:
            data["the periods"] = _digest(
                [fingerprint(client_data.times.period_of_row), client_data.period_names]
            )
        data["the public rows"] = "" if client_data.public is None else fingerprint(client_data.public)
        if scenario.prior is not None:
            data["the earlier run"] = prior_digest(Path(scenario.prior))
        if client_data.public_targets is not None:
            data["the public rows' labels"] = fingerprint(client_data.public_targets)
        if client_data.held_out is not None:
            new = client_data.held_out
            labels = None if new.labels is None else fingerprint(new.labels)
            data["the rows held out"] = _digest([fingerprint(new.rows), fingerprint(new.ids), labels])
        origin = origin_of(scenario)
        keyed = {name: origin.fingerprint(found) for name, found in data.items()}
        return cls(_version(), dict(_flat(settings)), keyed, _paths(scenario), origin.fingerprint(""))

    @property
    def study(self) -> str:
        """Digest of everything that determines the messages; not of paths, the name, metrics or the audit.

        Runs with different digests have different secrets. ``data`` stands for the content of files.
        """
        apart = ("name", "compare", "metrics", "audit")
        settings = {
            key: [site["name"] for site in value or ()] if key == "clients.sites" else value
            for key, value in self.scenario.items()
            if key.partition(".")[0] not in apart and key not in self.paths
        }
        return _digest([self.raydr, settings, self.data])

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a JSON file."""
        return {
            "raydr": self.raydr,
            "scenario": dict(self.scenario),
            "data": dict(self.data),
            "paths": list(self.paths),
            "secret": self.secret,
        }

    def require(self, was: Identity) -> None:
        """Check that an interrupted run with identity ``was`` can be resumed.

        Raises
        ------
        OutputError, ScenarioError, RunError, DataError
            If version, scenario, secret or data differ; the message names the differences.
        """
        if was.raydr != self.raydr:
            raise OutputError(
                f"The interrupted run used raydr {was.raydr}, and this is raydr {self.raydr}: resume it with the"
                " version that started it, or start a new run."
            )
        changed = [
            f"{key} was {_shown(was.scenario, key)} and is {_shown(self.scenario, key)}"
            for key in _different(was.scenario, self.scenario)
        ]
        if changed:
            raise ScenarioError(
                f"scenario.yaml was changed after the interruption: {listed(changed, _NAMED)}. Undo the change, or"
                " start a new run with the changed scenario."
            )
        if was.secret != self.secret:
            raise Origin(self.scenario["privacy.secret"]).missing()
        others = _different(was.data, self.data)
        if others:
            raise DataError(
                f"The data have changed since the interruption: {listed(others, _NAMED)}. Restore the data, or start a"
                " new run."
            )


def _version() -> str:
    added = " and ".join(f"{name} {number}" for name, number in sorted(extensions().items()))
    return version("raydr") + (f" with {added}" if added else "")


def _paths(settings: BaseModel, prefix: str = "") -> tuple[str, ...]:
    """Return the dotted keys that name files, on this machine or others."""
    found: tuple[str, ...] = ()
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            found += _paths(value, f"{prefix}{name}.")
        elif path_mark(field) is not None:
            found += (f"{prefix}{name}",)
    return found


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield settings by dotted key; lists are values."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _different(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the keys whose values differ or that only one of the two has."""
    nothing = object()
    return [key for key in dict.fromkeys([*one, *other]) if one.get(key, nothing) != other.get(key, nothing)]


def _shown(settings: Mapping[str, Any], key: str) -> str:
    if key not in settings:
        return "missing"
    text = json.dumps(settings[key], ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _digest(content: Any) -> str:
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()
