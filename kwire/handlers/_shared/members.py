"""The client of a request as a member of a group."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kwire.groups.group import MemberContext, sees_all
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context


def member_context(authorization: Authorization, context: Context) -> MemberContext:
    return MemberContext(
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",
        api_version=context.api_version,
        sees_topic=(
            sees_all
            if authorization.authorizer.allows_all
            else partial(authorization.allows, context, Operation.DESCRIBE, ResourceType.TOPIC)
        ),
    )
