"""The broker configurations for ZooKeeper, of Kafka 3 and kwire's own."""

from __future__ import annotations

from typing import Final

from kwire.config.definition import table
from kwire.config.tables.rows import BOOLEAN, INT, PASSWORD, STRING, row
from kwire.config.validators import OneOf, Range

ZOOKEEPER_CONFIGS: Final = table(
    row(
        "kwire.zookeeper.digest",
        PASSWORD,
        None,
        None,
        "The user:password with which this node authenticates itself to ZooKeeper (scheme digest).",
    ),
    row(
        "zookeeper.connect",
        STRING,
        None,
        None,
        "The ZooKeeper servers as host:port, separated by commas, and after the last one the path of the cluster.",
    ),
    row(
        "zookeeper.connection.timeout.ms",
        INT,
        None,
        Range(1),
        "How long a start waits for a connection to ZooKeeper; as long as zookeeper.session.timeout.ms if not set.",
    ),
    row(
        "zookeeper.session.timeout.ms",
        INT,
        18000,
        Range(1),
        "How long this node counts as alive after ZooKeeper has lost the connection to it.",
    ),
    row(
        "zookeeper.set.acl",
        BOOLEAN,
        False,
        None,
        "Whether only the user of kwire.zookeeper.digest may change the nodes, or read the metadata.",
    ),
    row("zookeeper.ssl.client.enable", BOOLEAN, False, None, "Whether to connect to ZooKeeper with TLS."),
    row(
        "zookeeper.ssl.endpoint.identification.algorithm",
        STRING,
        "HTTPS",
        OneOf(("HTTPS", ""), any_case=True),
        "HTTPS: the server's certificate must have its host name. Empty: any host name will do.",
    ),
    row(
        "zookeeper.ssl.keystore.location",
        STRING,
        None,
        None,
        "A PEM file with this node's certificate and its private key.",
    ),
    row("zookeeper.ssl.keystore.password", PASSWORD, None, None, "The password of the private key."),
    row(
        "zookeeper.ssl.truststore.location",
        STRING,
        None,
        None,
        "A PEM file with the certificates that the servers' must be signed by; the machine's authorities if not set.",
    ),
)
