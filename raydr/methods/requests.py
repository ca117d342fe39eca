"""The modules whose requests a method sends, for a site that allows only some methods."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import cache

from raydr.methods.method import METHODS
from raydr.privacy.policy import Policy, SitePolicy

_ROOM = "raydr.methods."


def site_policy(policies: Sequence[Policy], site: str) -> SitePolicy:
    """Return the policy of a site, with the modules of the requests that it answers."""
    named = SitePolicy(tuple(policies), site)
    return (
        named if named.methods is None else SitePolicy(named.policies, site, request_modules(named.methods))
    )


def request_modules(methods: Iterable[str]) -> frozenset[str]:
    """Return the modules that define these methods, and all modules of methods that they import from."""
    known = [METHODS[kind].settings.__module__ for kind in methods if kind in METHODS]
    return frozenset().union(*map(_reached_from, known))


@cache
def _reached_from(module: str) -> frozenset[str]:
    """Return a module, and the modules of methods from which it or they take a name."""
    found, pending = {module}, [module]
    while pending:
        for value in list(vars(sys.modules[pending.pop()]).values()):
            other = getattr(value, "__module__", None)
            if isinstance(other, str) and _is_of_methods(other, module) and other not in found:
                found.add(other)
                pending.append(other)
    return frozenset(found)


def _is_of_methods(module: str, like: str) -> bool:
    """Whether a module is in the room of methods, or in the package of an extension's module ``like``."""
    package = like.partition(".")[0]
    return module.startswith(_ROOM) if package == "raydr" else module.partition(".")[0] == package
