"""The file tree that a user's program sees, and with whose rights it runs, in any environment.

What it is, and nothing of how it is made: that is said in `trees/`.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tare import rootless
from tare.command import PATH
from tare.errors import UsageError

OWN = "/.tare"
"""Folder of every tree in which it holds what is Tare's, read-only; `OWN/programs` is the build
directory, wherever that is on the host, and whether or not the user may look there."""

CAPABILITIES = (
    "audit_write", "chown", "dac_override", "fowner", "fsetid", "kill", "net_bind_service",
    "net_raw", "setfcap", "setgid", "setpcap", "setuid",
)  # fmt: skip
"""All that a program of root's keeps; one of another user has none. Neither mounting nor making
devices is among them, nor a new root: by any of these it could leave the tree."""


@dataclass(frozen=True)
class User:
    """Whose rights a program has.

    Attributes:
        uid, gid: by number; a machine need not have a name for them.
        groups: all that the user is in.
        name: for the program's environment.
        home: the same; a path in the tree.
    """

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    name: str = ""
    home: str = "/"

    @staticmethod
    def invoking() -> User:
        """Who asked: under sudo to root not root, but whoever typed that.

        Raises:
            UsageError: sudo's variables hold no numbers.
        """
        uid, gid, groups = os.getuid(), os.getgid(), tuple(os.getgroups())
        asked = {name: os.environ.get(name, "") for name in ("SUDO_UID", "SUDO_GID")}
        # Root of a user namespace is whoever entered it: nobody else can be become there.
        if rootless.is_root() and any(asked.values()):
            try:
                uid, gid = map(int, asked.values())
            except ValueError as error:
                told = ", ".join(f"{name}={value!r}" for name, value in asked.items())
                raise UsageError(f"cannot tell who asked: {told}", "unset both") from error
            groups = (gid,)
        try:
            known = pwd.getpwuid(rootless.STARTED_AS if rootless.is_on() else uid)
        except KeyError:
            return User(uid, gid, groups)
        if uid != os.getuid():
            groups = tuple(os.getgrouplist(known.pw_name, gid))
        return User(uid, gid, groups, known.pw_name, known.pw_dir)

    @staticmethod
    def named(name: str) -> User | None:
        """A user of this machine, by name; None where there is none."""
        try:
            known = pwd.getpwnam(name)
        except KeyError:
            return None
        groups = tuple(os.getgrouplist(known.pw_name, known.pw_gid))
        return User(known.pw_uid, known.pw_gid, groups, known.pw_name, known.pw_dir)

    def environment(self) -> dict[str, str]:
        """Variables by which a program knows its user."""
        name = self.name or str(self.uid)
        return {"HOME": self.home, "USER": name, "LOGNAME": name}

    def takes_on(self, also: Sequence[str] = ()) -> tuple[str, ...]:
        """What starts a program with these rights, and no way to more; it is started by root.

        Args:
            also: capabilities that it has nevertheless.
        """
        groups = f"--groups={','.join(map(str, self.groups))}" if self.groups else "--clear-groups"
        if rootless.is_on():
            groups = "--keep-groups"  # no other can be asked for
        kept = ",".join(f"+{capability}" for capability in (*CAPABILITIES, *also))
        extra = ",".join(("-all", *(f"+{capability}" for capability in also)))
        return (
            # Again, since the kernel forgets it when the user changes.
            "setpriv", "--pdeathsig", "KILL",
            f"--reuid={self.uid}", f"--regid={self.gid}", groups,
            f"--inh-caps={extra}", f"--ambient-caps={extra}",
            f"--bounding-set=-all,{kept}", "--no-new-privs", "--",
        )  # fmt: skip


@dataclass(frozen=True)
class Tree:
    """The file tree that a user's program sees, whatever environment it runs in.

    Attributes:
        root: of this host: "/", or an unpacked image. It is only read: what a program writes goes
            to a layer that is removed when the environment is left.
        cwd: absolute; the folder in which programs start, at the same path as here.
        user: whose rights they have.
        files: how they come to where the program runs. `shared` files are read from the host when
            they are opened; `copied` ones lie in the memory of where it runs.
        programs: for `copied`: what is run, by absolute path or by a name on PATH; each comes with
            the libraries, or the interpreter, that it is started with.
        inputs: for `copied`: files and folders beside these, by absolute path.
        keep: absolute paths whose content is brought back to the host when the environment is left.
        path: where `programs` are looked for, as PATH has it.
    """

    root: Path
    cwd: str
    user: User
    files: Literal["shared", "copied"] = "shared"
    programs: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    path: str = PATH
