"""ReadShareGroupState: v0 (KIP-932).

The leader of a share-partition sends it when it becomes leader. Its leader epoch fences earlier leaders.
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
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.share.coordinator.service import ShareStateService


async def handle(
    authorization: Authorization, share_state: ShareStateService, request: ReadShareGroupStateRequest, context: Context
) -> ReadShareGroupStateResponse:
    response: ReadShareGroupStateResponse = await answer(authorization, share_state, context, READ, request)
    return response
