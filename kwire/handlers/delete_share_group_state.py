"""DeleteShareGroupState: v0 (KIP-932).

The coordinator of a share group sends it when the group, or its offsets, are deleted. A state that is not there is
deleted already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
)

from kwire.handlers._shared.share_state import answer
from kwire.share.coordinator.kinds import DELETE

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context


async def handle(
    broker: Broker, request: DeleteShareGroupStateRequest, context: Context
) -> DeleteShareGroupStateResponse:
    response: DeleteShareGroupStateResponse = await answer(broker, context, DELETE, request)
    return response
