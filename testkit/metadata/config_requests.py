"""Asking a metadata service to change and to describe configurations, as a client would."""

from __future__ import annotations

from typing import Any

from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages import alter_configs, incremental_alter_configs
from kwire_protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)

from kwire.handlers import alter_configs as alter_configs_handler
from kwire.handlers import describe_configs as describe_configs_handler
from kwire.handlers import incremental_alter_configs as incremental_alter_configs_handler
from kwire.handlers.apis import bound
from kwire.metadata.controller.configs.config_changes import Operation
from kwire.metadata.image import ConfigResourceType
from kwire.metadata.service import MetadataService
from testkit.metadata.distant_log import answered
from testkit.metadata.harness import FakeBroker, context

E = ErrorCode
SET, DELETE, APPEND, SUBTRACT = Operation.SET, Operation.DELETE, Operation.APPEND, Operation.SUBTRACT
TOPIC, BROKER, LOGGER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER
METRICS, GROUP = ConfigResourceType.CLIENT_METRICS, ConfigResourceType.GROUP
Answer = tuple[ErrorCode, str | None]


def incremental(
    metadata: MetadataService,
    resource_type: int,
    name: str,
    *operations: tuple[str, int, str | None],
    validate_only: bool = False,
) -> Answer:
    configs = [incremental_alter_configs.AlterableConfig(*it) for it in operations]
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        [incremental_alter_configs.AlterConfigsResource(resource_type, name, configs)], validate_only
    )
    broker: Any = FakeBroker(metadata)
    (answer,) = answered(bound(incremental_alter_configs_handler.handle, broker)(request, context(1))).responses
    assert (answer.resource_type, answer.resource_name) == (resource_type, name)
    return ErrorCode(answer.error_code), answer.error_message


def replace(metadata: MetadataService, resource_type: int, name: str, *configs: tuple[str, str | None]) -> Answer:
    request = alter_configs.AlterConfigsRequest(
        [
            alter_configs.AlterConfigsResource(
                resource_type, name, [alter_configs.AlterableConfig(*it) for it in configs]
            )
        ]
    )
    broker: Any = FakeBroker(metadata)
    (answer,) = answered(bound(alter_configs_handler.handle, broker)(request, context(2))).responses
    return ErrorCode(answer.error_code), answer.error_message


def result(
    metadata: MetadataService, resource_type: int, name: str, keys: list[str] | None = None, *, details: bool = True
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest([DescribeConfigsResource(resource_type, name, keys)], details, details)
    broker: Any = FakeBroker(metadata)
    return bound(describe_configs_handler.handle, broker)(request, context(4)).results[0]


def described(
    metadata: MetadataService, resource_type: int, name: str, keys: list[str] | None = None
) -> dict[str, DescribeConfigsResourceResult]:
    answer = result(metadata, resource_type, name, keys)
    assert answer.error_code == E.NONE
    return {it.name: it for it in answer.configs}


def origins(entry: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(it.name, it.value, it.source) for it in entry.synonyms]
