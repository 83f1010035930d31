"""AlterConfigs: v0-2. Configurations that it does not name are reset, so prefer IncrementalAlterConfigs.

* v2: flexible

The rules are in `kwire.metadata.controller.config_changes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

from kwire.handlers._shared.authorization import check_configs
from kwire.metadata.controller.config_changes import ConfigChange, Operation, Outcome
from kwire.security import authorizer

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context


async def handle(broker: Broker, request: AlterConfigsRequest, context: Context) -> AlterConfigsResponse:
    changes = [
        ConfigChange(
            resource.resource_type,
            resource.resource_name,
            [(config.name, Operation.SET, config.value) for config in resource.configs],
            replaces=True,
        )
        for resource in request.resources
    ]
    denied: dict[int, Outcome] = {}
    for number, it in enumerate(changes):
        try:
            check_configs(broker, context, authorizer.Operation.ALTER_CONFIGS, it.resource_type, it.resource_name)
        except KafkaError as error:
            denied[number] = Outcome(error.code, error.message)
    allowed = [change for number, change in enumerate(changes) if number not in denied]
    try:
        decided = await broker.metadata.alter_configs(allowed, validate_only=request.validate_only)
    except KafkaError as error:
        decided = [Outcome(error.code, error.message)] * len(allowed)
    left = iter(decided)
    outcomes = [denied[number] if number in denied else next(left) for number in range(len(changes))]
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(outcome.code, outcome.message, change.resource_type, change.resource_name)
            for change, outcome in zip(changes, outcomes, strict=True)
        ]
    )
