"""A user's program in the tree of the host, in every environment that has one."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import platformdirs
import pytest
import reach

from needs import PROGRAMS, needs_root
from tare import environments, mounts
from tare.command import start_time
from tare.environments import Inside, Site, for_plot
from tare.errors import TrialError
from tare.failures import ProcessError
from tare.guests import virtiofs
from tare.leftovers import clean
from tare.testing import traces
from tare.tree import Tree, User
from tare.trees import copied, merged

pytestmark = [pytest.mark.system, needs_root]

CACHE = platformdirs.user_cache_path("tare")
ENVIRONMENTS = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(not kind.availability().available, reason=f"no {name} here"),
    )
    for name, kind in environments.by_name().items()
    if name != environments.FAR
]
ME = User(4321, 4322, (4322, 4323))
PATIENCE_S = 60.0


@contextmanager
def of_mine() -> Iterator[Path]:
    """A folder of the user's, that others may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="trees-") as made:
        Path(made).chmod(0o755)
        mine = Path(made, "a folder, of: mine")
        mine.mkdir()
        os.chown(mine, ME.uid, ME.gid)
        yield mine


@pytest.fixture
def folder() -> Iterator[Path]:
    with of_mine() as mine:
        yield mine


@pytest.fixture
def reachable(tidy_site: Site) -> Iterator[Site]:
    """A site with a scratch folder as a run has one."""
    with tidy_site.leftovers.scratch() as scratch:
        yield replace(tidy_site, scratch=scratch, cache=CACHE)


@dataclass(frozen=True)
class Shared:
    """A tree that tests share: what one writes there, the next one sees."""

    environment: str
    site: Site
    folder: Path
    inside: Inside


OPEN_FILES, STACK_BYTES = 2000, 16 << 20


@pytest.fixture(scope="module", params=ENVIRONMENTS)
def shared(request: pytest.FixtureRequest, site: Site) -> Iterator[Shared]:
    with ExitStack() as stack:
        folder = stack.enter_context(of_mine())
        (folder / "secret").write_text("of root")
        (folder / "secret").chmod(0o600)
        (folder / "of my group").write_text("for us")
        (folder / "of my group").chmod(0o640)
        os.chown(folder / "of my group", 0, ME.groups[1])
        (folder / "mine").write_text("as it was")
        os.chown(folder / "mine", ME.uid, ME.gid)
        below = folder / "below"
        below.mkdir()
        stack.enter_context(site.leftovers.owing("mount", str(below)))
        mounts.mount("none", below, "tmpfs", options="mode=777")
        (below / "on another mount").touch()
        service = stack.enter_context(socket.socket(socket.AF_UNIX))
        service.bind(str(folder / "service"))
        service.listen()
        (folder / "service").chmod(0o666)
        limits = ((resource.RLIMIT_NOFILE, OPEN_FILES), (resource.RLIMIT_STACK, STACK_BYTES))
        for which, soft in limits:
            before = resource.getrlimit(which)
            stack.callback(resource.setrlimit, which, before)
            resource.setrlimit(which, (soft, before[1]))
        scratch = stack.enter_context(site.leftovers.scratch())
        reachable = replace(site, scratch=scratch)
        tree = Tree(Path("/"), str(folder), ME)
        inside = stack.enter_context(entered(request.param, reachable, tree))
        yield Shared(request.param, reachable, folder, inside)


@pytest.fixture
def inside(shared: Shared) -> Inside:
    return shared.inside


def entered(environment: str, site: Site, tree: Tree) -> ExitStack:
    class Entered(ExitStack):
        def __enter__(self) -> Inside:  # type: ignore[override]
            super().__enter__()
            kind = for_plot({"environment": environment})
            return self.enter_context(kind.enter(replace(site, tree=tree)))

    return Entered()


def shell(inside: Inside, script: str) -> str:
    return inside.run(("sh", "-c", script), PATIENCE_S)


def test_it_starts_in_the_users_folder_with_the_users_rights(
    inside: Inside, shared: Shared
) -> None:
    assert shell(inside, "pwd").strip() == str(shared.folder)
    assert shell(inside, "id -u; id -g").split() == [str(ME.uid), str(ME.gid)]
    assert set(shell(inside, "id -G").split()) == {str(group) for group in (ME.gid, *ME.groups)}
    assert "NoNewPrivs:\t1" in shell(inside, "cat /proc/self/status")
    if "the first alone" not in inside.facts["files"]:
        assert shell(inside, "cat 'of my group'") == "for us"


def test_a_guest_whose_files_nobody_serves_says_so(
    reachable: Site, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(virtiofs, "_AT_MNT", ("sh", "-c", "echo I do not serve >&2; exit 3"))
    with (
        pytest.raises(TrialError, match=r"(?s)server of the guest's files ended.*I do not serve"),
        entered("qemu", reachable, Tree(Path("/"), str(folder), ME)),
    ):
        pass


def test_who_serves_a_guests_files_and_ends_with_it_is_not_blamed(
    reachable: Site, folder: Path
) -> None:
    with (
        pytest.raises(TrialError, match=r"^something else$"),
        entered("qemu", reachable, Tree(Path("/"), str(folder), ME)),
    ):
        raise TrialError("something else")


def test_it_sees_no_more_than_that_user_may(inside: Inside) -> None:
    for path in ("secret", "/etc/shadow"):
        with pytest.raises(TrialError, match="Permission denied"):
            inside.run(("cat", path), PATIENCE_S)
    with pytest.raises(TrialError, match="Permission denied"):
        inside.run(("touch", "/etc/mine"), PATIENCE_S)
    connect = "import socket; socket.socket(socket.AF_UNIX).connect('service')"
    with pytest.raises(TrialError, match=r"refused|No such file"):
        inside.run(("/usr/bin/python3", "-c", connect), PATIENCE_S)


def test_it_may_open_as_many_files_as_natively(inside: Inside, shared: Shared) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert shell(inside, "ulimit -Sn; ulimit -Hn").split() == [str(OPEN_FILES), str(hard)]
    opening = "held = [open('/dev/null') for _ in range(1500)]; print(len(held))"
    assert inside.run(("python3", "-c", opening), PATIENCE_S) == "1500\n"
    if shared.environment not in ("qemu", "uml"):  # where it is the guest's kernel's
        assert int(shell(inside, "ulimit -Ss")) << 10 == STACK_BYTES


def test_what_it_writes_is_there_for_the_next_and_never_on_the_host(
    inside: Inside, shared: Shared
) -> None:
    folder = shared.folder
    before = sorted(path.name for path in folder.iterdir())
    shell(inside, "echo anew >mine; echo made >made; mkdir -p /tmp/below/it; rm -f gone")
    assert shell(inside, "cat mine made; ls -d /tmp/below/it") == "anew\nmade\n/tmp/below/it\n"
    assert (folder / "mine").read_text() == "as it was"
    assert sorted(path.name for path in folder.iterdir()) == before
    assert not Path("/tmp/below").exists()


LOADED = """
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void loaded(void) {
  printf("loaded by %d\\n", (int)getuid());
  fflush(stdout);
  creat("FOLDER/made by root", 0600);
}
"""


def test_a_programs_variables_are_obeyed_by_it_alone_and_not_by_what_leads_to_it(
    inside: Inside, shared: Shared
) -> None:
    of_root = shared.folder / "of root"
    of_root.mkdir(mode=0o700)
    tools = shared.folder.parent / "tools"  # no name in PATH has a colon
    tools.mkdir()
    library, app = tools / "loaded.so", tools / "app"
    compiled = ("cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library))
    subprocess.run(compiled, input=LOADED.replace("FOLDER", str(of_root)), text=True, check=True)
    library.chmod(0o755)
    app.write_text("#!/bin/sh\necho ran\n")
    app.chmod(0o755)
    said = inside.run(("true",), PATIENCE_S, {"LD_PRELOAD": str(library)})
    assert said == f"loaded by {ME.uid}\n"
    assert list(of_root.iterdir()) == []

    path = {"PATH": str(tools), "WORDS": "c d\n"}
    assert inside.run(("app",), PATIENCE_S, path) == "ran\n"
    seen = inside.run(("env",), PATIENCE_S, path)
    assert f"PATH={tools}\n" in seen
    assert "WORDS=c d\n\n" in seen
    assert "TARE_GIVEN" not in seen
    assert inside.run(("env",), PATIENCE_S, {"HOME": "/srv"}).splitlines().count("HOME=/srv") == 1


def test_a_program_of_ours_runs_there_too(inside: Inside) -> None:
    assert "elementary operation" in inside.run(("probe/probe", "--help"), PATIENCE_S)
    with inside.start(("probe/probe", "syscall", "--batches", "3")) as running:
        assert running.event(PATIENCE_S)["batches"]


def test_a_server_there_answers_over_the_bridge(inside: Inside, shared: Shared) -> None:
    reach.a_server_answers_and_is_accounted_for(shared.site, inside)


def test_what_is_mounted_below_the_root_is_there_with_a_layer_of_its_own(
    inside: Inside, shared: Shared
) -> None:
    assert shell(inside, "cd below; ls; touch new; ls").splitlines()[-2:] == [
        "new",
        "on another mount",
    ]
    assert [path.name for path in (shared.folder / "below").iterdir()] == ["on another mount"]


def test_a_file_of_the_kernels_is_shown_as_one(
    reachable: Site, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no sysrq-trigger another stands for it."""
    monkeypatch.setattr(merged, "_READ_ONLY", (*merged._READ_ONLY, "version"))
    with entered("native", reachable, Tree(Path("/"), str(folder), ME)) as inside:
        assert "Linux" in shell(inside, "cat /proc/version")


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_names_need_not_be_text_and_links_may_lead_out(
    environment: str, reachable: Site, folder: Path
) -> None:
    odd = folder / os.fsdecode(b"\xff not text\n")
    odd.mkdir()
    (odd / "out").symlink_to("/etc/hostname")
    (odd / "nowhere").symlink_to("/no/such/file")
    with entered(environment, reachable, Tree(Path("/"), str(odd), ME)) as inside:
        assert shell(inside, "cat out") == Path("/etc/hostname").read_text()
        assert "nowhere" in shell(inside, "ls")


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_root_may_do_as_root_but_not_leave_the_tree(
    environment: str, reachable: Site, folder: Path
) -> None:
    with entered(environment, reachable, Tree(Path("/"), str(folder), User(0, 0))) as inside:
        assert shell(inside, "touch /etc/of-root; chown 5:5 /etc/of-root; stat -c %u /etc/of-root")
        assert not Path("/etc/of-root").exists()
        for refused in ("mknod disk b 8 0", "mount -t tmpfs none /mnt", "chroot . true"):
            with pytest.raises(TrialError, match=r"not permitted|permission denied|superuser"):
                shell(inside, refused)
        if not environments.row(environment).own_kernel:
            with pytest.raises(TrialError, match="Read-only"):
                shell(inside, "echo 1 >/proc/sys/kernel/panic")


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_folder_that_is_gone_is_named(environment: str, reachable: Site, folder: Path) -> None:
    tree = Tree(Path("/"), str(folder / "gone"), ME)
    with (
        pytest.raises(TrialError, match="gone, where the program would start, is no folder"),
        entered(environment, reachable, tree),
    ):
        pass


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_full_layer_is_the_programs_error(
    environment: str, reachable: Site, folder: Path
) -> None:
    with reachable.leftovers.owing("mount", str(reachable.scratch)):
        mounts.mount("none", reachable.scratch, "tmpfs", options="size=2m")
        with (
            entered(environment, reachable, Tree(Path("/"), str(folder), ME)) as inside,
            # What a container says of it may find no room either.
            pytest.raises(
                TrialError, match=r"No space left|exit code|ended with code|did not start"
            ),
        ):
            inside.run(("dd", "if=/dev/zero", "of=large", "bs=1M", "count=9"), PATIENCE_S)


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_copied_files_are_the_program_its_libraries_its_inputs_and_nothing_else(
    environment: str, reachable: Site, folder: Path
) -> None:
    (folder / "in" / "deep").mkdir(parents=True)
    os.chown(folder / "in", ME.uid, ME.gid)
    (folder / "in" / "deep" / "file").write_text("deep\n")
    (folder / "in" / "out").symlink_to("/etc/shadow")
    (folder / "not an input").touch()
    script = folder / "script"
    script.write_text("#!/usr/bin/env sh\ncat in/deep/file; ls -a .; ls -d /etc/shadow\n")
    script.chmod(0o755)
    programs = (str(script), "cat", "ls", "touch", "sh")
    inputs = (str(folder / "in"),)
    tree = Tree(Path("/"), str(folder), ME, "copied", programs=programs, inputs=inputs)
    with entered(environment, reachable, tree) as inside:
        assert inside.facts["files"].startswith("copied: ")
        with pytest.raises(TrialError, match=r"/etc/shadow.*No such file"):
            inside.run((str(script),), PATIENCE_S)
        assert shell(inside, "cat in/deep/file; ls -d *") == "deep\nin\nscript\n"
        assert shell(inside, "touch in/more; ls in") == "deep\nmore\nout\n"
        with pytest.raises(TrialError, match="No such file"):
            inside.run(("gzip", "--version"), PATIENCE_S)
        with inside.start(("probe/probe", "syscall", "--batches", "3")) as running:
            assert running.event(PATIENCE_S)["batches"]
    assert not (folder / "in" / "more").exists()


def test_what_is_copied_is_found_on_the_users_path_and_by_what_env_starts(
    reachable: Site, folder: Path
) -> None:
    tools = folder.parent / "tools"  # no name in PATH has a colon
    tools.mkdir()
    for name, first in (("mine", "#!/usr/bin/env -S  LC_ALL=C sh -u"), ("odd", "#!/bin/sh -e'")):
        (tools / name).write_text(f"{first}\necho said\n")
        (tools / name).chmod(0o755)
    path = f"{tools}:/usr/bin:/bin"
    tree = Tree(Path("/"), str(folder), ME, "copied", programs=("mine", "odd", "ls"), path=path)
    with entered("native", reachable, tree) as inside:
        assert inside.run((str(tools / "mine"),), PATIENCE_S) == "said\n"
        assert shell(inside, f"ls {tools}") == "mine\nodd\n"


@pytest.mark.parametrize("files", ["shared", "copied"])
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_root_of_its_own_needs_nothing_of_the_hosts(
    environment: str, files: Literal["shared", "copied"], reachable: Site, folder: Path
) -> None:
    root = folder.parent / "root"
    (root / "bin").mkdir(parents=True)
    (root / "etc").mkdir()
    shutil.copy("/bin/busybox", root / "bin" / "sh")
    (root / "etc" / "secret").write_text("of root")
    (root / "etc" / "secret").chmod(0o600)
    (folder / "mine").write_text("as it was")
    os.chown(folder / "mine", ME.uid, ME.gid)
    tree = Tree(root, str(folder), ME, files, inputs=(str(folder / "mine"),))
    with entered(environment, reachable, tree) as inside:
        assert shell(inside, "pwd; cat mine").removesuffix("as it was").strip() == str(folder)
        assert shell(inside, "ls -A /bin /etc").split() == ["/bin:", "sh", "/etc:", "secret"]
        for refused in ("cat /etc/secret", "echo x >/bin/sh"):
            with pytest.raises(TrialError, match=r"[Pp]ermission denied"):
                shell(inside, refused)
        shell(inside, "echo anew >mine; echo made >made; echo >/tmp/x; echo >/dev/null")
        assert "elementary operation" in inside.run(("probe/probe", "--help"), PATIENCE_S)
    assert (folder / "mine").read_text() == "as it was"
    assert sorted(path.name for path in root.rglob("*")) == ["bin", "etc", "secret", "sh"]


@pytest.mark.parametrize("files", ["shared", "copied"])
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_what_is_kept_comes_back_with_the_users_rights_and_nothing_else(
    environment: str, files: Literal["shared", "copied"], reachable: Site, folder: Path
) -> None:
    (folder / "old").write_text("as it was")
    os.chown(folder / "old", ME.uid, ME.gid)
    keep = (str(folder / "old"), str(folder / "made"))
    programs = ("sh", "mkdir")
    tree = Tree(Path("/"), str(folder), ME, files, programs, inputs=keep[:1], keep=keep)
    with entered(environment, reachable, tree) as inside:
        shell(inside, "echo anew >old; mkdir -p made/deep; echo 1 >made/deep/file; echo >other")
    assert (folder / "old").read_text() == "anew\n"
    assert (folder / "made" / "deep" / "file").read_text() == "1\n"
    assert (folder / "made").stat().st_uid == ME.uid
    assert not (folder / "other").exists()


def test_what_is_kept_overwrites_nothing_that_the_user_could_not(
    reachable: Site, folder: Path
) -> None:
    of_root = folder.parent / "of root"
    of_root.mkdir()
    (of_root / "file").write_text("as it was")
    for script, keep in (
        ("true", of_root / "file"),
        (f"ln -s '{of_root}' way", folder / "way" / "file"),
        ("true", folder / "never made"),
    ):
        tree = Tree(Path("/"), str(folder), ME, keep=(str(keep),))
        with (
            pytest.raises(TrialError, match=r"cannot bring .* back"),
            entered("native", reachable, tree) as inside,
        ):
            shell(inside, script)
    assert (of_root / "file").read_text() == "as it was"


def test_what_cannot_be_copied_is_named(reachable: Site, folder: Path) -> None:
    (folder / "secret").write_text("of root")
    (folder / "secret").chmod(0o600)
    for programs, inputs, said in (
        ((), ("secret",), "Permission denied"),
        ((), ("gone",), "No such file"),
        (("no-such-program",), (), "no program no-such-program"),
    ):
        paths = tuple(str(folder / name) for name in inputs)
        tree = Tree(Path("/"), str(folder), ME, "copied", programs=programs, inputs=paths)
        with pytest.raises(TrialError, match=said), entered("native", reachable, tree):
            pass


@contextmanager
def changing(change: Callable[[], object]) -> Iterator[None]:
    """Somebody else's work, again and again."""
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            change()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_folder_may_change_while_it_is_copied_and_a_file_may_not(
    reachable: Site, folder: Path
) -> None:
    (folder / "log").write_bytes(b"line\n" * (8 << 20))
    tree = Tree(Path("/"), str(folder), ME, "copied", programs=("sh", "ls"))
    for number in range(5000):  # tar is longer about it
        (folder.parent / str(number)).touch()
    with changing(lambda: folder.parent.chmod(0o755)):
        for _ in range(3):
            with entered("native", reachable, tree) as inside:
                assert shell(inside, "ls") == ""
    os.chown(folder / "log", ME.uid, ME.gid)
    grown = replace(tree, inputs=(str(folder / "log"),))
    with (
        changing(lambda: os.utime(folder / "log")),
        pytest.raises(ProcessError, match="log: file changed as we read it"),
        entered("native", reachable, grown),
    ):
        pass


def test_what_packs_too_long_and_says_nothing_has_packed_nothing(
    reachable: Site, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copied, "_TIMEOUT_S", 0.0)
    (folder / "long").touch()
    os.truncate(folder / "long", 1 << 35)  # not packed before it is looked for
    tree = Tree(Path("/"), str(folder), ME, "copied")
    with (
        pytest.raises(ProcessError, match=r"setpriv .* did not end within 0 s"),
        entered("native", reachable, tree),
    ):
        pass


LIFE = """
import sys
from pathlib import Path
from tare.environments import Site, for_plot
from tare.hosts import Hosts
from tare.leftovers import Registry
from tare.placement import Placement
from tare.tree import Tree, User

environment, *folders = sys.argv[1:]
root, programs, cache = map(Path, folders)
with Registry(root) as registry, Hosts(registry) as hosts, registry.scratch() as scratch:
    tree = Tree(Path("/"), "/", User(4321, 4321))
    site = Site(hosts, programs, scratch, cache, registry, Placement(), tree=tree)
    with for_plot({"environment": environment}).enter(site) as inside:
        with inside.start(("sh", "-c", "echo '{}'; exec sleep 1000")) as running:
            running.event(60)
            print("alive", flush=True)
            running.event(1000)
"""


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_after_a_kill_nothing_stays_mounted(
    environment: str, reachable: Site, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    folders = map(str, (root, PROGRAMS, reachable.cache))
    argv = [sys.executable, "-c", LIFE, environment, *folders]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as life:
        mark = f"{life.pid}:{start_time(life.pid)}"
        assert life.stdout is not None
        assert life.stdout.readline() == b"alive\n"
        (run_id,) = [path.name for path in root.iterdir() if path.is_dir()]
        scratch = Path(tempfile.gettempdir(), f"tare-{run_id}")
        assert [mount for mount in mounts.listed() if mount.point.is_relative_to(scratch)]
        life.send_signal(signal.SIGKILL)
    clean(root)
    assert not [mount for mount in mounts.listed() if mount.point.is_relative_to(scratch)]
    assert traces.of_run(run_id, mark) == []
