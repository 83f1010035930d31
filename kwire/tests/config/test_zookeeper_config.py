"""zookeeper.connect and its related settings."""

from __future__ import annotations

import pytest
from kwire_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

from kwire.config.definition import ConfigError, ConfigType
from kwire.config.server import load_config
from kwire.config.tables.broker import broker_config
from kwire.config.zookeeper import ZooKeeperConfig
from kwire.metadata.config_description import describe_configs
from testkit.metadata.harness import open_service


def read(text: str) -> ZooKeeperConfig:
    config = load_config(text).zookeeper
    assert config is not None
    return config


def test_without_zookeeper_connect_there_is_none() -> None:
    assert load_config().zookeeper is None
    assert load_config("zookeeper.connect=\nzookeeper.set.acl=true").zookeeper is None


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("zk", ("zk:2181",), ""),
        ("zk:1", ("zk:1",), ""),
        ("zk:1/", ("zk:1",), ""),
        ("a:1, b.example:22 ,10.0.0.1", ("a:1", "b.example:22", "10.0.0.1:2181"), ""),
        ("a:1,[::1]:2/kafka", ("a:1", "[::1]:2"), "/kafka"),
        ("a:1/clusters/one/", ("a:1",), "/clusters/one"),
    ],
)
def test_servers_are_separated_by_commas_and_a_path_follows_the_last_one(
    text: str, servers: tuple[str, ...], chroot: str
) -> None:
    config = read(f"zookeeper.connect={text}")
    assert (config.servers, config.chroot) == (servers, chroot)


@pytest.mark.parametrize("text", ["a:1,", ",a:1", "a:b", "a:0", "a:65536", "/kafka", "a b:1", "a:1:2"])
def test_what_is_no_server_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="write host:port, several separated by commas"):
        read(f"zookeeper.connect={text}")


@pytest.mark.parametrize("text", ["a:1//kafka", "a:1/k b", "a:1/..", "a:1/k/./l"])
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="write names separated by one slash each"):
        read(f"zookeeper.connect={text}")


def test_defaults_are_those_of_kafka_3() -> None:
    config = read("zookeeper.connect=a")
    assert config.session_timeout_ms == config.connection_timeout_ms == 18_000
    assert not config.set_acl
    assert not config.ssl_client_enable
    assert config.ssl_checks_host_name
    later = read("zookeeper.connect=a\nzookeeper.session.timeout.ms=6000\nzookeeper.connection.timeout.ms=1")
    assert (later.session_timeout_ms, later.connection_timeout_ms) == (6000, 1)
    assert not read("zookeeper.connect=a\nzookeeper.ssl.endpoint.identification.algorithm=").ssl_checks_host_name


def test_access_control_needs_credentials() -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.set\.acl needs kwire\.zookeeper\.digest"):
        read("zookeeper.connect=a\nzookeeper.set.acl=true")
    for digest in ("user", ":password", "user:"):
        with pytest.raises(ConfigError, match=r"^kwire\.zookeeper\.digest is not of the form user:password$"):
            read(f"zookeeper.connect=a\nkwire.zookeeper.digest={digest}")
    config = read("zookeeper.connect=a\nzookeeper.set.acl=true\nkwire.zookeeper.digest=user:with:colons ")
    assert config.digest == "user:with:colons "


def test_passwords_are_neither_shown_nor_described() -> None:
    settings = {
        "zookeeper.connect": "a",
        "kwire.zookeeper.digest": "user:secret",
        "zookeeper.ssl.keystore.password": "secret",
    }
    names = ["kwire.zookeeper.digest", "zookeeper.ssl.keystore.password"]
    for name in names:
        definition = broker_config(name)
        assert definition is not None
        assert definition.type is ConfigType.PASSWORD
    service, _ = open_service(settings=settings)
    assert "secret" not in repr(service.config.zookeeper)
    request = DescribeConfigsRequest([DescribeConfigsResource(4, "1", names)], include_synonyms=True)
    described = describe_configs(service.state, request, loggers={})
    assert [it.is_sensitive for it in described.results[0].configs] == [True, True]
    assert "secret" not in repr(described)
