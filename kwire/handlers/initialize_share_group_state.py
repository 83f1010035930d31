"""InitializeShareGroupState: v0 (KIP-932).

The coordinator of a share group sends it to share coordinators when the group subscribes to a topic, and again, with a
higher state epoch, when its offsets are reset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)

from kwire.handlers._shared.share_state import answer
from kwire.share.coordinator.kinds import INITIALIZE

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.share.coordinator.service import ShareStateService


async def handle(
    authorization: Authorization,
    share_state: ShareStateService,
    request: InitializeShareGroupStateRequest,
    context: Context,
) -> InitializeShareGroupStateResponse:
    response: InitializeShareGroupStateResponse = await answer(authorization, share_state, context, INITIALIZE, request)
    return response
