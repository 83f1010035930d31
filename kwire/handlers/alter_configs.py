"""AlterConfigs: v0-2. Configurations that are not in the request are reset, so prefer IncrementalAlterConfigs.

* v2: flexible

The rules are in `kwire.metadata.controller.configs.config_changes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

from kwire.handlers._shared.config_changes import alter
from kwire.metadata.controller.configs.config_changes import ConfigChange, Operation

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService


async def handle(
    metadata: MetadataService, authorization: Authorization, request: AlterConfigsRequest, context: Context
) -> AlterConfigsResponse:
    changes = [
        ConfigChange(
            resource.resource_type,
            resource.resource_name,
            [(config.name, Operation.SET, config.value) for config in resource.configs],
            replaces=True,
        )
        for resource in request.resources
    ]
    outcomes = await alter(metadata, authorization, context, changes, validate_only=request.validate_only)
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(outcome.code, outcome.message, change.resource_type, change.resource_name)
            for change, outcome in zip(changes, outcomes, strict=True)
        ]
    )
