"""Values that a run is given and no file may hold: whether they changed is told by digests."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

_COST = {"n": 1 << 14, "r": 8, "p": 1}
"""Of scrypt: some tens of milliseconds and 16 MiB, so that a short value is not soon guessed."""


class Digests(BaseModel):
    """Salted digests of the values of variables."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    salt: str
    """Random, of this result alone."""
    scrypt: Mapping[str, str]
    """Variable -> digest, in hexadecimal digits."""

    @classmethod
    def of(cls, values: Mapping[str, str]) -> Digests:
        """Digest values with a fresh salt."""
        salt = secrets.token_hex(16)
        return cls(salt=salt, scrypt={n: _digest(salt, n, value) for n, value in values.items()})

    def changed(self, values: Mapping[str, str]) -> list[str]:
        """Names of the variables that have another value than when they were digested."""
        return [
            name
            for name, value in values.items()
            if name in self.scrypt and self.scrypt[name] != _digest(self.salt, name, value)
        ]


def _digest(salt: str, name: str, value: str) -> str:
    salted = f"{salt} {name}".encode()
    return hashlib.scrypt(os.fsencode(value), salt=salted, **_COST).hex()
