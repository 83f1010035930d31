"""Adds, lists and deletes the SCRAM users of a cluster (KIP-554)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import quoted
from kwire_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kwire_protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName

from kwire.client.cluster import Cluster
from kwire.client.errors import Refused, refused


class UserNotFound(Refused):
    """There is no such user."""

    def __init__(self, name: str) -> None:
        super().__init__(f"user {quoted(name)} not found", ErrorCode.RESOURCE_NOT_FOUND)


@attrs.frozen
class User:
    name: str
    iterations: Mapping[int, int]
    """The number of iterations of the hash, by the number of each mechanism with a password."""


@attrs.frozen
class NewCredential:
    mechanism: int
    iterations: int
    salt: bytes = attrs.field(repr=False)
    salted_password: bytes = attrs.field(repr=False)


def list_users(cluster: Cluster, names: Sequence[str] | None = None) -> list[User]:
    """Returns these users, or all, by name. Raises Refused, and UserNotFound for the first that does not exist."""
    users = None if names is None else [UserName(name) for name in dict.fromkeys(names)]
    answer = cluster.call(DescribeUserScramCredentialsRequest(users))
    if answer.error_code:
        raise refused("the users cannot be listed", answer.error_code, answer.error_message)
    found = []
    for it in answer.results:
        if it.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            raise UserNotFound(it.user)
        if it.error_code:
            raise refused(f"user {quoted(it.user)} cannot be shown", it.error_code, it.error_message)
        found.append(User(it.user, {of.mechanism: of.iterations for of in it.credential_infos}))
    return sorted(found, key=lambda it: it.name)


def put_user(cluster: Cluster, name: str, credentials: Sequence[NewCredential]) -> None:
    """Adds a user, or changes its password. Raises Refused; earlier credentials are set by then."""
    for it in credentials:  # one request each, since a request may name a user once
        upsertion = ScramCredentialUpsertion(name, it.mechanism, it.iterations, it.salt, it.salted_password)
        _alter(cluster, name, AlterUserScramCredentialsRequest(upsertions=[upsertion]))


def delete_user(cluster: Cluster, name: str, mechanisms: Collection[int]) -> None:
    """Deletes the user's passwords for these mechanisms. Raises Refused."""
    for mechanism in mechanisms:
        _alter(cluster, name, AlterUserScramCredentialsRequest([ScramCredentialDeletion(name, mechanism)]))


def _alter(cluster: Cluster, name: str, request: AlterUserScramCredentialsRequest) -> None:
    for result in cluster.call(request).results:
        if result.error_code:
            raise refused(f"user {quoted(name)} was not changed", result.error_code, result.error_message)
