"""Users of SCRAM are made, changed, removed and described, with Kafka's answers (ScramControlManager, ScramImage)."""

from __future__ import annotations

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kwire_protocol.messages.describe_user_scram_credentials import CredentialInfo

from kwire.metadata.controller.access.scram_users import (
    MAX_CHANGES_PER_REQUEST,
    alter_scram_credentials,
    credential_record,
    describe_scram_credentials,
)
from kwire.metadata.service import MetadataService
from kwire.security.sasl.scram import SCRAM_SHA_256, SCRAM_SHA_512, credential_of_password
from testkit.metadata.distant_log import answered
from testkit.metadata.harness import record, service

NONE, NOT_FOUND, DUPLICATE = ErrorCode.NONE, ErrorCode.RESOURCE_NOT_FOUND, ErrorCode.DUPLICATE_RESOURCE
UNACCEPTABLE, UNSUPPORTED = ErrorCode.UNACCEPTABLE_CREDENTIAL, ErrorCode.UNSUPPORTED_SASL_MECHANISM
TWICE = "A user credential cannot be altered twice in the same request"

Change = ScramCredentialDeletion | ScramCredentialUpsertion


def upsertion(
    name: str = "alice", mechanism: int = 1, iterations: int = 4096, password: str = "hers", salt: bytes = b"salt"
) -> ScramCredentialUpsertion:
    salted = (SCRAM_SHA_512 if mechanism == 2 else SCRAM_SHA_256).salted_password(
        password, salt, max(1, min(iterations, 20_000))
    )
    return ScramCredentialUpsertion(name, mechanism, iterations, salt, salted)


def deletion(name: str = "alice", mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name, mechanism)


def alter(metadata: MetadataService, *changes: Change) -> dict[str, tuple[int, str | None]]:
    request = AlterUserScramCredentialsRequest(
        [it for it in changes if isinstance(it, ScramCredentialDeletion)],
        [it for it in changes if isinstance(it, ScramCredentialUpsertion)],
    )
    response = answered(metadata.change(alter_scram_credentials, request))
    return {it.user: (it.error_code, it.error_message) for it in response.results}


def users(metadata: MetadataService) -> list[tuple[str, int]]:
    return sorted(metadata.image.access.scram_credentials)


def test_a_user_gets_the_credential_of_the_password() -> None:
    metadata = service()
    assert alter(metadata, upsertion(), upsertion("bob", 2, 16_384)) == {"alice": (NONE, None), "bob": (NONE, None)}
    for name, mechanism, iterations in (("alice", SCRAM_SHA_256, 4096), ("bob", SCRAM_SHA_512, 16_384)):
        credential = credential_of_password(mechanism, "hers", salt=b"salt", iterations=iterations)
        assert metadata.image.access.scram_credentials[name, mechanism.number] == credential_record(
            name, mechanism, credential
        )


def test_a_credential_is_changed_and_removed_for_one_mechanism() -> None:
    metadata = service()
    alter(metadata, upsertion())
    alter(metadata, upsertion(mechanism=2))
    alter(metadata, upsertion(iterations=8192))
    assert metadata.image.access.scram_credentials["alice", 1].iterations == 8192
    assert alter(metadata, deletion()) == {"alice": (NONE, None)}
    assert users(metadata) == [("alice", 2)]


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (upsertion(""), UNACCEPTABLE, "Username must not be empty"),
        (upsertion(mechanism=0), UNSUPPORTED, "Unknown SCRAM mechanism"),
        (upsertion(mechanism=3), UNSUPPORTED, "Unknown SCRAM mechanism"),
        (upsertion(iterations=4095), UNACCEPTABLE, "Too few iterations"),
        (upsertion(iterations=-1), UNACCEPTABLE, "Too few iterations"),
        (upsertion(iterations=16_385), UNACCEPTABLE, "Too many iterations"),
        (upsertion(iterations=(1 << 31) - 1), UNACCEPTABLE, "Too many iterations"),
        (ScramCredentialUpsertion("alice", 1, 4096, b"salt", b""), UNACCEPTABLE, "Salted password must not be empty"),
        (deletion(""), UNACCEPTABLE, "Username must not be empty"),
        (deletion(mechanism=-1), UNSUPPORTED, "Unknown SCRAM mechanism"),
        (deletion(), NOT_FOUND, "Attempt to delete a user credential that does not exist"),
    ],
    ids=lambda it: it if isinstance(it, str) else "",
)
def test_what_kafka_refuses_is_refused_and_the_others_are_carried_out(change: Change, code: int, message: str) -> None:
    metadata = service()
    assert alter(metadata, change, upsertion("bob")) == {change.name: (code, message), "bob": (NONE, None)}
    assert users(metadata) == [("bob", 1)]


@pytest.mark.parametrize(
    "changes",
    [
        (deletion(), deletion()),
        (deletion(), deletion(mechanism=2)),
        (deletion(), upsertion()),
        (deletion(), upsertion(mechanism=2)),
        (upsertion(), upsertion(mechanism=2)),
        (upsertion(), upsertion(), upsertion()),
    ],
)
def test_a_user_that_is_named_twice_is_left_as_it_is(changes: tuple[Change, ...]) -> None:
    metadata = service()
    alter(metadata, upsertion())
    alter(metadata, upsertion(mechanism=2))
    before = dict(metadata.image.access.scram_credentials)
    assert alter(metadata, *changes, upsertion("bob")) == {"alice": (DUPLICATE, TWICE), "bob": (NONE, None)}
    assert {key: it for key, it in metadata.image.access.scram_credentials.items() if key[0] == "alice"} == before


def test_the_first_mistake_of_a_user_is_reported() -> None:
    metadata = service()
    assert alter(metadata, deletion(), upsertion()) == {
        "alice": (NOT_FOUND, "Attempt to delete a user credential that does not exist")
    }
    assert users(metadata) == []


def test_a_request_has_a_bounded_number_of_changes() -> None:
    metadata = service()
    request = AlterUserScramCredentialsRequest([deletion(str(it)) for it in range(MAX_CHANGES_PER_REQUEST + 1)])
    with pytest.raises(KafkaError) as refused:
        answered(metadata.change(alter_scram_credentials, request))
    assert refused.value.code == ErrorCode.POLICY_VIOLATION


def test_users_are_described_with_their_mechanisms_and_iterations() -> None:
    metadata = service()
    record(
        metadata,
        *(
            credential_record(name, mechanism, credential_of_password(mechanism, "x", salt=b"s", iterations=iterations))
            for name, mechanism, iterations in (
                ("bob", SCRAM_SHA_512, 8192),
                ("alice", SCRAM_SHA_512, 4097),
                ("alice", SCRAM_SHA_256, 4096),
            )
        ),
    )
    access = metadata.image.access
    for everybody in (None, list[str]()):
        response = describe_scram_credentials(access, everybody)
        assert (response.error_code, response.error_message) == (NONE, "")
        assert {it.user: it.credential_infos for it in response.results} == {
            "alice": [CredentialInfo(1, 4096), CredentialInfo(2, 4097)],
            "bob": [CredentialInfo(2, 8192)],
        }
    response = describe_scram_credentials(access, ["bob", "carol", "alice", "alice"])
    assert [(it.user, it.error_code, it.error_message, len(it.credential_infos)) for it in response.results] == [
        ("bob", NONE, "", 1),
        ("carol", NOT_FOUND, "Attempt to describe a user credential that does not exist: carol", 0),
        (
            "alice",
            DUPLICATE,
            "Cannot describe SCRAM credentials for the same user twice in a single request: alice",
            0,
        ),
    ]
