"""WriteShareGroupState: v0-1 (KIP-932).

* v1: delivery_complete_count (KIP-1226); -1 before

The leader of a share-partition sends it before it responds to the acknowledgements of members.
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
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.share.coordinator.service import ShareStateService


async def handle(
    authorization: Authorization, share_state: ShareStateService, request: WriteShareGroupStateRequest, context: Context
) -> WriteShareGroupStateResponse:
    response: WriteShareGroupStateResponse = await answer(authorization, share_state, context, WRITE, request)
    return response
