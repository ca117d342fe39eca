"""Reading of a site's policy: a YAML file, or the name of a built-in policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from raydr.documents import MEGABYTE, DocumentError, parse_yaml, read_limited
from raydr.errors import ScenarioError, did_you_mean
from raydr.privacy.policy import PROFILES, Policy

_KEYS = tuple(Policy.model_fields)


def read_policy(source: str) -> Policy:
    """Return the policy in a file, or the built-in policy of this name.

    Raises
    ------
    ScenarioError
        If there is none, or a key or value is invalid; the message names each.
    """
    path = Path(source).expanduser()
    if source in PROFILES and not path.is_file():
        return Policy.of_profile(source)
    try:
        content = parse_yaml(read_limited(path, MEGABYTE).decode("utf-8"))
    except FileNotFoundError:
        raise ScenarioError(
            f"There is no policy {source!r}{did_you_mean(source, PROFILES)}: give a YAML file, or a built-in policy:"
            f" {', '.join(PROFILES)}."
        ) from None
    except DocumentError as error:
        raise ScenarioError(f"The policy {source} is not valid YAML: {error}.") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ScenarioError(f"Cannot read the policy {source}: {reason}.") from None
    policy = policy_of(content, source)
    if policy.releases is None:
        return policy
    file = path.absolute().parent / Path(policy.releases).expanduser()
    return policy.model_copy(update={"releases": str(file)})


def policy_of(content: Any, source: str) -> Policy:
    """Return the policy with this content; ``source`` names it in errors.

    Raises
    ------
    ScenarioError
        If a key or value is invalid.
    """
    if content is None or not isinstance(content, dict):
        raise ScenarioError(
            f"The policy {source} has no keys: write for example `profile: datashield` or `per_record: never`."
        )
    wrong = [
        f"{key} is {str(value).lower()}, expected a number"
        for key, value in content.items()
        if isinstance(value, bool) and key in _KEYS
    ]
    if not wrong:
        try:
            return Policy.model_validate(content)
        except ValidationError as error:
            wrong = [_clause(details) for details in error.errors(include_url=False)]
    raise ScenarioError(f"The policy {source} cannot be used: {'; '.join(wrong)}.")


def _clause(details: Any) -> str:
    """Return what is wrong with one key, and what it can be."""
    message = details["msg"].removeprefix("Value error, ")
    if not details["loc"]:  # about several keys
        return str(message)
    key, *inner = map(str, details["loc"])
    if details["type"] == "extra_forbidden":
        return f"unknown key {key!r}{did_you_mean(key, _KEYS)}, expected one of {', '.join(_KEYS)}"
    where = ".".join([key, *inner])
    if details["type"] == "literal_error":
        near = did_you_mean(str(details["input"]), [word.strip("'") for word in _options(details)])
        return f"{where} is {details['input']!r}{near}, expected {details['ctx']['expected']}"
    return f"{where} is {details['input']!r}: {message[0].lower()}{message[1:]}"


def _options(details: Any) -> list[str]:
    return str(details["ctx"]["expected"]).replace(" or ", ", ").split(", ")
