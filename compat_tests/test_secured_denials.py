"""Failed authentication and missing rights, and the error of each client."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable

import attrs
import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kwire_protocol.messages.sasl_handshake import SaslHandshakeRequest

from kwire.security.sasl.scram import SCRAM_MECHANISMS
from testkit.raw.client import RawClient
from testkit.security.secured import OAUTHBEARER, OPEN, PASSWORDS, PLAIN, SCRAM_256, SCRAM_512, Secured
from testkit.security.secured_clients import CLIENTS, REFUSED_CERTIFICATE, Client

E = ErrorCode
# kafka-python reads the broker's last response only if the end of the connection does not arrive with it.
KAFKA_PYTHON_HEARD = r"(SaslAuthenticationFailedError: {}|socket disconnected)"
WRONG_PASSWORD = "Authentication failed: Invalid username or password"
WRONG_SCRAM = "Authentication failed during authentication due to invalid credentials with SASL mechanism {}"
INVALID_TOKEN = re.escape('{"status":"invalid_token"}')


def refused_sasl(text: str) -> dict[str, str]:
    return {
        "kafka-python": KAFKA_PYTHON_HEARD.replace("{}", text),
        "aiokafka": rf"SaslAuthenticationFailed: {text}$",
        "confluent-kafka": rf"^_AUTHENTICATION: .*SASL authentication error: {text}",
        "Java": rf"^SaslAuthenticationException: {text}$",
    }


# After an error, a client of OAUTHBEARER sends one more byte for the broker to return the error. aiokafka continues as
# if it were authenticated, and reports only that the connection ended, or that it has no metadata of a broker.
REFUSED_TOKEN = {**refused_sasl(INVALID_TOKEN), "aiokafka": "No broker metadata found|closed|Unable"}


def untrusted_server(reason: str) -> dict[str, str]:
    return {
        "kafka-python": f"certificate verify failed: {reason}",
        "aiokafka": f"certificate verify failed: {reason}",
        "confluent-kafka": "^_(SSL|TRANSPORT): .*certificate verify failed",
        "Java": "^SslAuthenticationException: SSL handshake failed$",
    }


@pytest.fixture(scope="module")
def some_topic(secured: Secured) -> str:
    return secured.create_topic(f"{OPEN}for-nobody")


@pytest.mark.parametrize("user", ["alice", "nobody"], ids=["wrong password", "unknown user"])
@pytest.mark.parametrize("mechanism", [PLAIN, SCRAM_256, SCRAM_512])
@pytest.mark.parametrize("client", CLIENTS, indirect=True)
def test_a_wrong_password_is_refused_as_an_unknown_user_is(
    secured: Secured, client_name: str, client: Client, mechanism: str, user: str, some_topic: str
) -> None:
    # Half of them with TLS beneath.
    listener = "SASL_PLAINTEXT" if user == "nobody" else "SASL_SSL"
    way = attrs.evolve(secured.way(listener, mechanism), user=user, password="wrong")
    text = WRONG_PASSWORD if mechanism == PLAIN else WRONG_SCRAM.format(mechanism)
    assert re.search(refused_sasl(text)[client_name], client.refusal(way, some_topic))


@pytest.mark.parametrize("mechanism", [SCRAM_256, SCRAM_512])
@pytest.mark.parametrize("repeated", ["", "first"], ids=["once", "twice"])
def test_a_client_of_scram_that_sends_its_nonce_twice_is_refused_as_for_a_wrong_password(
    secured: Secured, mechanism: str, repeated: str
) -> None:
    """librdkafka sends it so before version 2.6.1, and Debian 12's kcat has such a version."""
    scram = SCRAM_MECHANISMS[mechanism]
    with RawClient(secured.address("SASL_PLAINTEXT")) as client:
        client.call(SaslHandshakeRequest(mechanism), 1)
        challenge = client.call(SaslAuthenticateRequest(b"n,,n=alice,r=first"), 2).auth_bytes.decode()
        fields = dict(it.split("=", 1) for it in challenge.split(","))
        without_proof = f"c=biws,r={repeated}{fields['r']}"
        signed = f"n=alice,r=first,{challenge},{without_proof}".encode()
        salt, iterations = b64decode(fields["s"]), int(fields["i"])
        key = scram.client_key(scram.salted_password(PASSWORDS["alice"], salt, iterations))
        proof = bytes(one ^ other for one, other in zip(key, scram.hmac(scram.hash(key), signed), strict=True))
        final = f"{without_proof},p={b64encode(proof).decode()}"
        answer = client.call(SaslAuthenticateRequest(final.encode()), 2)
    expected = (E.SASL_AUTHENTICATION_FAILED, WRONG_SCRAM.format(mechanism)) if repeated else (E.NONE, "")
    assert (answer.error_code, answer.error_message) == expected


@pytest.mark.parametrize("what", ["expired", "forged", "for others", "by others"])
@pytest.mark.parametrize("client", CLIENTS, indirect=True)
def test_a_token_that_does_not_hold_is_refused(
    secured: Secured, client_name: str, client: Client, what: str, some_topic: str
) -> None:
    tokens = {
        "expired": lambda: secured.tokens.issue("alice", lasts_s=-3600),
        "forged": lambda: secured.tokens.issue("alice", forged=True),
        "for others": lambda: secured.tokens.issue("alice", aud="others"),
        "by others": lambda: secured.tokens.issue("alice", iss="https://others.example"),
    }
    way = attrs.evolve(secured.way("SASL_PLAINTEXT", OAUTHBEARER), token=tokens[what]())
    assert re.search(REFUSED_TOKEN[client_name], client.refusal(way, some_topic))


@pytest.mark.parametrize("who", ["nobody", "stranger", "expired"])
@pytest.mark.parametrize("client", CLIENTS, indirect=True)
def test_a_listener_that_insists_on_a_certificate_takes_no_other(
    secured: Secured, client_name: str, client: Client, who: str, some_topic: str
) -> None:
    certificates = secured.certificates
    identity = {"nobody": None, "stranger": certificates.stranger, "expired": certificates.expired_client}[who]
    message = client.refusal(secured.way("MUTUAL", identity=identity), some_topic)
    assert re.search(REFUSED_CERTIFICATE[client_name], message)


@pytest.mark.parametrize("client", CLIENTS, indirect=True)
def test_an_expired_certificate_is_refused_also_where_none_is_needed(
    secured: Secured, client_name: str, client: Client, some_topic: str
) -> None:
    message = client.refusal(secured.way("SSL", identity=secured.certificates.expired_client), some_topic)
    assert re.search(REFUSED_CERTIFICATE[client_name], message)


@pytest.mark.parametrize("client", CLIENTS, indirect=True)
def test_clients_do_not_trust_an_expired_server(
    secured: Secured, client_name: str, client: Client, some_topic: str
) -> None:
    message = client.refusal(secured.way("EXPIRED"), some_topic)
    assert re.search(untrusted_server("certificate has expired")[client_name], message)


@pytest.mark.parametrize("client", CLIENTS, indirect=True)
def test_clients_do_not_trust_a_server_of_another_name(
    secured: Secured, client_name: str, client: Client, some_topic: str
) -> None:
    message = client.refusal(secured.way("MISNAMED"), some_topic)
    assert re.search(untrusted_server("IP address mismatch")[client_name], message)


@pytest.mark.parametrize("client", CLIENTS, indirect=True)
def test_clients_do_not_trust_a_server_of_another_authority(
    secured: Secured, client_name: str, client: Client, some_topic: str
) -> None:
    message = client.refusal(secured.way("SSL", authority=secured.certificates.other_authority), some_topic)
    # The server may send the certificate of its authority with its own.
    reason = "(unable to get local issuer certificate|self-signed certificate in certificate chain)"
    assert re.search(untrusted_server(reason)[client_name], message)


DENIED = {
    "kafka-python": "TopicAuthorizationFailedError",
    "aiokafka": "TopicAuthorizationFailedError",
    "confluent-kafka": "TOPIC_AUTHORIZATION_FAILED",
    "Java": "TopicAuthorizationException",
}


@pytest.mark.parametrize("client", CLIENTS, indirect=True)
def test_a_client_that_may_not_write_gets_the_error(
    secured: Secured, client_name: str, client: Client, unique: Callable[[str], str]
) -> None:
    topic = secured.create_topic(unique("closed"))
    assert client.error_of_producing(secured.way("SASL_SSL", SCRAM_256), topic) == DENIED[client_name]


@pytest.mark.parametrize("client", CLIENTS, indirect=True)
def test_a_topic_that_is_not_there_looks_like_one_that_is(
    secured: Secured, client_name: str, client: Client, unique: Callable[[str], str]
) -> None:
    missing = unique("missing")
    assert client.error_of_producing(secured.way("SASL_SSL", SCRAM_256), missing) == DENIED[client_name]
    assert missing not in secured.topic_names()
