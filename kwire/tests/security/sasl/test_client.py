"""A client's login module becomes a machine that logs in, or an error that names what to write."""

from __future__ import annotations

import pytest

from kwire.security.sasl.client import client_exchange
from kwire.security.sasl.jaas import MODULES, OAUTHBEARER_MODULE, PLAIN_MODULE, SCRAM_MODULE, JaasError, LoginModule

LOGIN = {"username": "alice", "password": "hers"}


@pytest.mark.parametrize(
    ("mechanism", "options", "first"),
    [
        ("PLAIN", LOGIN, b"\0alice\0hers"),
        ("SCRAM-SHA-256", LOGIN, b"n,,n=alice,r=nonce"),
        ("SCRAM-SHA-512", {**LOGIN, "tokenauth": "True"}, b"n,,n=alice,r=nonce,tokenauth=true"),
        ("SCRAM-SHA-512", {**LOGIN, "tokenauth": "yes"}, b"n,,n=alice,r=nonce"),
    ],
)
def test_each_mechanism_begins_with_the_options_of_its_login_module(
    mechanism: str, options: dict[str, str], first: bytes
) -> None:
    exchange = client_exchange(mechanism, LoginModule(MODULES[mechanism], "required", options), nonce="nonce")
    assert (exchange.mechanism, exchange.respond(None)) == (mechanism, first)


@pytest.mark.parametrize(
    ("mechanism", "module", "options", "message"),
    [
        ("GSSAPI", PLAIN_MODULE, LOGIN, "the mechanism GSSAPI is none of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ("OAUTHBEARER", OAUTHBEARER_MODULE, LOGIN, "the mechanism OAUTHBEARER is none of PLAIN, SCRAM-SHA-256"),
        ("PLAIN", SCRAM_MODULE, LOGIN, f"the login module of PLAIN is {PLAIN_MODULE}, and not {SCRAM_MODULE}"),
        ("SCRAM-SHA-256", PLAIN_MODULE, LOGIN, f"is {SCRAM_MODULE}, and not {PLAIN_MODULE}"),
        ("PLAIN", PLAIN_MODULE, {"password": "hers"}, 'has no username: add username="..." before the semicolon'),
        ("PLAIN", PLAIN_MODULE, {"username": "alice", "password": ""}, "has no password: add password="),
    ],
)
def test_a_login_module_that_cannot_be_used_is_refused_with_what_to_write(
    mechanism: str, module: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(JaasError) as error:
        client_exchange(mechanism, LoginModule(module, "required", options), nonce="nonce")
    assert message in str(error.value)
