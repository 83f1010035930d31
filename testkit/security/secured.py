"""A broker with secured listeners, for all tests of authentication and authorization.

Apache Kafka and kwire get the same server.properties, with the configurations that Kafka needs for a node that is
broker and controller, because that is promised: a file that works with one works with the other. `KWIRE_COMPAT`
chooses, as in brokers.py; it is one broker also where other tests have three.

| listener | protocol | its peculiarity |
|---|---|---|
| PLAINTEXT | PLAINTEXT | clients are ANONYMOUS, a super user. The tests administer the broker here |
| SSL | SSL | requests a certificate, but does not require it; key store and trust store are PKCS #12, elsewhere PEM |
| MUTUAL | SSL | requires a certificate |
| TRUSTING | SSL | requires one, too, and trusts both authorities |
| SASL_PLAINTEXT, SASL_SSL | the same | all mechanisms |
| BRIEF | SASL_PLAINTEXT | an authentication lasts `BRIEF_MS` |
| EXPIRED, MISNAMED | SSL | with a certificate that a client must not accept |

alice, bob and admin, a super user, have passwords for PLAIN and for SCRAM, and carol has a certificate. All users may
do everything with topics and groups whose names begin with `OPEN`, and nothing with others.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import attrs
import jwt
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric import rsa

from devtools.apache_kafka import BROKER_JVM, ApacheKafka
from testkit.raw import topics
from testkit.security.certificates import PASSWORD, Certificates, Identity
from testkit.servers import brokers

PLAIN: Final = "PLAIN"
SCRAM_256: Final = "SCRAM-SHA-256"
SCRAM_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, SCRAM_256, SCRAM_512, OAUTHBEARER)

LISTENERS: Final = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "MUTUAL": "SSL",
    "TRUSTING": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "BRIEF": "SASL_PLAINTEXT",
    "EXPIRED": "SSL",
    "MISNAMED": "SSL",
}
"""Their security protocols."""

PASSWORDS: Final = {"alice": "alice-secret", "bob": "bob-secret", "admin": "admin-secret"}
OPEN: Final = "open-"
BRIEF_MS: Final = 1500
ISSUER: Final = "https://issuer.example"
AUDIENCE: Final = "brokers"

_NODE_ID: Final = "1"
_SCRAM: Final = {SCRAM_256: ScramMechanism.SCRAM_SHA_256, SCRAM_512: ScramMechanism.SCRAM_SHA_512}
_SCRAM_ITERATIONS: Final = 4096
_CALL_TIMEOUT_S: Final = 20.0
_MODULES: Final = "org.apache.kafka.common.security"
_REFUSED_SLOWLY_MS: Final = 20
"""Apache Kafka answers wrong credentials after 100 ms by default."""


@attrs.frozen
class Way:
    """The authentication of a client: an address, a protocol, and an identity.

    authority: the certificate that it trusts. identity: its own, for SSL.
    """

    address: str
    protocol: str
    authority: Path
    mechanism: str = ""
    user: str = ""
    password: str = attrs.field(default="", repr=False)
    token: str = attrs.field(default="", repr=False)
    identity: Identity | None = None

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")


@attrs.frozen
class Tokens:
    """Issues signed tokens for OAUTHBEARER. `key_set` is the file with the key that brokers read."""

    key_set: Path
    _key: rsa.RSAPrivateKey
    _other_key: rsa.RSAPrivateKey

    @classmethod
    def make(cls, folder: Path) -> Tokens:
        key, other_key = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
        public = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
        key_set = folder / "keys.json"
        key_set.write_text(json.dumps({"keys": [{**public, "kid": "1", "alg": "RS256", "use": "sig"}]}))
        return cls(key_set, key, other_key)

    def issue(self, subject: str, *, lasts_s: float = 3600.0, forged: bool = False, **claims: object) -> str:
        """forged: signed with a key that the broker does not have. Negative `lasts_s`: it has expired."""
        now = time.time()
        all_claims = {
            "sub": subject,
            "iss": ISSUER,
            "aud": AUDIENCE,
            "iat": int(min(now, now + lasts_s)) - 60,
            "exp": int(now + lasts_s),
            **claims,
        }
        key = self._other_key if forged else self._key
        return jwt.encode(all_claims, key, algorithm="RS256", headers={"kid": "1"})


@attrs.frozen
class Secured:
    """The running broker, and what its clients need."""

    certificates: Certificates
    tokens: Tokens
    admin: AdminClient
    """The client at PLAINTEXT."""
    _addresses: dict[str, str]

    def address(self, listener: str) -> str:
        """`host:port`."""
        return self._addresses[listener]

    def way(
        self,
        listener: str,
        mechanism: str = "",
        *,
        user: str = "alice",
        identity: Identity | None = None,
        authority: Path | None = None,
    ) -> Way:
        """A way in with the user's own password or token."""
        credentials: dict[str, str] = {}
        if mechanism == OAUTHBEARER:
            credentials = {"token": self.tokens.issue(user)}
        elif mechanism:
            credentials = {"user": user, "password": PASSWORDS[user]}
        trusted = authority or self.certificates.authority
        protocol = LISTENERS[listener]
        return Way(self.address(listener), protocol, trusted, mechanism, **credentials, identity=identity)

    def create_topic(self, name: str) -> str:
        topics.create(self.address("PLAINTEXT"), name)
        return name

    def topic_names(self) -> set[str]:
        return set(self.admin.list_topics(timeout=_CALL_TIMEOUT_S).topics)

    def alter_broker(self, name: str, value: str | None) -> None:
        """A configuration; None removes what was set. Raises KafkaException."""
        operation = AlterConfigOpType.SET if value is not None else AlterConfigOpType.DELETE
        entry = ConfigEntry(name, value or "", incremental_operation=operation)
        broker = ConfigResource(ConfigResource.Type.BROKER, _NODE_ID, incremental_configs=[entry])
        for done in self.admin.incremental_alter_configs([broker]).values():
            done.result(_CALL_TIMEOUT_S)

    def set_password(self, user: str, password: str, *mechanisms: str) -> None:
        """Creates or changes a user of SCRAM."""
        for mechanism in mechanisms or _SCRAM:  # a request may name a user once only
            info = ScramCredentialInfo(_SCRAM[mechanism], _SCRAM_ITERATIONS)
            change = UserScramCredentialUpsertion(user, info, password.encode())
            self.admin.alter_user_scram_credentials([change])[user].result(_CALL_TIMEOUT_S)

    def remove_user(self, user: str, *mechanisms: str) -> None:
        """Removes a user of SCRAM."""
        for mechanism in mechanisms or _SCRAM:
            change = UserScramCredentialDeletion(user, _SCRAM[mechanism])
            self.admin.alter_user_scram_credentials([change])[user].result(_CALL_TIMEOUT_S)

    def allow(self, principal: str, operation: AclOperation, topic: str) -> AclBinding:
        """Returns the binding, for `forbid`."""
        binding = self.binding(principal, operation, ResourceType.TOPIC, topic)
        self.add(binding)
        return binding

    def add(self, *bindings: AclBinding) -> None:
        for done in self.admin.create_acls(list(bindings)).values():
            done.result(_CALL_TIMEOUT_S)

    def forbid(self, *bindings: AclBinding) -> None:
        """Takes back what was allowed."""
        for it in bindings:
            exactly = AclBindingFilter(
                it.restype, it.name, it.resource_pattern_type, it.principal, it.host, it.operation, it.permission_type
            )
            (done,) = self.admin.delete_acls([exactly]).values()
            assert done.result(_CALL_TIMEOUT_S) == [it]

    @staticmethod
    def binding(
        principal: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        pattern: ResourcePatternType = ResourcePatternType.LITERAL,
        denies: bool = False,
    ) -> AclBinding:
        permission = AclPermissionType.DENY if denies else AclPermissionType.ALLOW
        return AclBinding(resource_type, name, pattern, principal, "*", operation, permission)


@contextmanager
def secured_broker() -> Iterator[Secured]:
    with ExitStack() as ended:
        folder = Path(tempfile.mkdtemp(prefix="kwire-secured-"))
        ended.callback(shutil.rmtree, folder)
        certificates, tokens = Certificates.make(folder), Tokens.make(folder)
        settings = {**brokers.SETTINGS_OF_ONE, **_settings(certificates, tokens)}
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tokens.key_set.as_uri()}"
        more = [name for name in LISTENERS if name != "PLAINTEXT"]
        kafka = ApacheKafka(
            brokers.KAFKA_VERSION,
            settings,
            more_listeners=more,
            folder=folder / "broker",
            jvm_options=(*BROKER_JVM, allowed),
        )
        ended.enter_context(started(kafka))
        addresses = {name: kafka.address(name) for name in LISTENERS}
        running = Secured(certificates, tokens, topics.new_admin(addresses["PLAINTEXT"]), addresses)
        for user, password in PASSWORDS.items():
            running.set_password(user, password)
        running.add(
            *(
                running.binding("User:*", AclOperation.ALL, kind, OPEN, pattern=ResourcePatternType.PREFIXED)
                for kind in (ResourceType.TOPIC, ResourceType.GROUP)
            )
        )
        yield running


@contextmanager
def started(kafka: ApacheKafka) -> Iterator[Path]:
    """Starts Apache Kafka, or kwire with its server.properties, by `KWIRE_COMPAT`. Yields its log, a file."""
    if brokers.IS_KAFKA:
        with kafka:
            yield kafka.log_file
        return
    kafka.choose_ports()
    served = _ServedFromFile(kafka)
    served.start()
    try:
        yield served.log_file
    finally:
        served.kill()


class _ServedFromFile(brokers.KwireServe):
    """`kwire serve` with the server.properties that was written for Apache Kafka, and nothing else."""

    def __init__(self, kafka: ApacheKafka) -> None:
        super().__init__(kafka.folder, {}, port=kafka.port)
        self._properties = kafka.write_properties()

    @property
    def arguments(self) -> list[str]:
        return ["--config", str(self._properties)]


def _settings(certificates: Certificates, tokens: Tokens) -> dict[str, str]:
    protocols = {**LISTENERS, "CONTROLLER": "PLAINTEXT"}
    return {
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
        # The certificates' names contain the session of tests that made them.
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+),.*$/$1/,DEFAULT",
        "ssl.client.auth": "requested",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.server.pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority),
        **_key_store("ssl", certificates.server),
        "listener.name.ssl.ssl.truststore.type": "PKCS12",
        "listener.name.ssl.ssl.truststore.location": str(certificates.trust_store),
        "listener.name.ssl.ssl.truststore.password": PASSWORD,
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.trusting.ssl.client.auth": "required",
        "listener.name.trusting.ssl.truststore.location": str(certificates.both_authorities),
        **_key_store("expired", certificates.expired_server),
        **_key_store("misnamed", certificates.misnamed_server),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        **_mechanisms("sasl_plaintext"),
        **_mechanisms("sasl_ssl"),
        **_mechanisms("brief"),
        "listener.name.brief.connections.max.reauth.ms": str(BRIEF_MS),
        "sasl.oauthbearer.jwks.endpoint.url": tokens.key_set.as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "connection.failed.authentication.delay.ms": str(_REFUSED_SLOWLY_MS),
        "delegation.token.secret.key": "of-all-brokers",
    }


def _key_store(listener: str, identity: Identity) -> dict[str, str]:
    prefix = f"listener.name.{listener}.ssl."
    return {
        f"{prefix}keystore.type": "PKCS12",
        f"{prefix}keystore.location": str(identity.key_store),
        f"{prefix}keystore.password": PASSWORD,
        f"{prefix}key.password": PASSWORD,
    }


def _mechanisms(listener: str) -> dict[str, str]:
    users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
    prefix = f"listener.name.{listener}."
    scram = f"{_MODULES}.scram.ScramLoginModule required;"
    return {
        f"{prefix}plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required {users};",
        f"{prefix}scram-sha-256.sasl.jaas.config": scram,
        f"{prefix}scram-sha-512.sasl.jaas.config": scram,
        f"{prefix}oauthbearer.sasl.jaas.config": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;",
        f"{prefix}oauthbearer.sasl.server.callback.handler.class": (
            f"{_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
    }
