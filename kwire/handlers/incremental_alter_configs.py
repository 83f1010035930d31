"""IncrementalAlterConfigs: v0-1 (KIP-339).

* v1: flexible

The rules are in `kwire.metadata.controller.config_changes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

from kwire.handlers._shared.authorization import check_configs
from kwire.metadata.controller.config_changes import ConfigChange, Outcome
from kwire.security.authorizer import Operation

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context


async def handle(
    broker: Broker,
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
    denied: dict[int, Outcome] = {}
    for number, it in enumerate(changes):
        try:
            check_configs(broker, context, Operation.ALTER_CONFIGS, it.resource_type, it.resource_name)
        except KafkaError as error:
            denied[number] = Outcome(error.code, error.message)
    allowed = [change for number, change in enumerate(changes) if number not in denied]
    try:
        decided = await broker.metadata.alter_configs(allowed, validate_only=request.validate_only)
    except KafkaError as error:
        decided = [Outcome(error.code, error.message)] * len(allowed)
    left = iter(decided)
    outcomes = [denied[number] if number in denied else next(left) for number in range(len(changes))]
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(outcome.code, outcome.message, change.resource_type, change.resource_name)
            for change, outcome in zip(changes, outcomes, strict=True)
        ]
    )
