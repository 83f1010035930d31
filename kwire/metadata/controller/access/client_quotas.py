"""Decides on AlterClientQuotas (KIP-546): the quotas of entities. The rules are Kafka's.

An entity is a user, a client id, both, or an IP address; the name None is the default, for all those without their own
quota. Each entity changes completely or not at all, and fails independently. If a request names an entity twice, the
first one counts, but the answer, which names it once, is an error.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_configs import ClientQuotaRecord, EntityData
from kwire_protocol.kafka_error import KafkaError, quoted
from kwire_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)

from kwire.metadata.access import CLIENT_ID, IP, USER, QuotaEntity
from kwire.metadata.controller.deciding import ClusterState, Records, check_batch_size, repeated

_LARGEST_FRACTION: Final = 1e-6
"""The largest fractional part of a value that still counts as a whole number."""


@attrs.frozen
class _Kind:
    """The valid values of a quota: the largest one, and True in `is_whole` for whole numbers."""

    largest: float
    is_whole: bool


_LONG, _INT, _DOUBLE = (
    _Kind(2.0**63, is_whole=True),
    _Kind(2.0**31 - 1, is_whole=True),
    _Kind(float("inf"), is_whole=False),
)
_OF_CLIENTS: Final = {
    "producer_byte_rate": _LONG,
    "consumer_byte_rate": _LONG,
    "request_percentage": _DOUBLE,
    "controller_mutation_rate": _DOUBLE,
}
_OF_ADDRESSES: Final = {"connection_creation_rate": _INT}


def alter_client_quotas(
    state: ClusterState, request: AlterClientQuotasRequest
) -> tuple[Records, AlterClientQuotasResponse]:
    records: Records = []
    outcomes: dict[QuotaEntity, KafkaError | None] = {}
    for entry in request.entries:
        entity = _entity(entry)
        try:
            if entity in outcomes:
                raise _invalid(repeated(f"entity {_quoted_entity(entity)}"))
            keys = [op.key for op in entry.ops]
            if len(set(keys)) < len(keys):
                raise _invalid(repeated(f"quota key of {_quoted_entity(entity)}"))
            records += _alter(state.image.access.quotas.get(entity, {}), entity, entry)
            outcomes[entity] = None
        except KafkaError as error:
            outcomes[entity] = error
    try:
        check_batch_size(records)
    except KafkaError as error:
        records, outcomes = [], dict.fromkeys(outcomes, error)
    response = AlterClientQuotasResponse(entries=[_outcome(entity, error) for entity, error in outcomes.items()])
    return [] if request.validate_only else records, response


def refused(request: AlterClientQuotasRequest, error: KafkaError) -> AlterClientQuotasResponse:
    """Returns the response if the whole request fails: the error for every entity, named as in the request."""
    return AlterClientQuotasResponse(
        entries=[
            _outcome(tuple((it.entity_type, it.entity_name) for it in entry.entity), error) for entry in request.entries
        ]
    )


def _entity(entry: AlterClientQuotasRequestEntryData) -> QuotaEntity:
    """Returns the entity of an entry. If the entry has a type twice, the last name counts."""
    return tuple(sorted({it.entity_type: it.entity_name for it in entry.entity}.items()))


def _alter(before: Mapping[str, float], entity: QuotaEntity, entry: AlterClientQuotasRequestEntryData) -> Records:
    kinds = _kinds(dict(entity))
    data = [EntityData(entity_type, name) for entity_type, name in entity]
    records: Records = []
    for op in entry.ops:
        if op.remove:
            if op.key in before:
                records.append(ClientQuotaRecord(data, op.key, remove=True))
        else:
            _check_value(kinds, op.key, op.value)
            if before.get(op.key) != op.value:
                records.append(ClientQuotaRecord(data, op.key, op.value))
    return records


def _kinds(entity: Mapping[str, str | None]) -> Mapping[str, _Kind]:
    """The quotas that such an entity may have. Raises KafkaError(INVALID_REQUEST) if there are no such entities."""
    if not entity:
        raise _invalid("A client quota needs an entity: a user, a client-id or an ip.")
    for entity_type, name in entity.items():
        if entity_type not in (USER, CLIENT_ID, IP):
            raise _invalid(f"There are no client quotas for {quoted(entity_type)}: use user, client-id or ip.")
        if name == "":
            raise _invalid(f"The name of a {entity_type} must not be empty. Null stands for the default.")
    if IP not in entity:
        return _OF_CLIENTS
    if len(entity) > 1:
        raise _invalid("A client quota of an ip is not for a user or a client-id, too.")
    address = entity[IP]
    if address is not None and not _is_address(address):
        raise _invalid(f"{quoted(address)} is not an IP address.")
    return _OF_ADDRESSES


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _check_value(kinds: Mapping[str, _Kind], key: str, value: float) -> None:
    kind = kinds.get(key)
    if kind is None:
        raise _invalid(f"Such an entity has no quota {quoted(key)}, only: {', '.join(kinds)}.")
    if value <= 0:
        raise _invalid(f"{key} must be greater than 0, and is {value}.")
    if value > kind.largest:
        raise _invalid(f"{key} must be no more than {kind.largest:.0f}, and is {value}.")
    if kind.is_whole and value % 1 > _LARGEST_FRACTION:
        raise _invalid(f"{key} must be a whole number, and is {value}.")


def _quoted_entity(entity: QuotaEntity) -> str:
    return quoted(dict(entity))


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)


def _outcome(entity: QuotaEntity, error: KafkaError | None) -> AlterClientQuotasResponseEntryData:
    data = [AlterClientQuotasResponseEntityData(entity_type, name) for entity_type, name in entity]
    if error is None:
        return AlterClientQuotasResponseEntryData(0, None, data)
    return AlterClientQuotasResponseEntryData(error.code, error.message, data)
