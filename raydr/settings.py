"""Settings: validated, immutable, and refusing what they do not know."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Base of every part of a scenario, a method's own settings included."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
