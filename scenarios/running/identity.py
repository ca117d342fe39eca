"""What a run is made from: by which a checkpoint is known to be of this run and of no other."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
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
from raydr.scenarios.running.client_data import Holdings
from raydr.scenarios.schema.scenario import Scenario
from raydr.settings import path_mark

_NAMED = 5
"""Differences that are named; of more, their number."""


def origin_of(scenario: Scenario) -> Origin:
    """Return where the secrets of a scenario's runs come from."""
    return Origin(scenario.resolved().privacy.secret, is_optional=not scenario.hides_by_secrets)


@dataclass(frozen=True)
class Identity:
    """What a run's bits follow from.

    Attributes
    ----------
    raydr : str
        Version, and those of packages that add to it.
    scenario : mapping of dotted key to value
        Every setting, paths resolved, but for those of ``runtime`` that change no bit, ``runtime.quorum``, under which
        a run draws new noise whenever it starts, and the budget, which may end a run and changes nothing else.
    data : mapping of name to fingerprint
        Each client's rows, the public rows and those held out, and what the table says of its rows beside them.
    paths : tuple of str
        Keys of the scenario that say where files lie.
    secret : str
        By which the secret is known again that fingerprints are keyed with: without it they tell nothing of the rows.
    """

    raydr: str
    scenario: Mapping[str, Any]
    data: Mapping[str, str]
    paths: tuple[str, ...] = ()
    secret: str = ""

    @classmethod
    def of(cls, scenario: Scenario, holdings: Holdings, device: Found = "cpu") -> Identity:
        """Return what a scenario with these data is made from, where this computes its large products."""
        settings = scenario.resolved().model_dump(mode="json")
        # Clients that compute as one do so with other bits.
        settings["runtime"] = {"batch_clients": scenario.runtime.batch_clients}
        del settings["privacy"]["epsilon_max"]
        if device != "cpu":  # what a GPU was found for by itself goes on where there is one
            settings["runtime"]["device"] = device
        data = {
            f"the rows of client {name}": part.fingerprint if isinstance(part, Site) else fingerprint(part)
            for name, part in zip(holdings.names, holdings.parts, strict=True)
        }
        data["the rows' identities"] = fingerprint(np.asarray(holdings.ids))
        data["which client holds which row"] = fingerprint(holdings.client_of_row)
        data["the features' names"] = _digest(holdings.feature_names)
        labels = None if holdings.labels is None else fingerprint(holdings.labels)
        data["the labels"] = _digest([labels, holdings.label_names])
        data["the public rows"] = "" if holdings.public is None else fingerprint(holdings.public)
        if holdings.held_out is not None:
            new = holdings.held_out
            labels = None if new.labels is None else fingerprint(new.labels)
            data["the rows held out"] = _digest([fingerprint(new.rows), fingerprint(new.ids), labels])
        origin = origin_of(scenario)
        keyed = {name: origin.fingerprint(found) for name, found in data.items()}
        return cls(_version(), dict(_flat(settings)), keyed, _paths(scenario), origin.fingerprint(""))

    @property
    def study(self) -> str:
        """Digest of what the messages' bits follow from, wherever files lie and however the run is called and judged.

        Runs that differ in it have other secrets.
        """
        apart = ("name", "compare", "metrics", "audit")
        settings = {
            key: value
            for key, value in self.scenario.items()
            if key.partition(".")[0] not in apart and key not in self.paths
        }
        return _digest([self.raydr, settings, self.data])

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "raydr": self.raydr,
            "scenario": dict(self.scenario),
            "data": dict(self.data),
            "paths": list(self.paths),
            "secret": self.secret,
        }

    def require(self, was: Identity) -> None:
        """Refuse to go on with a run that was made from something else.

        Raises
        ------
        OutputError, ScenarioError, RunError, DataError
            If it was another version, scenario, secret or data; with the names of what differs.
        """
        if was.raydr != self.raydr:
            raise OutputError(
                f"The interrupted run is of raydr {was.raydr}, and this is raydr {self.raydr}: resume it with the raydr"
                " that began it, or start it anew."
            )
        changed = [
            f"{key} was {_shown(was.scenario, key)} and is {_shown(self.scenario, key)}"
            for key in _different(was.scenario, self.scenario)
        ]
        if changed:
            raise ScenarioError(
                f"scenario.yaml is not that of the interrupted run any more: {listed(changed, _NAMED)}. A run goes on"
                " as it began: change that back, or start a new run from the changed scenario."
            )
        if was.secret != self.secret:
            raise Origin(self.scenario["privacy.secret"]).missing()
        others = _different(was.data, self.data)
        if others:
            raise DataError(
                f"The data are not those of the interrupted run any more: {listed(others, _NAMED)} changed. Bring the"
                " data back, or start the run anew."
            )


def _version() -> str:
    added = " and ".join(f"{name} {number}" for name, number in sorted(extensions().items()))
    return version("raydr") + (f" with {added}" if added else "")


def _paths(settings: BaseModel, prefix: str = "") -> tuple[str, ...]:
    """Dotted keys that name files of this machine or of others."""
    found: tuple[str, ...] = ()
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            found += _paths(value, f"{prefix}{name}.")
        elif path_mark(field) is not None:
            found += (f"{prefix}{name}",)
    return found


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by dotted key; lists are values."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _different(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Keys whose values differ, or that one of the two lacks."""
    nothing = object()
    return [key for key in dict.fromkeys([*one, *other]) if one.get(key, nothing) != other.get(key, nothing)]


def _shown(settings: Mapping[str, Any], key: str) -> str:
    if key not in settings:
        return "not there"
    text = json.dumps(settings[key], ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _digest(content: Any) -> str:
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()
