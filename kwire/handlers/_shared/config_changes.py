"""A helper of AlterConfigs and IncrementalAlterConfigs: each resource's change succeeds or fails independently."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError

from kwire.metadata.controller.configs.config_changes import ConfigChange, Outcome, alter_configs
from kwire.security.authorizer import Operation

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService


async def alter(
    metadata: MetadataService,
    authorization: Authorization,
    context: Context,
    changes: list[ConfigChange],
    *,
    validate_only: bool,
) -> list[Outcome]:
    """Returns an outcome for each change, in their order."""
    denied: dict[int, Outcome] = {}
    named = Counter((it.resource_type, it.resource_name) for it in changes)
    for number, it in enumerate(changes):
        if named[it.resource_type, it.resource_name] > 1:
            continue  # such a change is an error, with or without authorization
        try:
            authorization.check_configs(context, Operation.ALTER_CONFIGS, it.resource_type, it.resource_name)
        except KafkaError as error:
            denied[number] = Outcome(error.code, error.message)
    allowed = [change for number, change in enumerate(changes) if number not in denied]
    try:
        decided = await metadata.change(alter_configs, allowed, validate_only=validate_only)
    except KafkaError as error:
        decided = [Outcome(error.code, error.message)] * len(allowed)
    left = iter(decided)
    return [denied[number] if number in denied else next(left) for number in range(len(changes))]
