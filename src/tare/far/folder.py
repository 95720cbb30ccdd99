"""A folder on the far machine that does not outlive us, nor does anything started under its mark.

A keeper runs there: a small shell script that ends when this side hangs up, or says nothing for a
minute. It then kills every process that carries the mark in its environment, does what else is owed
(`owe`), and removes the folder. So the far machine is clean again whatever becomes of us or of the
network.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from contextlib import AbstractContextManager, suppress
from pathlib import PurePosixPath
from typing import Self

from tare.errors import TrialError
from tare.far.connection import Connection

MARK = "TARE_FAR"
"""Environment variable of every process that is started on a far machine."""

_TIMEOUT_S = 30.0
_PUT_TIMEOUT_S = 600.0
_BEAT_S = 10.0
_RECEIVE = 'mkdir -p "${1%/*}" && cat >"$1" && chmod 755 "$1"'

_KEEPER = """
trap '' HUP PIPE
folder=$(mktemp -d "${TMPDIR:-/tmp}/tare-far-XXXXXXXX") || exit
echo "$folder"
# A byte is a sign of life; the end of input, or too long a silence, is none.
while [ "$(timeout "$2" head -c 1)" ]; do :; done
found=yes
while [ "$found" ]; do
  found=
  for process in /proc/[0-9]*; do
    if grep -qsF "$1" "$process/environ" && kill -KILL "${process#/proc/}" 2>/dev/null; then
      found=yes
    fi
  done
done
for owed in "$folder"/owed-*; do
  [ ! -e "$owed" ] || sh "$owed"
done
rm -rf "$folder" && echo gone
"""


class Folder(AbstractContextManager["Folder"]):
    """A folder on the far machine. Entering makes it; leaving removes it, and waits until it is.

    Args:
        connection: to the far machine.
        silence_s: after so long without a sign of life from here it goes by itself.

    Attributes:
        path: its path there.
        mark: `NAME=VALUE`, to be in the environment of whatever is to go with it.
    """

    def __init__(self, connection: Connection, silence_s: int = 60) -> None:
        self.mark = f"{MARK}={secrets.token_hex(8)}"
        self._connection = connection
        self._silence_s = silence_s
        self._owed = itertools.count()
        self._leaving = threading.Event()
        self._pulse = threading.Thread(target=self._beat, name="tare-ssh-pulse", daemon=True)

    def __enter__(self) -> Self:
        """Make it.

        Raises:
            TrialError: it cannot be made there.
        """
        self._keeper = self._connection.start(
            ["sh", "-c", _KEEPER, "sh", self.mark, str(self._silence_s)]
        )
        self.path = self._keeper.line(_TIMEOUT_S).decode(errors="replace").strip()
        if not self.path:
            words = self._keeper.finished(_TIMEOUT_S).stderr.strip()
            raise TrialError(f"{self._connection.destination} makes no folder for us: {words}")
        self._pulse.start()
        return self

    def put(self, content: bytes, name: str, target: PurePosixPath) -> None:
        """Write an executable file there.

        Args:
            content: of it.
            name: what to call it in messages.
            target: its path there.

        Raises:
            TrialError: it does not fit.
        """
        receive = ["sh", "-c", _RECEIVE, "sh", str(target)]
        done = self._connection.run(receive, _PUT_TIMEOUT_S, content)
        if done.code != 0:
            raise TrialError(
                f"cannot put {name} on {self._connection.destination}: {done.stderr.strip()}",
                f"make room below {PurePosixPath(self.path).parent} there",
            )

    def try_out(self) -> None:
        """See that a program which is put there can be started.

        Raises:
            TrialError: it cannot be put there, or not be started.
        """
        target = PurePosixPath(self.path) / "tried"
        self.put(b"#!/bin/sh\n", "a program", target)
        done = self._connection.run([str(target)], _TIMEOUT_S, name="a program")
        if done.code != 0:
            raise TrialError(
                f"{self._connection.destination} starts no program below {target.parents[1]}:"
                f" {done.stderr.strip()}",
                "if it is mounted noexec, give sessions of ssh there a TMPDIR that is not",
            )

    def owe(self, script: str) -> None:
        """Have a shell script run there in the end, whatever happens. Call it *before* making.

        It runs once every marked process is dead, with nobody to hear it. It must do no harm if
        what it undoes was never made.

        Raises:
            TrialError: it cannot be written, so the thing may not be made.
        """
        target = PurePosixPath(self.path) / f"owed-{next(self._owed)}"
        self.put(script.encode(), "what is to be undone", target)

    def __exit__(self, *raised: object) -> None:
        self._leaving.set()
        self._pulse.join()
        # Where the connection is lost the keeper does it alone, and there is nobody to ask.
        with suppress(TrialError):
            self._keeper.close_input()
            while self._keeper.line(_TIMEOUT_S):
                pass

    def _beat(self) -> None:
        while not self._leaving.wait(_BEAT_S):
            try:
                self._keeper.tell(b".")
            except TrialError:
                return
