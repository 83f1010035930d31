"""Decides on AlterUserScramCredentials, and answers DescribeUserScramCredentials: the users of SCRAM (KIP-554).

A client sends the salted password, never the password; the keys that a broker needs are recorded. A user can be in a
request only once, so a deletion and an upsertion of one user, or two mechanisms, are refused. The other rules are
Kafka's, too (ScramControlManager, ScramImage).
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_security import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kwire_protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

from kwire.metadata.access import AccessImage
from kwire.metadata.controller.deciding import ClusterState, Records
from kwire.metadata.records import MetadataRecord
from kwire.security.sasl.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_MECHANISMS_BY_NUMBER,
    ScramCredential,
    ScramMechanism,
    credential_of_salted_password,
)

MAX_CHANGES_PER_REQUEST: Final = 10_000


def alter_scram_credentials(
    state: ClusterState, request: AlterUserScramCredentialsRequest
) -> tuple[Records, AlterUserScramCredentialsResponse]:
    """Changes users, each independently. Raises KafkaError for a request that is too large."""
    changes: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    if len(changes) > MAX_CHANGES_PER_REQUEST:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Excessively large number of users per request: {len(changes)}. Send several requests of at most "
            f"{MAX_CHANGES_PER_REQUEST}.",
        )
    records: dict[str, MetadataRecord] = {}
    errors: dict[str, KafkaError] = {}
    for change in changes:
        name = change.name
        if name in errors:
            continue
        try:
            if records.pop(name, None) is not None:
                raise KafkaError(
                    ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
                )
            records[name] = _record(state.image.access, change)
        except KafkaError as error:
            errors[name] = error
    results = [AlterUserScramCredentialsResult(name, error_message=None) for name in records]
    results += [AlterUserScramCredentialsResult(name, error.code, error.message) for name, error in errors.items()]
    return list(records.values()), AlterUserScramCredentialsResponse(results=results)


def _record(image: AccessImage, change: ScramCredentialDeletion | ScramCredentialUpsertion) -> MetadataRecord:
    mechanism = _checked(change)
    if isinstance(change, ScramCredentialDeletion):
        if (change.name, change.mechanism) not in image.scram_credentials:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        return RemoveUserScramCredentialRecord(change.name, change.mechanism)
    if change.iterations < MIN_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > MAX_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not change.salted_password:
        # Kafka responds with UNKNOWN_SERVER_ERROR.
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salted password must not be empty")
    credential = credential_of_salted_password(
        mechanism, bytes(change.salted_password), salt=bytes(change.salt), iterations=change.iterations
    )
    return credential_record(change.name, mechanism, credential)


def _checked(change: ScramCredentialDeletion | ScramCredentialUpsertion) -> ScramMechanism:
    if not change.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = SCRAM_MECHANISMS_BY_NUMBER.get(change.mechanism)
    if mechanism is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return mechanism


def credential_record(name: str, mechanism: ScramMechanism, credential: ScramCredential) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name, mechanism.number, credential.salt, credential.stored_key, credential.server_key, credential.iterations
    )


def describe_scram_credentials(image: AccessImage, names: list[str] | None) -> DescribeUserScramCredentialsResponse:
    """The mechanisms and iterations of these users, or of all."""
    iterations: dict[str, dict[int, int]] = {}
    for (name, mechanism), record in sorted(image.scram_credentials.items()):
        iterations.setdefault(name, {})[mechanism] = record.iterations
    counts = Counter(list(names or iterations))
    return DescribeUserScramCredentialsResponse(
        results=[_described(name, count, iterations.get(name, {})) for name, count in counts.items()],
    )


def _described(name: str, count: int, iterations: dict[int, int]) -> DescribeUserScramCredentialsResult:
    if count > 1:
        return DescribeUserScramCredentialsResult(
            name,
            ErrorCode.DUPLICATE_RESOURCE,
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}",
        )
    if not iterations:
        return DescribeUserScramCredentialsResult(
            name,
            ErrorCode.RESOURCE_NOT_FOUND,
            f"Attempt to describe a user credential that does not exist: {name}",
        )
    infos = [CredentialInfo(mechanism, count) for mechanism, count in iterations.items()]
    return DescribeUserScramCredentialsResult(name, credential_infos=infos)
