"""DescribeConfigs: v1-4.

* v1: synonyms and sources, instead of is_default (KIP-226)
* v3: types and documentation (KIP-569)
* v4: flexible

The rules are in `kwire.metadata.config_description`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

from kwire.metadata.config_description import describe_configs
from kwire.security.authorizer import Operation

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService


def handle(
    metadata: MetadataService, authorization: Authorization, request: DescribeConfigsRequest, context: Context
) -> DescribeConfigsResponse:
    denied: list[DescribeConfigsResult] = []
    wanted, request.resources = request.resources, []
    for it in wanted:
        try:
            authorization.check_configs(context, Operation.DESCRIBE_CONFIGS, it.resource_type, it.resource_name)
            request.resources.append(it)
        except KafkaError as error:
            denied.append(DescribeConfigsResult(error.code, error.message, it.resource_type, it.resource_name, []))
    try:
        response = describe_configs(metadata.state, request, loggers=_loggers())
    except KafkaError as error:
        response = DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(error.code, error.message, it.resource_type, it.resource_name, [])
                for it in request.resources
            ]
        )
    response.results += denied
    return response


def _loggers() -> dict[str, str]:
    """Returns the levels of loggers. Kafka's tools expect a logger named root; all of kwire's are below one logger."""
    return {"root": logging.getLevelName(logging.getLogger("kwire").getEffectiveLevel())}
