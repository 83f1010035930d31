"""Describes and changes configurations by raw requests, which have more fields than the clients' admin methods."""

from __future__ import annotations

from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from kwire_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from testkit.basics.waiting import eventually
from testkit.raw.client import RawClient

TOPIC, BROKER, METRICS, GROUP = 2, 4, 16, 32
ALL_BROKERS, THIS_BROKER = "", "1"
SET, DELETE = 0, 1


def altered(
    client: RawClient,
    resource: int,
    name: str,
    config: str,
    value: str | None,
    *,
    operation: int = SET,
    validate_only: bool = False,
) -> tuple[ErrorCode, str]:
    """The answer to setting one configuration, or to deleting it where `value` is None: its code and its message."""
    wanted = AlterableConfig(config, DELETE if value is None else operation, value)
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(resource, name, [wanted])], validate_only)
    (answer,) = client.call(request, 1).responses
    return ErrorCode(answer.error_code), answer.error_message or ""


def described(client: RawClient, resource: int, name: str) -> dict[str, DescribeConfigsResourceResult]:
    """Every configuration of a resource, with its synonyms."""
    request = DescribeConfigsRequest([DescribeConfigsResource(resource, name, None)], include_synonyms=True)
    (answer,) = client.call(request, 4).results
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    return {config.name: config for config in answer.configs}


def change(client: RawClient, resource: int, name: str, config: str, value: str | None) -> None:
    """Sets a configuration, or deletes it; returns when the broker reports the new value.

    Apache Kafka answers a little before it does.
    """
    code, message = altered(client, resource, name, config, value)
    assert code == ErrorCode.NONE, message

    def has_value() -> bool:
        found = described(client, resource, name).get(config)
        if value is None:
            return found is None or all(it.source not in (1, 2, 3, 8) for it in found.synonyms)
        return found is not None and found.value == value

    eventually(has_value, f"{config} is {value}")
