"""The factors of services, and what their sessions share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast, get_args

from tare.errors import UsageError
from tare.levels import Factor
from tare.workloads import rows
from tare.workloads.command.rows import CommandSettings, RunLevels, line, text

AT_THE_TOP = ("ready", "setup", "prepare")
"""Settings that may also stand at the top of an experiment file."""

_BRACES = " {address} and {port} stand for where it serves, {threads} for a level of `threads`."


class ServiceLevels(RunLevels):
    """The factors of every service."""

    environment = rows.environment("Where the server runs")
    server = line("What serves, in the foreground: names of the lines of `server`." + _BRACES)
    client = line("What asks, on the host: names of the lines of `client`." + _BRACES)
    link = rows.LINK


Kind = Literal["tcp", "http", "output", "command"]


@dataclass(frozen=True)
class Ready:
    """How it is told that a server can be asked.

    Attributes:
        kind: by a connection, an answer 200, a line that it writes, or a program that ends well.
        what: the path, the regular expression or the command line; empty of a connection.
    """

    kind: Kind
    what: str = ""

    @staticmethod
    def parse(written: object) -> Ready:
        """Read what `str` writes.

        Raises:
            UsageError: it is none of the forms.
        """
        kind, _, what = str(written).partition(" ")
        if kind not in get_args(Kind) or (kind == "tcp") == bool(what.strip()):
            raise UsageError(
                f"{written!r} tells of no server that it is ready: write tcp, http /PATH,"
                " {output: REGEX} or {command: LINE}"
            )
        if kind == "http" and not re.fullmatch("/[!-~]*", what):
            raise UsageError(
                f"{what!r} is no path of HTTP: it begins with /, and other letters than ASCII's"
                " stand as %C3%BC"
            )
        if kind == "output":
            try:
                re.compile(what)
            except re.error as error:
                raise UsageError(f"{what!r} is no regular expression: {error}") from error
        return Ready(cast("Kind", kind), what)

    def __str__(self) -> str:
        """As `parse` reads it."""
        return f"{self.kind} {self.what}".strip()


class ServiceSettings(CommandSettings):
    """What sessions share; those of a command are the client's."""

    port = rows.count("7654", "Where the server listens: what {port} stands for.", most=65535)
    ready = Factor(
        Ready.parse,
        str,
        "tcp",
        "When the server can be asked: tcp (it takes a connection), http /PATH (it answers 200),"
        " {output: REGEX} (it has written it) or {command: LINE} (that ends well, on the host).",
        examples=("tcp", "http /", "output ready to accept", "command pg_isready -h {address}"),
    )
    patience = rows.duration("30 s", "A server that is not ready by then fails the trial.", least=1)
    setup = text(
        "", "Shell line where the server runs, before its first start there.", "initdb -D /tmp/data"
    )
    prepare = text("", "Shell line on the host once the server is ready, such as to load data.")
    as_ = text(
        "", "The user whose rights the server and `setup` have; whoever asked, if empty.", "nobody"
    )
    runs = rows.count("1", "Executions of the client that are measured in a session.", most=10_000)
    warmup = rows.count("0", "Executions of the client before these.", least=0, most=10_000)
    takes = rows.duration("5 s", "About what the client takes: for the plan's estimate only.")
