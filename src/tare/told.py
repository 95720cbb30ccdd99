"""What a program, an environment or a machine said of itself: kept whole, typed where read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    PrivateAttr,
    model_serializer,
    model_validator,
)


class Told(BaseModel):
    """An object of JSON, in the order in which it was said; a subclass types what is read of it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    _whole: Mapping[str, Any] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _keep(cls, said: Any, read: ModelWrapValidatorHandler[Self]) -> Self:
        found = read(said)
        if not isinstance(said, cls):
            found._whole = dict(said)
        return found

    @model_serializer(mode="plain")
    def _as_told(self) -> dict[str, Any]:
        return dict(self._whole)

    def __getitem__(self, key: str) -> Any:
        """What was said by a name; it is told to people alone, unless it has a type as well."""
        return self._whole[key]

    @property
    def whole(self) -> Mapping[str, Any]:
        """All of it, read or not."""
        return self._whole
