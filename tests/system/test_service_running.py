"""Servers that nobody here wrote, asked by clients that nobody here wrote."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import platformdirs
import pytest
from one_trial import one_trial

from needs import needs_root
from tare import environments
from tare.environments import Site
from tare.errors import TrialError
from tare.netns import dwells_in
from tare.undo import processes
from tare.workloads import Measurement

pytestmark = [pytest.mark.system, needs_root]

REDIS: dict[str, Any] = {
    "server": ["redis-server", "--port", "{port}", "--protected-mode", "no", "--save", ""],
    "client": ["redis-benchmark", "-h", "{address}", "-p", "{port}", "-t", "get", "-n", "500",
               "-c", "2", "--csv"],
    "read": {"rps": {"regex": '^"GET","([0-9.]+)"', "unit": "1/s"}},
}  # fmt: skip
NGINX: dict[str, Any] = {
    "server": ["nginx", "-c", "/tmp/nginx.conf"],
    "setup": "mkdir -p /tmp/www; echo hello >/tmp/www/index.html; echo 'daemon off;"
    " worker_processes 1; error_log stderr; events {} http { access_log off; server {"
    " listen {port}; root /tmp/www; } }' >/tmp/nginx.conf",
    "ready": "http /",
    "client": ["wrk", "-t", "1", "-c", "2", "-d", "1", "--latency", "http://{address}:{port}/"],
    "read": {
        "rps": {"regex": "Requests/sec: +([0-9.]+)", "unit": "1/s"},
        "p99": {"regex": " 99% +([0-9.]+)(us|ms|s)", "unit": "us"},
    },
}
POSTGRESQL: dict[str, Any] = {
    "setup": "cd /tmp; PATH=$(echo /usr/lib/postgresql/*/bin):$PATH; initdb -D data -A trust -N -U"
    " tare >/dev/null && echo 'host all all all trust' >>data/pg_hba.conf",
    "server": ["sh", "-c", "exec /usr/lib/postgresql/*/bin/postgres -D /tmp/data -p {port} -k /tmp"
               " -c listen_addresses={address} -c shared_buffers=16MB"],
    "ready": {"command": "pg_isready -q -h {address} -p {port}"},
    "prepare": "pgbench -q -i -s 1 -h {address} -p {port} -U tare postgres",
    "client": ["pgbench", "-n", "-S", "-t", "200", "-h", "{address}", "-p", "{port}", "-U", "tare",
               "postgres"],
    "read": {"tps": {"regex": "tps = ([0-9.]+)", "unit": "1/s"}},
    "session": {"as": "nobody", "patience": "5 min", "timeout": "5 min"},
}  # fmt: skip
MEMCACHED: dict[str, Any] = {
    "server": ["memcached", "-p", "{port}", "-l", "{address}", "-u", "nobody"],
    "client": ["memcaslap", "-s", "{address}:{port}", "-T", "1", "-c", "2", "-x", "500"],
    "read": {"tps": {"regex": "TPS: ([0-9]+)", "unit": "1/s"}},
}
MOSQUITTO: dict[str, Any] = {
    "setup": "printf 'listener {port}\\nallow_anonymous true\\n' >/tmp/mosquitto.conf",
    "server": ["mosquitto", "-c", "/tmp/mosquitto.conf"],
    "ready": {"output": "mosquitto version .* running"},
    "client": ["sh", "-c", "mosquitto_sub -h {address} -p {port} -t a -C 20 -W 50 >got &"
               " until [ -s got ]; do seq 20 | mosquitto_pub -h {address} -p {port} -t a -l"
               " || exit 1; done; wait && cat got"],
    "session": {"expect_output": "^20$"},
}  # fmt: skip
SERVICES = {
    "redis": ("redis-server", REDIS),
    "nginx": ("nginx", NGINX),
    "postgresql": ("pg_isready", POSTGRESQL),
    "memcached": ("memcaslap", MEMCACHED),
    "mosquitto": ("mosquitto", MOSQUITTO),
}


def measured(site: Site, asked: dict[str, Any], place: str = "native") -> Measurement:
    """One trial in an environment."""
    session = {"cwd": "/tmp", "timeout": "60 s", **asked.get("session", {})}
    document = {
        "title": "t", "workload": "service", "baseline": {}, **asked, "session": session,
        "factors": {"environment": place, **asked.get("factors", {})},
    }  # fmt: skip
    return one_trial(document, site)


@pytest.mark.parametrize("name", SERVICES)
def test_services_are_measured(name: str, tidy_site: Site) -> None:
    program, asked = SERVICES[name]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    found = measured(tidy_site, asked)
    assert all(found.values[name] > 0 for name in (*asked.get("read", ()), "wall"))
    assert found.values["server_cpu"] >= 0
    assert any(thread.role == "server" for thread in found.server.threads)
    assert not Path("/tmp/nginx.conf").exists()


@pytest.mark.parametrize("name", [name for name in environments.names() if name != "native"])
def test_a_server_is_asked_wherever_it_runs(name: str, tidy_site: Site) -> None:
    here = environments.named(name).availability()
    if not here.available or name == environments.FAR:
        pytest.skip(here.detail)
    site = replace(tidy_site, cache=platformdirs.user_cache_path("tare"))
    found = measured(site, REDIS, name)
    assert found.values["rps"] > 0
    assert found.values["server_cpu"] >= 0


@pytest.mark.parametrize(
    ("place", "asked"),
    [
        ("container", NGINX),
        ("qemu", NGINX),
        ("qemu", POSTGRESQL),
        ("qemu", {**REDIS, "factors": {"files": "copied"}}),
        ("native", {**REDIS, "factors": {"interference": "host cpu 50 %"}}),
        ("container", {**REDIS, "factors": {"interference": "inside memory 1"}}),
    ],
    ids=["nginx", "nginx-guest", "postgresql-guest", "copied", "host", "inside"],
)
def test_services_elsewhere_and_beside_others(
    place: str, asked: dict[str, Any], tidy_site: Site
) -> None:
    here = environments.named(place).availability()
    if not here.available:
        pytest.skip(here.detail)
    site = replace(tidy_site, cache=platformdirs.user_cache_path("tare"))
    found = measured(site, asked, place).values
    assert all(found[name] > 0 for name in asked["read"])
    assert found.get("p99", 1001) > 1000  # ns, whether it was told in us or ms


SLEEPY = ["sh", "-c", "echo begun; exec sleep 60"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"server": ["sh", "-c", "echo no licence; exit 4"]},
         "the server `sh -c .*` ended with exit code 4; its last words: no licence"),
        ({"server": ["sh", "-c", "sleep 60 &"]}, "the server .* ended$"),
        ({"server": ["sh", "-c", "setsid sleep 600 & echo begun; wait"], "client": "true"},
         "the server .* put a process into the background, which went on without it"),
        ({"server": ["no-such-server"]}, "ended with exit code 127; .*no-such-server: not found"),
        ({"ready": "tcp"}, r"was not ready \(tcp\) at 10.77.0.2 port 7654 within .*words: begun"),
        ({"ready": {"command": "sleep 6000"}},
         r"was not ready \(command sleep 6000\) .* within 2 s"),
        ({"server": ["sh", "-c", "echo begun; sleep 0.5; echo full; exit 3"]},
         "the server .* ended with exit code 3; its last words: begun . full"),
        ({"client": ["sh", "-c", "echo refused; exit 1"]}, "exit code 1; its last words: refused"),
        ({"server": ["sh", "-c", "echo begun; sleep 0.5; echo full; exit 3"],
          "client": ["sh", "-c", "sleep 0.7; echo refused; exit 1"]},
         "the server .* ended with exit code 3; its last words: begun . full"),
        ({"setup": "echo no disk >&2; false"}, "`setup` failed: .*no disk"),
        ({"session": {"as": "no-such-user"}}, "there is no user no-such-user"),
    ],
)  # fmt: skip
def test_what_fails_says_why(changed: dict[str, Any], said: str, tidy_site: Site) -> None:
    asked = {
        "server": SLEEPY, "ready": {"output": "begun"}, "client": ["sleep", "3"], **changed,
        "session": {"patience": "2 s", **changed.get("session", {})},
    }  # fmt: skip
    with pytest.raises(TrialError, match=said):
        measured(tidy_site, asked)


def test_a_daemon_that_overwrites_its_environment_goes_with_its_trial(tidy_site: Site) -> None:
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    with pytest.raises(TrialError, match=r"the server .* ended"):
        measured(tidy_site, {**REDIS, "server": [*REDIS["server"], "--daemonize", "yes"]})
    assert processes(dwells_in(tidy_site.hosts.server_ns)) == []


@pytest.mark.parametrize("place", ["native", "container"])
def test_every_line_of_a_service_has_its_variables(place: str, tidy_site: Site) -> None:
    has_it = 'test "$WORD" = said'
    asked = {
        "setup": f"{has_it} && echo made >/tmp/word",
        "server": ["sh", "-c", "cat /tmp/word && exec redis-server --port {port} --save ''"
                   " --protected-mode no"],
        "ready": {"command": has_it},
        "prepare": has_it,
        "client": ["sh", "-c", has_it],
        "session": {"env": "WORD=said"},
    }  # fmt: skip
    assert measured(tidy_site, asked, place).values
