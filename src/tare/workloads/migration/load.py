"""The load on the guests, a program of its own: `python -m tare.workloads.migration.load`.

Open loop: a schedule decides when each request is sent, whatever became of those before, so that a
guest that stands still does not slow its load down. It answers `report` on its standard input with
the times at which requests were answered since the last report, in parts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

_TIMEOUT_S = 5.0
_PAGES = 64
"""Files of the guests' site: debian-build.sh."""
_ITEMS = 100_000
_VALUE_BYTES = 1024
_TOKEN_BITS = 2048
_BASKET, _ARTICLES = 8, 10**6
"""Articles in an item, and those that there are."""
_READS = 0.9
"""Share of reads among requests to memcached: memaslap's default."""
_BATCH = 200
_TOLD = 10_000
"""Times in a line of a report."""

Request = Callable[["LoadedGuest", int], Awaitable[bool]]


@dataclass
class LoadedGuest:
    """One guest.

    Attributes:
        name: of the guest.
        address: where it answers.
        done: times of answers since the last report, ns of the real-time clock.
        failed: requests without a whole answer in time, since the last report.
    """

    name: str
    address: str
    random: random.Random
    done: list[int] = field(default_factory=list)
    failed: int = 0


async def _web(guest: LoadedGuest, _number: int) -> bool:
    """One page over a connection of its own, as httperf asks."""
    page = guest.random.randrange(_PAGES)
    reader, writer = await asyncio.open_connection(guest.address, 80)
    try:
        request = f"GET /{page}.jpg HTTP/1.1\r\nHost: {guest.name}\r\nConnection: close\r\n\r\n"
        writer.write(request.encode())
        status = await reader.readline()
        while await reader.read(1 << 18):
            pass
        return b" 200 " in status
    finally:
        writer.close()


async def _memcached(guest: LoadedGuest, number: int) -> bool:
    """One get or set over a connection of its own."""
    reader, writer = await asyncio.open_connection(guest.address, 11211)
    try:
        key = guest.random.randrange(_ITEMS)
        if guest.random.random() < _READS:
            writer.write(b"get session:%d\r\n" % key)
            answer = await reader.readuntil(b"END\r\n")
            return answer.startswith(b"VALUE")
        writer.write(_item(guest, key, number, reply=True))
        return await reader.readline() == b"STORED\r\n"
    finally:
        writer.close()


def _item(guest: LoadedGuest, key: int, version: int, *, reply: bool) -> bytes:
    """A session as a web application keeps it: words that all have, and what only this one has."""
    token = guest.random.getrandbits(_TOKEN_BITS)
    text = f'{{"guest":"{guest.name}","user":{key},"version":{version},"token":"{token:0512x}",'
    basket = ",".join(
        f'{{"article":{guest.random.randrange(_ARTICLES)},"count":1,"currency":"EUR"}}'
        for _ in range(_BASKET)
    )
    value = f'{text}"basket":[{basket}],"locale":"en"}}'.ljust(_VALUE_BYTES)[:_VALUE_BYTES]
    end = "" if reply else " noreply"
    return f"set session:{key} 0 0 {_VALUE_BYTES}{end}\r\n{value}\r\n".encode()


def drawn_bytes() -> float:
    """What is drawn at random for the items of a guest: no code for them is shorter on average."""
    return _ITEMS * (_TOKEN_BITS + _BASKET * math.log2(_ARTICLES)) / 8


async def _fill(guest: LoadedGuest) -> None:
    """Store every item once."""
    reader, writer = await asyncio.open_connection(guest.address, 11211)
    for first in range(0, _ITEMS, _BATCH):
        items = range(first, min(first + _BATCH, _ITEMS))
        writer.write(b"".join(_item(guest, key, 0, reply=False) for key in items))
        await writer.drain()
    writer.write(b"version\r\n")
    await reader.readline()
    writer.close()


_REQUESTS: dict[str, Request] = {"web": _web, "memcached": _memcached}


async def _ask(request: Request, guest: LoadedGuest, number: int) -> None:
    try:
        answered = await asyncio.wait_for(request(guest, number), _TIMEOUT_S)
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        answered = False
    if answered:
        guest.done.append(time.time_ns())
    else:
        guest.failed += 1


async def _press(request: Request, guest: LoadedGuest, rate: float) -> None:
    """Send on schedule until cancelled."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    waiting: set[asyncio.Task[None]] = set()
    number = 0
    while True:
        number += 1
        await asyncio.sleep(began + number / rate - loop.time())
        task = asyncio.create_task(_ask(request, guest, number))
        waiting.add(task)
        task.add_done_callback(waiting.discard)


def report(guests: list[LoadedGuest]) -> Iterator[dict[str, object]]:
    """Events of what was answered since the last report: a line has an end, a load has none."""
    for guest in guests:
        done, failed = guest.done, guest.failed
        guest.done, guest.failed = [], 0
        for first in range(0, max(len(done), 1), _TOLD):
            part = {"done": done[first : first + _TOLD], "failed": 0 if first else failed}
            yield {"event": "part", "guest": guest.name, **part}
    yield {"event": "report"}


async def _run(kind: str, guests: list[LoadedGuest], rate: float) -> None:
    if kind == "memcached":
        await asyncio.gather(*(_fill(guest) for guest in guests))
    presses = [asyncio.create_task(_press(_REQUESTS[kind], t, rate)) for t in guests]
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    _say({"event": "ready"})
    while await lines.readline():
        for event in report(guests):
            _say(event)
    for press in presses:
        press.cancel()


def _say(event: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def main(argv: list[str]) -> None:
    """Press the guests until standard input ends.

    Args:
        argv: KIND, `--rate` a second and guest, `--seed`, and NAME=ADDRESS for each guest.
    """
    parser = argparse.ArgumentParser(prog="load")
    parser.add_argument("kind", choices=sorted(_REQUESTS))
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("guests", nargs="+")
    asked = parser.parse_args(argv)
    guests = []
    for number, written in enumerate(asked.guests):
        name, _, address = written.partition("=")
        # A load, not a secret. Seeds differ, so that guests hold data of their own.
        guests.append(LoadedGuest(name, address, random.Random(asked.seed * 100 + number)))  # noqa: S311
    asyncio.run(_run(asked.kind, guests, asked.rate))


if __name__ == "__main__":
    main(sys.argv[1:])
