"""Fills a connection whose peer does not read."""

from __future__ import annotations

from trio.testing import wait_all_tasks_blocked

from testkit.raw.simple_requests import produce
from testkit.scenes.server_in_trio import ServerInTrio

MIB = 1 << 20


async def fill(kwire: ServerInTrio, mib: int) -> None:
    producer = await kwire.connect()
    for _ in range(mib):
        # A megabyte is the most that a broker takes by default, headers included.
        await producer.call(produce(bytes(MIB - 1000)), 9)
    await producer.hang_up()
    await wait_all_tasks_blocked()
