"""The tasks of a node that is a member of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
import trio

from kwire.cluster.member import ClusterMember
from kwire.cluster.membership import MembershipEnded
from kwire.runtime.service import Service

RECORDED_LATER_S: Final = 1.0
"""The wait before a node tries again to record its state after a failure."""


@attrs.define(eq=False)
class ClusterService(Service):
    """Runs the node's membership, and moves leadership back to the preferred leaders.

    `end` is called, with a sentence, when the node is not a member any more.
    """

    member: ClusterMember
    end: Callable[[str], object]

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stay)
            nursery.start_soon(record_later, self.member)
            nursery.start_soon(self._balance_leaders)

    async def _stay(self) -> None:
        self.member.serve()
        try:
            await self.member.membership.run(self.member.reconcile)
        except MembershipEnded as error:
            self.end(str(error))

    async def _balance_leaders(self) -> None:
        metadata = self.member.metadata
        while True:
            await trio.sleep(metadata.config.leader_imbalance_check_interval_seconds)
            if metadata.config.auto_leader_rebalance_enable:
                self.member.balance_leaders()


async def record_later(member: ClusterMember) -> None:
    """Calls `reconcile` again, after `RECORDED_LATER_S`, when something could not be recorded."""
    while True:
        failed = trio.Event()
        member.on_failed = failed.set
        member.reconcile()  # before the first wait, too: earlier failures were not reported
        await failed.wait()
        await trio.sleep(RECORDED_LATER_S)
