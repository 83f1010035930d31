"""The part of the metadata image about security and quotas: ACLs, SCRAM credentials, delegation tokens, client quotas.

The records are stored unchanged, each under its key. Their users (the authorizer, SCRAM, delegation tokens, quotas)
derive their data from them, and follow `AccessChanges`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import attrs
from kwire_protocol.internal.metadata_configs import ClientQuotaRecord, EntityData
from kwire_protocol.internal.metadata_security import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from kwire_protocol.wire import Uuid

from kwire.metadata.records import MetadataRecord

if TYPE_CHECKING:
    from kwire.security.acls.acl import Acl

ScramKey = tuple[str, int]
"""The name of a user and the number of a mechanism: 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512."""

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
"""The types of entities that have client quotas."""

QuotaEntity = tuple[tuple[str, str | None], ...]
"""The types (user, client-id, ip) and names, sorted by type. The name None is for all without their own quota."""


@attrs.define
class AccessChanges:
    """The changes made by some records, in their order. An ACL that was added and removed again is in both lists."""

    acls_added: list[AccessControlEntryRecord] = attrs.Factory(list)
    acls_removed: list[AccessControlEntryRecord] = attrs.Factory(list)
    scram_credentials: set[ScramKey] = attrs.Factory(set)
    delegation_tokens: set[str] = attrs.Factory(set)
    """By token id."""
    quotas: set[QuotaEntity] = attrs.Factory(set)


@attrs.define
class AccessImage:
    acls: dict[Uuid, AccessControlEntryRecord] = attrs.Factory(dict)
    scram_credentials: dict[ScramKey, UserScramCredentialRecord] = attrs.Factory(dict)
    delegation_tokens: dict[str, DelegationTokenRecord] = attrs.Factory(dict)
    """By token id."""
    quotas: dict[QuotaEntity, dict[str, float]] = attrs.Factory(dict)
    """The value of each quota (producer_byte_rate, ...) of an entity."""
    existing_acls: dict[Acl, int] = attrs.field(factory=dict, eq=False, repr=False)
    """The values of `acls`, and how many ids each has."""

    def apply(self, record: MetadataRecord, changes: AccessChanges) -> bool:
        """Applies a record of this part. Returns False if the record belongs to another part."""
        match record:
            case AccessControlEntryRecord():
                if record.id in self.acls:
                    self._remove_acl(record.id, changes)
                self.acls[record.id] = record
                acl = _acl(record)
                self.existing_acls[acl] = self.existing_acls.get(acl, 0) + 1
                changes.acls_added.append(record)
            case RemoveAccessControlEntryRecord():
                self._remove_acl(record.id, changes)
            case UserScramCredentialRecord():
                self.scram_credentials[record.name, record.mechanism] = record
                changes.scram_credentials.add((record.name, record.mechanism))
            case RemoveUserScramCredentialRecord():
                del self.scram_credentials[record.name, record.mechanism]
                changes.scram_credentials.add((record.name, record.mechanism))
            case DelegationTokenRecord():
                self.delegation_tokens[record.token_id] = record
                changes.delegation_tokens.add(record.token_id)
            case RemoveDelegationTokenRecord():
                del self.delegation_tokens[record.token_id]
                changes.delegation_tokens.add(record.token_id)
            case ClientQuotaRecord():
                self._apply_quota(record, changes)
            case _:
                return False
        return True

    def _remove_acl(self, acl_id: Uuid, changes: AccessChanges) -> None:
        record = self.acls.pop(acl_id)
        acl = _acl(record)
        self.existing_acls[acl] -= 1
        if not self.existing_acls[acl]:
            del self.existing_acls[acl]
        changes.acls_removed.append(record)

    def _apply_quota(self, record: ClientQuotaRecord, changes: AccessChanges) -> None:
        entity = quota_entity(record.entity)
        quotas = self.quotas.setdefault(entity, {})
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value
        if not quotas:
            del self.quotas[entity]
        changes.quotas.add(entity)

    def records(self) -> Iterator[MetadataRecord]:
        """Records that turn an empty part into this one."""
        return self.records_since(AccessImage())

    def records_since(self, before: AccessImage) -> Iterator[MetadataRecord]:
        """Records that turn `before` into this one."""
        yield from (RemoveAccessControlEntryRecord(key) for key in before.acls if key not in self.acls)
        for name, mechanism in before.scram_credentials:
            if (name, mechanism) not in self.scram_credentials:
                yield RemoveUserScramCredentialRecord(name, mechanism)
        for token_id in before.delegation_tokens:
            if token_id not in self.delegation_tokens:
                yield RemoveDelegationTokenRecord(token_id)
        for entity, former in before.quotas.items():
            for key in former:
                if key not in self.quotas.get(entity, {}):
                    yield ClientQuotaRecord(_entity_data(entity), key, remove=True)
        yield from (it for key, it in self.acls.items() if before.acls.get(key) != it)
        yield from (it for key, it in self.scram_credentials.items() if before.scram_credentials.get(key) != it)
        yield from (it for key, it in self.delegation_tokens.items() if before.delegation_tokens.get(key) != it)
        for entity, quotas in self.quotas.items():
            former = before.quotas.get(entity, {})
            for key, value in quotas.items():
                if former.get(key) != value:
                    yield ClientQuotaRecord(_entity_data(entity), key, value)


def _acl(record: AccessControlEntryRecord) -> Acl:
    from kwire.security.acls.acl import Acl  # here, because most clusters have no ACLs

    return Acl.of_record(record)


def quota_entity(data: list[EntityData]) -> QuotaEntity:
    return tuple(sorted((it.entity_type, it.entity_name) for it in data))


def _entity_data(entity: QuotaEntity) -> list[EntityData]:
    return [EntityData(entity_type, name) for entity_type, name in entity]
