"""The client quotas of a cluster: set, listed, removed (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs
from kwire_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from kwire_protocol.messages.describe_client_quotas import DescribeClientQuotasRequest

from kwire.client.cluster import Cluster
from kwire.client.errors import refused

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

KEYS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)

Entity = tuple[tuple[str, str | None], ...]
"""The entity of a quota: pairs of type and name. The name None is the default for entities without their own quota."""


@attrs.frozen
class Quotas:
    entity: Entity
    values: Mapping[str, float]
    """The values by key, such as producer_byte_rate."""


def entity_text(entity: Entity) -> str:
    """Returns the entity as text, such as "user alice, client-id <default>"."""
    return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in entity)


def list_quotas(cluster: Cluster) -> list[Quotas]:
    """Returns all quotas, sorted. Raises Refused."""
    answer = cluster.call(DescribeClientQuotasRequest())
    if answer.error_code:
        raise refused("the quotas cannot be listed", answer.error_code, answer.error_message)
    found = [
        Quotas(
            tuple(sorted((of.entity_type, of.entity_name) for of in it.entity)),
            {of.key: of.value for of in it.values},
        )
        for it in answer.entries or ()
    ]
    return sorted(found, key=lambda it: [(kind, name is not None, name or "") for kind, name in it.entity])


def alter_quotas(cluster: Cluster, entity: Entity, values: Mapping[str, float], removed: Iterable[str] = ()) -> None:
    """Sets these values and removes others; the rest stays. Raises Refused if nothing was changed."""
    operations = [OpData(key, value) for key, value in values.items()]
    operations += [OpData(key, remove=True) for key in removed]
    of = [AlterClientQuotasRequestEntityData(kind, name) for kind, name in entity]
    answer = cluster.call(AlterClientQuotasRequest([AlterClientQuotasRequestEntryData(of, operations)]))
    for entry in answer.entries:
        if entry.error_code:
            what = f"the quotas of {entity_text(entity)} were not changed"
            raise refused(what, entry.error_code, entry.error_message)
