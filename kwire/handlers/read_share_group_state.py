"""ReadShareGroupState: v0 (KIP-932).

The leader of a share-partition sends it when it begins. Its leader epoch fences the leaders before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.messages.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
)

from kwire.handlers._shared.share_state import answer
from kwire.share.coordinator.kinds import READ

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context


async def handle(broker: Broker, request: ReadShareGroupStateRequest, context: Context) -> ReadShareGroupStateResponse:
    response: ReadShareGroupStateResponse = await answer(broker, context, READ, request)
    return response
