"""A scenario: sections that satisfy the rules between them."""

from __future__ import annotations

from pydantic import model_validator

from raydr.scenarios.schema.rules import RULES
from raydr.scenarios.schema.sections import Sections


class Scenario(Sections):
    """A complete simulation. The same scenario gives the same result bit for bit."""

    @model_validator(mode="after")
    def _by_the_rules(self) -> Scenario:
        for rule in RULES:
            problem = rule(self)
            if problem is not None:
                raise ValueError(problem)
        return self
