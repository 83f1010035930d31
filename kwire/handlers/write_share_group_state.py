"""WriteShareGroupState: v0-1 (KIP-932).

* v1: delivery_complete_count (KIP-1226); -1 before

The leader of a share-partition sends it before it acknowledges what its members have acknowledged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.messages.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)

from kwire.handlers._shared.share_state import answer
from kwire.share.coordinator.kinds import WRITE

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context


async def handle(
    broker: Broker, request: WriteShareGroupStateRequest, context: Context
) -> WriteShareGroupStateResponse:
    response: WriteShareGroupStateResponse = await answer(broker, context, WRITE, request)
    return response
