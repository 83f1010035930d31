"""ReadShareGroupStateSummary: v0-1 (KIP-932).

* v1: delivery_complete_count (KIP-1226)

The coordinator of a share group sends it to describe the group's offsets. A missing state is not an error: its start
offset is -1.
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
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.share.coordinator.service import ShareStateService


async def handle(
    authorization: Authorization,
    share_state: ShareStateService,
    request: ReadShareGroupStateSummaryRequest,
    context: Context,
) -> ReadShareGroupStateSummaryResponse:
    response: ReadShareGroupStateSummaryResponse = await answer(authorization, share_state, context, SUMMARIZE, request)
    return response
