"""kwire.testing: the broker in the caller's process, and the pytest fixture."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.metadata import MetadataRequest

from kwire.config.server import ConfigError
from kwire.node.running import StartError
from kwire.security.tls.dev_certificates import DevAuthority
from kwire.testing import Broker
from testkit.raw.client import RawClient

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.filterwarnings(
    "ignore:read_text is deprecated",  # kafka-python, when it is imported
    "ignore:open_text is deprecated",
    "ignore:unclosed <socket.socket:ResourceWarning",  # and when it was not let in
    "ignore:unclosed <ssl.SSLSocket:ResourceWarning",
)


@pytest.fixture(scope="module", autouse=True)
def forgotten_sockets_are_collected() -> Iterator[None]:
    """Collects them so that they do not come to light in a test elsewhere."""
    yield
    gc.collect()


def topics(broker: Broker) -> dict[str | None, int]:
    with RawClient(broker.address) as client:
        return {topic.name: len(topic.partitions) for topic in client.call(MetadataRequest(None), 9).topics}


def create(broker: Broker, name: str) -> None:
    with RawClient(broker.address) as client:
        assert client.call(CreateTopicsRequest([CreatableTopic(name, -1, -1)], 1000), 7).topics[0].error_code == 0


def test_several_brokers_live_side_by_side() -> None:
    with Broker() as one, Broker(on_disk=True) as other:
        assert one.address != other.address
        create(one, "only-here")
        assert topics(one) == {"only-here": 1}
        assert topics(other) == {}


def test_a_stopped_broker_leaves_nothing_behind() -> None:
    before = set(threading.enumerate())
    broker = Broker(on_disk=True).start()
    assert broker._temporary is not None
    folder = Path(broker._temporary.name)
    assert folder.exists()
    broker.stop()
    assert not folder.exists()
    assert {thread for thread in threading.enumerate() if thread.name.startswith("kwire")} <= before


def test_a_broker_on_a_kept_folder_finds_everything_again(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        create(broker, "kept")
    with Broker(data_dir=tmp_path) as broker:
        assert topics(broker) == {"kept": 1}


def test_a_folder_that_no_topic_has_is_set_aside_and_kept(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        create(broker, "known")
    (tmp_path / "unknown-0").mkdir()
    (tmp_path / "unknown-0" / "00000000000000000000.log").write_bytes(b"")
    with Broker(data_dir=tmp_path) as broker:
        assert topics(broker) == {"known": 1}
        create(broker, "unknown")
    kept = [folder for folder in tmp_path.iterdir() if folder.name.endswith("-stray")]
    assert len(kept) == 1
    assert (kept[0] / "00000000000000000000.log").exists()


def test_a_broker_can_be_started_again_on_its_port(tmp_path: Path) -> None:
    broker = Broker(data_dir=tmp_path)
    address = broker.start().address
    broker.stop()
    assert broker.start().address == address
    broker.stop()


def test_settings_are_kafkas() -> None:
    with Broker(settings={"num.partitions": "3"}) as broker:
        create(broker, "wide")
        assert topics(broker) == {"wide": 3}


def test_a_bad_setting_is_reported_where_the_broker_is_started() -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        Broker(settings={"num.partitions": "many"}).start()


def test_a_second_broker_on_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path), pytest.raises(StartError, match="another broker is using"):
        Broker(data_dir=tmp_path).start()


def test_a_port_in_use_is_reported() -> None:
    with Broker() as broker, pytest.raises(StartError, match=str(broker.port)):
        Broker(port=broker.port).start()


def test_the_fixture_gives_each_test_a_broker_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from kwire.tests.test_testing_broker import create, topics

        @pytest.mark.parametrize("run", [1, 2])
        def test_own(kwire_broker, run):
            assert topics(kwire_broker) == {}
            create(kwire_broker, "mine")

        @pytest.mark.kwire_settings({"num.partitions": "4"})
        def test_settings(kwire_broker):
            create(kwire_broker, "wide")
            assert topics(kwire_broker) == {"wide": 4}
        """
    )
    pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider").assert_outcomes(passed=3)


SECRETS = {"alice": "secret", "o'neil \\": 'a "quote", a \\ and a\ttab; é'}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
WAYS = [
    (users, tls, mechanism)
    for users, tls in ((SECRETS, True), (SECRETS, False), ({}, True))
    for mechanism in (MECHANISMS if users else ("",))
]


def topics_by_kafka_python(
    broker: Broker, *, trusting: str | None, mechanism: str, user: str, password: str, waits_s: int = 10
) -> set[str]:
    """Lists topics. Raises PermissionError."""
    import kafka.errors

    settings: dict[str, Any] = {"security_protocol": broker.security_protocol}
    if broker.tls:
        settings["ssl_cafile"] = trusting
    if mechanism:
        settings |= {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": user,
            "sasl_plain_password": password,
        }
    try:
        admin = kafka.KafkaAdminClient(
            bootstrap_servers=broker.address, bootstrap_timeout_ms=waits_s * 1000, **settings
        )
    except kafka.errors.KafkaTimeoutError as error:  # it keeps trying, and writes the reason to its log only
        raise PermissionError from error
    try:
        return set(admin.list_topics())
    finally:
        admin.close()


def topics_by_confluent(
    broker: Broker, *, trusting: str | None, mechanism: str, user: str, password: str, waits_s: int = 10
) -> set[str]:
    """Lists topics. Raises PermissionError."""
    errors: list[str] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.address,
        "security.protocol": broker.security_protocol,
        "error_cb": lambda error: errors.append(error.name()),
    }
    if trusting is not None:
        settings["ssl.ca.location"] = trusting
    if mechanism:
        settings |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    admin = AdminClient(settings)
    try:
        return set(admin.list_topics(timeout=waits_s).topics)
    except confluent_kafka.KafkaException as error:
        admin.poll(0)
        raise PermissionError(errors) from error


@pytest.mark.parametrize("list_topics", [topics_by_kafka_python, topics_by_confluent])
@pytest.mark.parametrize(("users", "tls", "mechanism"), WAYS)
def test_clients_log_in_as_one_of_the_users(
    list_topics: Callable[..., set[str]], users: dict[str, str], tls: bool, mechanism: str
) -> None:
    with Broker(users=users, tls=tls) as broker:
        assert (
            broker.security_protocol
            == {(2, True): "SASL_SSL", (2, False): "SASL_PLAINTEXT", (0, True): "SSL"}[len(users), tls]
        )
        trusting = broker.ca_file if tls else None
        for user, password in users.items() if users else [("", "")]:
            assert list_topics(broker, trusting=trusting, mechanism=mechanism, user=user, password=password) == set()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_a_wrong_password_is_refused(mechanism: str, user: str) -> None:
    with Broker(users=SECRETS, tls=True) as broker:
        wrong: dict[str, Any] = {"mechanism": mechanism, "user": user, "password": "wrong", "waits_s": 1}
        wrong["trusting"] = broker.ca_file
        with pytest.raises(PermissionError, match="_AUTHENTICATION"):
            topics_by_confluent(broker, **wrong)
        with pytest.raises(PermissionError):
            topics_by_kafka_python(broker, **wrong)


def test_a_client_that_does_not_trust_the_authority_does_not_log_in() -> None:
    with Broker(users=SECRETS, tls=True) as broker, Broker(tls=True) as other:
        distrusting: dict[str, Any] = {"mechanism": "PLAIN", "user": "alice", "password": "secret", "waits_s": 1}
        distrusting["trusting"] = other.ca_file
        with pytest.raises(PermissionError, match="_SSL"):
            topics_by_confluent(broker, **distrusting)
        with pytest.raises(PermissionError):
            topics_by_kafka_python(broker, **distrusting)


def test_a_restarted_broker_has_the_same_authority_and_leaves_no_file_at_the_end() -> None:
    broker = Broker(tls=True).start()
    first = Path(broker.ca_file).read_bytes()
    folder = Path(broker.ca_file).parent
    broker.stop()
    assert not folder.exists()
    with broker:
        assert Path(broker.ca_file).read_bytes() == first
        assert [it.name for it in Path(broker.ca_file).parent.iterdir()] == ["ca.pem"]
    with pytest.raises(AssertionError, match="does not run with tls"):
        _ = broker.ca_file


def test_settings_win_over_what_users_and_tls_make(tmp_path: Path) -> None:
    authority = DevAuthority.new()
    (tmp_path / "server.pem").write_bytes(authority.server())
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    settings = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "server.pem"),
    }
    with Broker(users=SECRETS, tls=True, settings=settings) as broker:
        alice: dict[str, Any] = {"trusting": str(tmp_path / "ca.pem"), "user": "alice", "password": "secret"}
        assert topics_by_confluent(broker, mechanism="SCRAM-SHA-512", **alice) == set()
        with pytest.raises(PermissionError):
            topics_by_confluent(broker, mechanism="PLAIN", waits_s=1, **alice)


@pytest.mark.parametrize("users", [{"": "secret"}, {"alice": ""}])
def test_a_user_without_a_name_or_a_password_is_rejected(users: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="needs a name and a password"):
        Broker(users=users).start()


def test_passwords_are_not_shown() -> None:
    assert "secret" not in repr(Broker(users={"alice": "secret"}))
