"""IncrementalAlterConfigs: v0-1 (KIP-339).

* v1: flexible

The rules are in `kwire.metadata.controller.configs.config_changes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

from kwire.handlers._shared.config_changes import alter
from kwire.metadata.controller.configs.config_changes import ConfigChange

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService


async def handle(
    metadata: MetadataService,
    authorization: Authorization,
    request: IncrementalAlterConfigsRequest,
    context: Context,
) -> IncrementalAlterConfigsResponse:
    changes = [
        ConfigChange(
            resource.resource_type,
            resource.resource_name,
            [(config.name, config.config_operation, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    outcomes = await alter(metadata, authorization, context, changes, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(outcome.code, outcome.message, change.resource_type, change.resource_name)
            for change, outcome in zip(changes, outcomes, strict=True)
        ]
    )
