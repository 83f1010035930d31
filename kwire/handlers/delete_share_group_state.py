"""DeleteShareGroupState: v0 (KIP-932).

The coordinator of a share group sends it when the group, or its offsets, are deleted. A state that does not exist is
treated as deleted.
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
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.share.coordinator.service import ShareStateService


async def handle(
    authorization: Authorization,
    share_state: ShareStateService,
    request: DeleteShareGroupStateRequest,
    context: Context,
) -> DeleteShareGroupStateResponse:
    response: DeleteShareGroupStateResponse = await answer(authorization, share_state, context, DELETE, request)
    return response
