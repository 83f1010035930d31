"""Decides on AlterConfigs (replace everything) and IncrementalAlterConfigs (set, delete, append, subtract).

Each resource changes completely or not at all, and fails independently. The two requests differ only in how they
describe the new configuration, so both are turned into `ConfigChange`s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_configs import ConfigRecord
from kwire_protocol.kafka_error import KafkaError, quoted

from kwire.config.definition import ConfigDefinition, ConfigType, shown, to_text
from kwire.config.tables.broker import broker_config
from kwire.config.tables.resource import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS
from kwire.config.tables.topic import TOPIC_CONFIGS
from kwire.metadata.controller.configs.config_checks import (
    check_broker_configs,
    check_client_metrics_configs,
    check_group_configs,
    check_listeners,
    check_own_broker,
    check_topic_configs,
    invalid_request,
    no_value_for,
    unnamed_resource,
)
from kwire.metadata.controller.deciding import MIN_ISR, ClusterState, Records, repeated
from kwire.metadata.controller.partitions.eligible_replicas import check_min_isr, cleared_by
from kwire.metadata.image import ConfigResourceType
from kwire.names.topic_names import check_topic_name, no_such_topic


class Operation(IntEnum):
    """The operations, with their numbers in requests."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@attrs.frozen
class ConfigChange:
    """The requested changes of one resource, as (name, operation, value). `replaces` resets unnamed configurations."""

    resource_type: int
    resource_name: str
    operations: Sequence[tuple[str, int, str | None]]
    replaces: bool = False


@attrs.frozen
class Outcome:
    """The result for one resource."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


def alter_configs(
    state: ClusterState, changes: Sequence[ConfigChange], *, validate_only: bool
) -> tuple[Records, list[Outcome]]:
    """Returns the records of the valid changes, and an outcome for each change in order."""
    named = Counter((change.resource_type, change.resource_name) for change in changes)
    records: Records = []
    outcomes: list[Outcome] = []
    for change in changes:
        try:
            if named[change.resource_type, change.resource_name] > 1:
                raise invalid_request(repeated(f"resource {quoted(change.resource_name)}"))
            records += _alter(state, change)
            outcomes.append(Outcome())
        except KafkaError as error:
            outcomes.append(Outcome(error.code, error.message))
    records += cleared_by(state, records)
    return [] if validate_only else records, outcomes


def _alter(state: ClusterState, change: ConfigChange) -> Records:
    _check_operations(change)
    _check_resource(state, change)
    before = state.image.config(change.resource_type, change.resource_name)
    after = {} if change.replaces else dict(before)
    for name, operation, value in change.operations:
        _apply_operation(change.resource_type, after, name, operation, value)
    _check_result(state, change, before, after)
    return [
        ConfigRecord(change.resource_type, change.resource_name, name, after.get(name))
        for name in dict.fromkeys((*after, *before))
        if after.get(name) != before.get(name)
    ]


def _check_operations(change: ConfigChange) -> None:
    for name, count in Counter(name for name, _, _ in change.operations).items():
        if count > 1:
            raise invalid_request(
                f"The request has duplicate config keys: {shown(name)} of {shown(change.resource_name)}"
            )
    without_value = [
        name for name, operation, value in change.operations if value is None and operation != Operation.DELETE
    ]
    if without_value:
        raise invalid_request(no_value_for(without_value))


def _check_resource(state: ClusterState, change: ConfigChange) -> None:
    name = change.resource_name
    match change.resource_type:
        case ConfigResourceType.TOPIC:
            if not name:
                raise unnamed_resource("topic")
            check_topic_name(name)
            if name not in state.image.topics:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, no_such_topic(name))
        case ConfigResourceType.BROKER:
            check_own_broker(name, state.node_id)
        case ConfigResourceType.CLIENT_METRICS:
            if not name:
                raise unnamed_resource("client metrics subscription")
        case ConfigResourceType.GROUP:
            if not name:
                raise unnamed_resource("group")
        case ConfigResourceType.BROKER_LOGGER if not change.replaces:
            raise invalid_request("kwire does not change log levels while it runs")
        case _:
            raise invalid_request(f"Unknown resource type {change.resource_type} for a change of configurations")


def _definition(resource_type: int, name: str) -> ConfigDefinition | None:
    match resource_type:
        case ConfigResourceType.TOPIC:
            return TOPIC_CONFIGS.get(name)
        case ConfigResourceType.BROKER:
            return broker_config(name)
        case ConfigResourceType.GROUP:
            return GROUP_CONFIGS.get(name)
        case _:
            return CLIENT_METRICS_CONFIGS.get(name)


def _apply_operation(resource_type: int, configs: dict[str, str], name: str, operation: int, value: str | None) -> None:
    match operation:
        case Operation.SET:
            assert value is not None
            configs[name] = value
        case Operation.DELETE:
            configs.pop(name, None)
        case Operation.APPEND | Operation.SUBTRACT:
            assert value is not None
            definition = _definition(resource_type, name)
            if definition is None or definition.type is not ConfigType.LIST:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"Can't {Operation(operation).name} to key {shown(name)} because its type is not LIST: SET it",
                )
            current = configs.get(name)
            if current is None:
                current = to_text(definition.default) or ""
            elements = [element for element in current.split(",") if element]
            for element in value.split(","):
                if operation == Operation.APPEND:
                    if element not in elements:
                        elements.append(element)
                elif element in elements:
                    elements.remove(element)
            configs[name] = ",".join(elements)
        case _:
            known = ", ".join(f"{it.value} ({it.name})" for it in Operation)
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"operation {operation} on configuration {quoted(name)} is none of {known}",
            )


def _check_result(
    state: ClusterState, change: ConfigChange, before: Mapping[str, str], configs: Mapping[str, str]
) -> None:
    match change.resource_type:
        case ConfigResourceType.TOPIC:
            check_topic_configs(configs, state.configs)
        case ConfigResourceType.BROKER:
            check_broker_configs(configs, before, state.configs, per_broker=bool(change.resource_name))
            if change.resource_name:
                check_listeners(configs, before, state.configs, state.check_listeners)
            is_named = any(name == MIN_ISR for name, _, _ in change.operations)
            is_named |= MIN_ISR in before and MIN_ISR not in configs
            check_min_isr(state, change.resource_name, is_named=is_named, is_left=MIN_ISR in configs)
        case ConfigResourceType.GROUP:
            check_group_configs(configs, state.configs)
        case _:
            check_client_metrics_configs(configs)
