"""pageshare between two QEMUs of the testbed, as an operator starts it: `receive` and `send`."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare import process
from tare.command import Command
from tare.errors import TrialError, UnavailableError
from tare.pauses import pauses
from tare.stepwise import Stepwise
from tare.wire import Wire
from tare.workloads.migration import certificates, usage

_PORT = 7502
_START_TIMEOUT_S = 120.0
_RECORD_TIMEOUT_S = 30.0
_LISTENING = "waiting for"


def program(programs: Path) -> Path:
    """Return the pageshare that was built beside the native programs.

    Raises:
        UnavailableError: it was not.
    """
    path = programs.parent / "target" / "release" / "pageshare"
    if not path.exists():
        raise UnavailableError(f"pageshare is not built: {path} is missing", "run `make build`")
    return path


@dataclass(frozen=True)
class Scope:
    """A scope's file, made for one testbed."""

    path: Path

    @classmethod
    def make(cls, programs: Path, path: Path) -> Scope:
        """Make a fresh scope."""
        process.run(Command((str(program(programs)), "scope", "testbed", str(path))), 30)
        return cls(path)


class Proxies(Stepwise):
    """Both proxies, ready when entered: the receiver has indexed what it was given.

    Args:
        programs: the build directory.
        wire: whose ends they are at.
        scope: that both are in.
        scratch: a directory of this migration alone.
        send: options of the sender.
        receive: options of the receiver.
        cpus: processors of sender and receiver.
        back: whether they go from the destination to the source.
        tls: directory with both sides' certificates; None goes without TLS.
    """

    def __init__(
        self,
        programs: Path,
        wire: Wire,
        scope: Scope,
        scratch: Path,
        *,
        send: Sequence[str],
        receive: Sequence[str],
        cpus: tuple[Sequence[int], Sequence[int]],
        back: bool = False,
        tls: Path | None = None,
    ) -> None:
        self.outward = f"unix:{scratch.name}/out"
        """Where the source QEMU migrates to, from the folder that `scratch` is in."""
        self.inward = f"unix:{scratch.name}/in"
        """Where the destination QEMU awaits its migration, from there."""
        self.index_ns = 0
        """Processor time of the receiver until it was ready: what its index took."""
        self.index_seconds = 0.0
        self._program = str(program(programs))
        ends = (wire.source_ns, wire.destination_ns)
        self._ends = ends[::-1] if back else ends
        self._address = wire.source_address if back else wire.destination_address
        self._scratch = scratch
        secured = ("--insecure",) if tls is None else ("--tls-dir", str(tls))
        self._common = (*secured, "--scope", str(scope.path))
        self._named = () if tls is None else ("--tls-name", certificates.RECEIVER)
        self._options = (tuple(send), tuple(receive))
        self._cpus = cpus

    def _build(self, stack: ExitStack) -> None:
        """Start both, the receiver first.

        Raises:
            TrialError: one ended, or did not begin to listen.
        """
        send, receive = self._options
        wire = f"tcp:{self._address}:{_PORT}"
        began = time.monotonic()
        self._receiver = self._start(
            stack,
            ("receive", "--listen", wire, "--qemu", self.inward, "--refresh", "0", *receive),
            self._ends[1],
            self._cpus[1],
        )
        self.index_seconds = time.monotonic() - began
        self.index_ns = usage.process_ns(self._receiver.pid) or 0
        self._sender = self._start(
            stack,
            ("send", "--listen", self.outward, "--to", wire, *self._named, *send),
            self._ends[0],
            self._cpus[0],
        )

    def meters(self) -> tuple[usage.Meter, usage.Meter]:
        """Begin to measure sender and receiver."""
        return usage.Meter.start(self._sender.pid), usage.Meter.start(self._receiver.pid)

    def records(self) -> dict[str, Any]:
        """Return what both wrote down of the migration.

        Raises:
            TrialError: one of them did not write in time, or the migration broke.
        """
        found = {}
        for role, running in (("send", self._sender), ("receive", self._receiver)):
            path = self._scratch / f"{role}.json"
            for _ in pauses(_RECORD_TIMEOUT_S):
                if path.exists() and path.read_text().endswith("\n"):
                    break
            else:
                raise TrialError(f"`pageshare {role}` wrote no record: {_said(running)}")
            found[role] = json.loads(path.read_text().splitlines()[0])
            if found[role]["error"]:
                raise TrialError(f"`pageshare {role}` failed: {found[role]['error']}")
        return found

    def records_of_pages(self) -> dict[str, Any]:
        """As `records`, of a migration whose pages went through pageshare.

        Raises:
            TrialError: besides, one of them passed pages on unread, as it finds none.
        """
        found = self.records()
        for role, record in found.items():
            if record["verbatim_bytes"]:
                raise TrialError(
                    f"`pageshare {role}` passed pages on unread, which is no migration through it:"
                    f" {record['verbatim']}",
                    "docs/pageshare/trouble.md tells what hides pages",
                )
        return found

    def last_words(self) -> str:
        """What both said last, for a migration that failed."""
        return f"sender: {_said(self._sender)}; receiver: {_said(self._receiver)}"

    def _start(
        self, stack: ExitStack, argv: tuple[str, ...], netns: str, cpus: Sequence[int]
    ) -> process.Running:
        role = argv[0]
        record = ("--record", str(self._scratch / f"{role}.json"))
        command = Command(
            (self._program, *argv, *self._common, *record),
            netns=netns,
            cpus=tuple(cpus),
            cwd=self._scratch.parent,
        )
        running = stack.enter_context(process.start(command, name=f"pageshare-{role}"))
        for _ in pauses(_START_TIMEOUT_S):
            if _LISTENING in running.stderr():
                return running
            if not running.alive():
                raise TrialError(f"`pageshare {role}` ended: {_said(running)}")
        raise TrialError(f"`pageshare {role}` does not listen: {_said(running)}")


def _said(running: process.Running) -> str:
    return " | ".join(running.stderr().strip().splitlines()[-4:]) or "nothing"
