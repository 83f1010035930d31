"""ReadShareGroupStateSummary: v0-1 (KIP-932).

* v1: delivery_complete_count (KIP-1226)

The coordinator of a share group sends it to describe the group's offsets. A state that is not there is no error: its
start offset is -1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)

from kwire.handlers._shared.share_state import answer
from kwire.share.coordinator.kinds import SUMMARIZE

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context


async def handle(
    broker: Broker, request: ReadShareGroupStateSummaryRequest, context: Context
) -> ReadShareGroupStateSummaryResponse:
    response: ReadShareGroupStateSummaryResponse = await answer(broker, context, SUMMARIZE, request)
    return response
