"""Decides on delegation tokens (KIP-48, KIP-373). The rules are those of Kafka's DelegationTokenControlManager.

    created       it expires after delegation.token.expiry.time.ms, and finally after delegation.token.max.lifetime.ms
                  or the shorter lifetime that was requested
    renewed       by its owner or one of its renewers: it expires later, but not after its lifetime
    expired       by the same: at once (a negative period), or at some time that may be sooner or later than before

    An expired token stays until the controller removes it, which checks periodically. Until then requests can only
    remove it, and no client can authenticate with it.

The owner is the principal that the token authenticates, the requester the one that requested it. They are the same
unless the requester may create tokens for others. The handlers check that, and the connections that may request tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_security import DelegationTokenRecord, RemoveDelegationTokenRecord
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from kwire_protocol.wire import uuid_to_text

from kwire.metadata.controller.deciding import ClusterState, Records, too_many
from kwire.metadata.features import METADATA_VERSION
from kwire.security.principal import USER, Principal

FIRST_METADATA_VERSION: Final = 14
"""3.6-IV2, the first one with tokens in the metadata log."""
MAX_RENEWERS: Final = 1000
"""The maximum number of renewers, which every broker stores as long as the token lives. Kafka has no limit."""
MAX_REMOVED_AT_ONCE: Final = 1000
_MAX_LONG: Final = (1 << 63) - 1


IdOf = Callable[[bytes], str | None]
"""Returns the id of the token whose HMAC this is, if there is one."""


def check_renewers(request: CreateDelegationTokenRequest) -> None:
    """Checks the renewers of a new token. Raises KafkaError: INVALID_PRINCIPAL_TYPE, POLICY_VIOLATION."""
    if any(renewer.principal_type != USER for renewer in request.renewers):
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    if len(request.renewers) > MAX_RENEWERS:
        raise too_many(len(request.renewers), "renewers", MAX_RENEWERS)


def create_token(
    state: ClusterState,
    request: CreateDelegationTokenRequest,
    *,
    owner: Principal,
    requester: Principal,
) -> tuple[Records, DelegationTokenRecord]:
    """Creates a token whose renewers have been checked (`check_renewers`). Raises KafkaError(UNSUPPORTED_VERSION)."""
    _check_version(state)
    now_ms = state.now_ms
    lifetime_ms = state.config.delegation_token_max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    ends_ms = _sum(now_ms, lifetime_ms)
    record = DelegationTokenRecord(
        owner=str(owner),
        requester=str(requester),
        renewers=[str(Principal(it.principal_type, it.principal_name)) for it in request.renewers],
        issue_timestamp=now_ms,
        max_timestamp=ends_ms,
        expiration_timestamp=min(ends_ms, _sum(now_ms, state.config.delegation_token_expiry_time_ms)),
        token_id=uuid_to_text(state.new_id()),
    )
    return [record], record


def renew_token(
    state: ClusterState, id_of: IdOf, token_hmac: bytes, *, period_ms: int, requester: Principal
) -> tuple[Records, int]:
    """Returns the new expiration timestamp, in ms. Raises KafkaError: UNSUPPORTED_VERSION, DELEGATION_TOKEN_NOT_FOUND,
    DELEGATION_TOKEN_EXPIRED, DELEGATION_TOKEN_OWNER_MISMATCH."""
    token = _found(state, id_of(token_hmac))
    if is_expired(token, state.now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    _check_renewer(token, requester)
    longest_ms = state.config.delegation_token_expiry_time_ms
    if period_ms <= 0 or period_ms > longest_ms:
        period_ms = longest_ms
    return _expiring(token, _sum(state.now_ms, period_ms))


def expire_token(
    state: ClusterState, id_of: IdOf, token_hmac: bytes, *, period_ms: int, requester: Principal
) -> tuple[Records, int]:
    """Changes the expiration; returns and raises as `renew_token`. An expired token can still be removed at once."""
    token = _found(state, id_of(token_hmac))
    now_ms = state.now_ms
    _check_renewer(token, requester)
    if period_ms < 0:
        return [RemoveDelegationTokenRecord(token.token_id)], now_ms
    if is_expired(token, now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    return _expiring(token, _sum(now_ms, period_ms))


def remove_expired(state: ClusterState) -> tuple[Records, bool]:
    """Removes expired tokens. Returns True if there may be more."""
    removed: Records = []
    for token in state.image.access.delegation_tokens.values():
        if is_expired(token, state.now_ms):
            if len(removed) == MAX_REMOVED_AT_ONCE:
                return removed, True
            removed.append(RemoveDelegationTokenRecord(token.token_id))
    return removed, False


def is_expired(token: DelegationTokenRecord, now_ms: int) -> bool:
    return token.max_timestamp < now_ms or token.expiration_timestamp < now_ms


def _check_version(state: ClusterState) -> None:
    level = state.image.features.get(METADATA_VERSION, 0)
    if level < FIRST_METADATA_VERSION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"metadata.version is {level}: delegation tokens need {FIRST_METADATA_VERSION} or more",
        )


def _found(state: ClusterState, token_id: str | None) -> DelegationTokenRecord:
    _check_version(state)
    token = None if token_id is None else state.image.access.delegation_tokens.get(token_id)
    if token is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    return token


def _check_renewer(token: DelegationTokenRecord, requester: Principal) -> None:
    if str(requester) not in (token.owner, *token.renewers):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _expiring(token: DelegationTokenRecord, expires_ms: int) -> tuple[Records, int]:
    expires_ms = min(token.max_timestamp, expires_ms)
    return [token.replace(expiration_timestamp=expires_ms)], expires_ms


def _sum(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, _MAX_LONG)
