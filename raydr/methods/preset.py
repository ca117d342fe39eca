"""A preset of a paper's values, which become the defaults of a method's keys."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from raydr.settings import Settings


class Preset(Settings):
    """The key ``preset``: with ``published``, keys that are not given take the values in the class's ``published``."""

    published: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Values of the paper by key. Keys that a subclass lacks are ignored."""

    preset: Literal["published"] | None = Field(
        None, description="published: all keys that are not given take the paper's values"
    )

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_preset(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or given.get("preset") != "published":
            return given
        return {name: value for name, value in cls.published.items() if name in cls.model_fields} | dict(
            given
        )
