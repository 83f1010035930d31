"""A server that stops, and requests that come while it does."""

from __future__ import annotations

import attrs
import trio
from kwire_protocol.messages.metadata import MetadataRequest
from outcome import Outcome

from kwire.runtime.futures import Future
from kwire.runtime.loop import Loop
from kwire.runtime.workers import Worker
from testkit.scenes.server_in_trio import ServerInTrio, with_server


@attrs.define(eq=False)
class SubmitsAtTheEnd(trio.abc.Instrument):
    """Submits work beside the loop when the last task of a nursery has ended, as a request might."""

    loop: Loop
    refused: list[RuntimeError] = attrs.field(factory=list)
    submitted: list[Future[Outcome[None]]] = attrs.field(factory=list)

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        nursery = task.parent_nursery
        if self.loop.host is not None and nursery is not None and not nursery.child_tasks:
            try:
                self.submitted.append(self.loop.in_worker(Worker.FLUSH, lambda: None))
            except RuntimeError as error:
                self.refused.append(error)


def test_work_beside_the_loop_is_done_until_the_last_connection_is_closed() -> None:
    instruments: list[SubmitsAtTheEnd] = []

    async def scenario(it: ServerInTrio) -> None:
        client = await it.connect()
        await client.call(MetadataRequest([]), 9)
        instruments.append(SubmitsAtTheEnd(it.broker.loop))
        trio.lowlevel.add_instrument(instruments[0])

    with_server(scenario)
    (instrument,) = instruments
    assert instrument.submitted or instrument.refused
    assert all(it.is_set for it in instrument.submitted)
    assert instrument.refused == []
