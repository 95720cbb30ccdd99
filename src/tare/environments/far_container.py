"""A container on another machine: its runc, its root read-only, its network.

The container is held by a runc in the foreground, which the connection started. Nobody ends it but
the keeper of the folder (`far/folder.py`), which kills whatever carries the folder's mark, and then
does what we owe: have runc forget the container, and remove its control groups.
"""

from __future__ import annotations

import itertools
import json
import secrets
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from tare.command import PATH
from tare.environments import Site, oci
from tare.environments.on_far import ASK_TIMEOUT_S, FarServer, InsideFar
from tare.errors import TrialError

if TYPE_CHECKING:
    from tare.far import Connection, Folder

__all__ = ["started"]

_START_TIMEOUT_S = 60.0
_HOSTS_CPU_GROUP = "/sys/fs/cgroup/cpu"
_LOOK = f"""
[ "$(id -u)" = 0 ] || echo 'lacks root'
command -v runc >/dev/null || echo 'lacks runc'
[ -e {_HOSTS_CPU_GROUP}/cpu.rt_runtime_us ] && echo 'schedules by group'
printf 'version\t%s\n' "$(runc --version | head -n 1)"
for path in /*; do
  if [ -L "$path" ]; then
    printf 'link\t%s\t%s\n' "$path" "$(readlink "$path")"
  elif [ -d "$path" ]; then
    printf 'folder\t%s\n' "$path"
  fi
done
"""
_LAY_OUT = """
bundle=$1 && shift && mkdir -p "$bundle/rootfs" "$bundle/state" && cd "$bundle" || exit
cat >config.json || exit
while [ $# -gt 1 ]; do ln -s "$2" "rootfs/$1" && shift 2 || exit; done
"""
_HOLD = """
cd "$1" || exit
runc --root state run --bundle . --pid-file pid "$2" </dev/null &
while [ ! -e pid ] && [ -e "/proc/$!/exe" ]; do sleep 0.01; done
[ -e pid ] && echo up
wait $!
"""
# A kernel that budgets real-time by group lets nothing in a new group run under SCHED_FIFO. So the
# program waits until it has been put into the group of whoever starts it; see container.py.
_EXEC = """
cd "$1" && printf %s "$6" >"process-$3" && mkfifo "go-$3" && exec 3<>"go-$3" || exit
runc --root state exec --process "process-$3" --pid-file "pid-$3" "$2" <&3 3<&- &
while [ ! -e "pid-$3" ] && [ -e "/proc/$!/exe" ]; do sleep 0.01; done
if [ -e "pid-$3" ]; then
  pid=$(cat "pid-$3")
  [ -z "$4" ] || echo "$pid" >"$4/cgroup.procs"
  [ -z "$5" ] || echo "{\\"pid\\": $pid}"
  echo go >&3
fi
wait $!
"""
_AWAIT_GO = 'read -r go && exec "$@"'
_FORGET = """
cd {bundle} && runc --root state delete --force {name} >/dev/null 2>&1
for again in 1 2 3 4 5 6 7 8 9 10; do
  left=
  for group in /sys/fs/cgroup/{name} /sys/fs/cgroup/*/{name}; do
    [ ! -d "$group" ] || rmdir "$group" 2>/dev/null || left=yes
  done
  [ "$left" ] || break
  sleep 0.1
done
"""


def started(site: Site, connection: Connection, folder: Folder) -> InsideFar:
    """Start a container there that waits, to which servers are added; it goes with the folder.

    Raises:
        TrialError: that machine lacks what it takes, or runc refused.
    """
    said = connection.run(["env", f"PATH={PATH}", "sh", "-c", _LOOK], ASK_TIMEOUT_S).stdout
    rows = [line.split("\t") for line in said.decode(errors="replace").splitlines()]
    flags = {row[0] for row in rows}
    for lack, remedy in (
        ("runc", "apt-get install runc there"),
        ("root", "log in as root there"),
    ):
        if f"lacks {lack}" in flags:
            raise TrialError(f"{connection.target} holds no container: it lacks {lack}", remedy)
    root = oci.Root(
        tuple(PurePosixPath(row[1]) for row in rows if row[0] == "folder"),
        {row[1].lstrip("/"): row[2] for row in rows if row[0] == "link"},
    )
    return _InsideContainer(
        site,
        connection,
        folder,
        root,
        version=next(row[1] for row in rows if row[0] == "version").replace("version ", ""),
        with_the_host=site.placement.fifo is not None and "schedules by group" in flags,
    )


class _InsideContainer(InsideFar):
    def __init__(
        self,
        site: Site,
        connection: Connection,
        folder: Folder,
        root: oci.Root,
        *,
        version: str,
        with_the_host: bool,
    ) -> None:
        super().__init__(site, connection, folder)
        self._name = f"tare-{site.leftovers.run_id}-{secrets.token_hex(2)}"
        self._bundle = f"{folder.path}/container"
        self._cpu_group = _HOSTS_CPU_GROUP if with_the_host else ""
        self._count = itertools.count()
        mark, _, value = folder.mark.partition("=")
        self._env = {"PATH": PATH, "HOME": "/", "LC_ALL": "C.UTF-8", mark: value}
        folder.owe(_FORGET.format(bundle=shlex.quote(self._bundle), name=self._name))
        self._hold(root)
        self.facts = {
            **self.facts,
            "runtime": version,
            "root": "the far machine's, read-only",
            "capabilities": list(oci.CAPABILITIES),
            "seccomp": "none",
            "cpu_group": "the host's" if with_the_host else "its own",
        }

    def start(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> FarServer:
        words = self._exec(argv, env, tell_pid=True)
        far = self._connection.start(words, name=argv[0])
        return FarServer(self._connection, far, argv[0], self.interface)

    def run(self, argv: Sequence[str], timeout_s: float) -> str:
        return self._ran(self._exec(argv, None, tell_pid=False), timeout_s, argv[0])

    def _hold(self, root: oci.Root) -> None:
        """Lay the bundle out, and have a runc hold the container."""
        there = PurePosixPath(self._folder.path)
        init = oci.process(oci.WAITS, self._env)
        config = oci.configuration(self._name, root, init=init, writable=(there,))
        links = [word for link in root.links.items() for word in link]
        lay_out = ["sh", "-c", _LAY_OUT, "sh", self._bundle, *links]
        self._ran_with(lay_out, json.dumps(config).encode())
        far = self._connection.start(self._script(_HOLD, self._name), name="runc")
        if far.line(_START_TIMEOUT_S).strip() != b"up":
            words = far.finished(ASK_TIMEOUT_S).stderr.strip()[-1000:]
            raise TrialError(f"runc starts no container on {self._connection.target}: {words}")

    def _ran_with(self, words: Sequence[str], stdin: bytes) -> None:
        done = self._connection.run(words, ASK_TIMEOUT_S, stdin)
        if done.code != 0:
            raise TrialError(
                f"cannot write a container's bundle on {self._connection.target}:"
                f" {done.stderr.strip()}",
                "make room there",
            )

    def _exec(
        self, argv: Sequence[str], env: Mapping[str, str] | None, *, tell_pid: bool
    ) -> list[str]:
        """Say how a process is added to the container."""
        waiting = ("sh", "-c", _AWAIT_GO, "sh", *self._words(argv, env))
        process = json.dumps(oci.process(waiting, self._env))
        tell = "yes" if tell_pid else ""
        return self._script(
            _EXEC, self._name, str(next(self._count)), self._cpu_group, tell, process
        )

    def _script(self, script: str, *words: str) -> list[str]:
        mark = self._folder.mark
        return ["env", mark, f"PATH={PATH}", "sh", "-c", script, "sh", self._bundle, *words]
