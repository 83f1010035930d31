"""Answers DescribeClientQuotas (KIP-546) from the image: the quotas of entities."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError, quoted
from kwire_protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

from kwire.metadata.access import CLIENT_ID, IP, USER, QuotaEntity
from kwire.metadata.controller.deciding import repeated


class MatchType(IntEnum):
    """The types, with their numbers in requests."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2
    """Any name, and the default."""


def describe_client_quotas(
    quotas: Mapping[QuotaEntity, Mapping[str, float]], request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Returns the entities that have every type of the filter and, if it is strict, no other type.

    Raises KafkaError: INVALID_REQUEST, UNSUPPORTED_VERSION (an unknown type).
    """
    wanted = _wanted(request.components)
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            EntryData(
                [EntityData(entity_type, name) for entity_type, name in entity],
                [ValueData(key, value) for key, value in values.items()],
            )
            for entity, values in quotas.items()
            if _matches(dict(entity), wanted, strict=request.strict)
        ],
    )


def _wanted(components: list[ComponentData]) -> dict[str, ComponentData]:
    wanted: dict[str, ComponentData] = {}
    for component in components:
        entity_type = component.entity_type
        if not entity_type:
            raise _invalid("The filter has an entity type that is empty.")
        if entity_type in wanted:
            raise _invalid(repeated(f"entity type {quoted(entity_type)}"))
        if entity_type not in (USER, CLIENT_ID, IP):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"There are no client quotas for {quoted(entity_type)}: use user, client-id or ip.",
            )
        if component.match_type not in MatchType._value2member_map_:
            raise _invalid(f"There is no match type {component.match_type}.")
        if (component.match_type == MatchType.EXACT) != (component.match is not None):
            raise _invalid("A name belongs to the match type EXACT, and to no other.")
        wanted[entity_type] = component
    if IP in wanted and len(wanted) > 1:
        raise _invalid("No entity is an ip and also a user or a client-id.")
    return wanted


def _matches(entity: Mapping[str, str | None], wanted: Mapping[str, ComponentData], *, strict: bool) -> bool:
    if strict and len(entity) != len(wanted):
        return False
    return all(
        entity_type in entity and (it.match_type == MatchType.ANY or entity[entity_type] == it.match)
        for entity_type, it in wanted.items()
    )


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
