"""The server's configuration as typed values, from the file, the flags and the defaults.

In order of increasing precedence: kwire's defaults, those of the program that starts the broker, the server.properties
text, `--set name=value`, `--listen` and `--data-dir`. Names, types and checks are Kafka's (`kwire.config.tables`).
Unknown names, and names that have no effect in kwire, only cause a warning, so that a Kafka configuration file can be
used unchanged.

`ServerConfig` is frozen. It has the values at startup of configurations that can change at run time;
`MetadataService.config` has the current values.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from kwire.config.definition import ConfigError, Value
from kwire.config.listeners import (
    Listener,
    check_advertisable,
    check_bindable,
    inter_broker_listener,
    parse_address,
    parse_listeners,
    parse_protocol_map,
)
from kwire.config.properties import parse_properties
from kwire.config.reading import ConfigReader
from kwire.config.relations import violations
from kwire.config.resolution import overlay
from kwire.config.suggestions import listed
from kwire.config.tables.broker import (
    BROKER_NAMES_OF_TOPIC_CONFIGS,
    HONOURED_CONFIGS,
    broker_config,
    broker_configs,
    has_effect,
    has_effect_for_listener,
    listener_config,
)
from kwire.config.validators import counts_of_hosts
from kwire.config.zookeeper import ZooKeeperConfig
from kwire.names.topic_names import INTERNAL_TOPICS, InternalTopicSettings
from kwire.security.principal import parse_principals

if TYPE_CHECKING:
    from kwire.config.sasl import MechanismSettings

__all__ = ["METRICS_LISTEN", "ConfigError", "Listener", "ServerConfig", "load_config"]

log = logging.getLogger(__name__)

MINUTE_MS = 60_000
NOTHING_ELSE: Mapping[str, str] = {}
QUEUED_MAX_REQUEST_BYTES = 512 << 20
METRICS_LISTEN = "kwire.metrics.listen"
_FOR_THE_AUTHORIZER = ("allow.everyone.if.no.acl.found", "super.users")


@attrs.frozen
class InternalTopicSizes:
    """The settings with which an internal topic is created. If `min_isr` is None, min.insync.replicas of the brokers
    applies."""

    num_partitions: int
    replication_factor: int
    segment_bytes: int
    min_isr: int | None


@attrs.frozen
class ServerConfig:
    """Each field has the name of a Kafka configuration, with underscores for dots, and its meaning.

    `properties` are the configured texts by name. `defaults` are the texts of names whose default differs from the
    tables, because the program that starts this broker has its own. If `advertised_listeners` is empty, clients receive
    the address to which they connected. Replication factors are as configured; a broker that is alone limits them to 1.
    Numbers without a unit in their name are counts.
    """

    properties: Mapping[str, str] = attrs.field(repr=False)
    defaults: Mapping[str, str] = attrs.field(repr=False)
    node_id: int
    cluster_id: str | None
    kwire_audit_log: str
    """kwire.audit.log."""
    kwire_audit_log_format: str
    """kwire.audit.log.format."""
    kwire_audit_log_max_lines_per_second: int
    """kwire.audit.log.max.lines.per.second."""
    kwire_authentication_timeout_ms: int
    """kwire.authentication.timeout.ms."""
    kwire_cluster_dir: str | None
    """kwire.cluster.dir."""
    kwire_fast_paths_enable: bool
    """kwire.fast.paths.enable."""
    kwire_log_max_open_files: int
    """kwire.log.max.open.files; 0: see `kwire.runtime.descriptors`."""
    kwire_log_reserve_bytes: int
    """kwire.log.reserve.bytes, of each log dir."""
    kwire_metrics_listen: Listener | None
    """kwire.metrics.listen; None: metrics are not served."""
    kwire_sasl_secret: str | None = attrs.field(repr=False)
    """kwire.sasl.secret; None: random at each start."""
    kwire_spin_us: int
    """kwire.spin.us, microseconds."""
    broker_rack: str | None
    listeners: tuple[Listener, ...]
    advertised_listeners: tuple[Listener, ...]
    inter_broker_listener_name: str
    """The name of the listener at which brokers reach each other, also if security.inter.broker.protocol selects it."""
    log_dirs: tuple[str, ...]
    metadata_log_dir: str
    """metadata.log.dir, or the first of log.dirs."""
    metadata_log_max_record_bytes_between_snapshots: int
    metadata_log_max_snapshot_interval_ms: int
    num_recovery_threads_per_data_dir: int

    connections_max_idle_ms: int
    connection_failed_authentication_delay_ms: int
    max_connections: int
    max_connection_creation_rate: int
    max_connection_creation_rates: Mapping[str, int]
    """max.connection.creation.rate of each listener, by its name."""
    max_connections_per_ip: int
    max_connections_per_ip_overrides: Mapping[str, int]
    """max.connections.per.ip.overrides, by host."""
    sasl_server_max_receive_size: int
    socket_listen_backlog_size: int
    socket_receive_buffer_bytes: int
    socket_request_max_bytes: int
    queued_max_request_bytes: int
    socket_send_buffer_bytes: int

    allow_everyone_if_no_acl_found: bool
    authorizer_class_name: str
    """The only authorizer that kwire has, or empty."""
    super_users: frozenset[str]
    """Principals as text: User:admin."""

    delegation_token_expiry_check_interval_ms: int
    delegation_token_expiry_time_ms: int
    delegation_token_max_lifetime_ms: int
    delegation_token_secret_key: str | None = attrs.field(repr=False)
    """delegation.token.secret.key; None: delegation tokens are disabled."""

    unstable_api_versions_enable: bool
    alter_log_dirs_replication_quota_window_num: int
    alter_log_dirs_replication_quota_window_size_seconds: int
    auto_create_topics_enable: bool
    auto_leader_rebalance_enable: bool
    controller_quota_window_num: int
    controller_quota_window_size_seconds: int
    default_replication_factor: int
    delete_topic_enable: bool
    fetch_max_bytes: int
    follower_replication_throttled_rate: int
    leader_imbalance_check_interval_seconds: int
    leader_replication_throttled_rate: int
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    num_partitions: int
    num_replica_fetchers: int
    producer_id_expiration_check_interval_ms: int
    producer_id_expiration_ms: int
    quota_window_num: int
    quota_window_size_seconds: int
    replica_alter_log_dirs_io_max_bytes_per_second: int
    replica_fetch_backoff_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    replica_lag_time_max_ms: int
    replica_selector_class: str | None
    replica_socket_timeout_ms: int
    replication_quota_window_num: int
    replication_quota_window_size_seconds: int

    log_flush_offset_checkpoint_interval_ms: int
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_enable: bool
    log_cleaner_io_max_bytes_per_second: float
    log_retention_check_interval_ms: int
    log_segment_delete_delay_ms: int

    errors_deadletterqueue_auto_create_topics_enable: bool
    errors_deadletterqueue_topic_name_prefix: str
    group_consumer_assignors: tuple[str, ...]
    group_consumer_max_size: int
    group_consumer_migration_policy: str
    group_consumer_regex_refresh_interval_ms: int
    group_coordinator_rebalance_protocols: tuple[str, ...]
    group_initial_rebalance_delay_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_min_session_timeout_ms: int
    group_share_initialize_retry_interval_ms: int
    group_share_max_share_sessions: int
    group_share_max_size: int
    group_streams_max_size: int
    group_streams_topology_description_plugin_class: str | None
    offset_metadata_max_bytes: int
    offsets_retention_check_interval_ms: int
    offsets_retention_ms: int
    """offsets.retention.minutes, in milliseconds."""

    add_partitions_to_txn_retry_backoff_max_ms: int
    add_partitions_to_txn_retry_backoff_ms: int
    share_coordinator_cold_partition_snapshot_interval_ms: int
    share_coordinator_snapshot_update_records_per_snapshot: int
    share_coordinator_state_topic_prune_interval_ms: int
    share_coordinator_write_timeout_ms: int
    transaction_max_timeout_ms: int
    transaction_partition_verification_enable: bool
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_two_phase_commit_enable: bool
    transactional_id_expiration_ms: int

    internal_topics: Mapping[str, InternalTopicSizes]
    """The settings with which internal topics are created, by their names."""
    sasl: Mapping[str, tuple[MechanismSettings, ...]]
    """The mechanisms of each listener that uses SASL, by its name."""
    zookeeper: ZooKeeperConfig | None
    """zookeeper.connect and the configurations that belong to it; None if it is not set."""

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], *, defaults: Mapping[str, str] = NOTHING_ELSE
    ) -> ServerConfig:
        """Raises ConfigError for the first invalid value."""
        texts = overlay(defaults, properties) if defaults else properties
        read = ConfigReader(texts)
        for name, text in texts.items():
            definition = broker_config(name)
            if definition is not None:
                definition.parse(text)
        protocols = parse_protocol_map(read.text("listener.security.protocol.map"))
        controllers = read.names("controller.listener.names")
        listeners = parse_listeners("listeners", read.names("listeners"), protocols, controllers)
        advertised = parse_listeners("advertised.listeners", read.names("advertised.listeners"), protocols, controllers)
        check_bindable(listeners)
        check_advertisable(advertised, listeners)
        for violation in violations(texts):
            raise ConfigError(violation.message)
        node_id = _node_id(properties, read)
        log_dirs = read.names("log.dirs") or read.names("log.dir") or ("./data",)
        _check_log_dirs(log_dirs)
        values: dict[str, Any] = {
            # As in Kafka's description, the node has both names, even if only one was configured.
            "properties": {**properties, "node.id": str(node_id), "broker.id": str(node_id)},
            "defaults": defaults,
            "node_id": node_id,
            "cluster_id": read.optional_text("kwire.cluster.id"),
            "kwire_metrics_listen": _metrics_listener(read),
            "listeners": listeners,
            "advertised_listeners": advertised,
            "inter_broker_listener_name": inter_broker_listener(
                read.optional_text("inter.broker.listener.name"),
                read.text("security.inter.broker.protocol") if "security.inter.broker.protocol" in properties else None,
                advertised or listeners,
            ),
            "log_dirs": log_dirs,
            "metadata_log_dir": read.optional_text("metadata.log.dir") or log_dirs[0],
            "max_connection_creation_rates": {
                it.name: read.of_listener(it.name).int("max.connection.creation.rate") for it in listeners
            },
            "max_connections_per_ip_overrides": counts_of_hosts(read.text("max.connections.per.ip.overrides")),
            "queued_max_request_bytes": _queued_max_request_bytes(read.int("queued.max.request.bytes")),
            "super_users": parse_principals(read.text("super.users")),
            "delegation_token_secret_key": read.optional_text("delegation.token.secret.key") or None,
            "offsets_retention_ms": read.int("offsets.retention.minutes") * MINUTE_MS,
            "internal_topics": {name: _sizes(read, topic) for name, topic in INTERNAL_TOPICS.items()},
            "sasl": _sasl(read, listeners),
            "zookeeper": _zookeeper(read),
        }
        # All other fields have the value of the configuration of their name.
        for field in attrs.fields(cls):
            if field.name not in values:
                values[field.name] = _READERS[field.type](read, field.name.replace("_", "."))
        return cls(**values)


_READERS: Final[Mapping[Any, Callable[[ConfigReader, str], Value]]] = {
    "bool": ConfigReader.flag,
    "float": ConfigReader.float,
    "int": ConfigReader.int,
    "str": ConfigReader.text,
    "str | None": ConfigReader.optional_text,
    "tuple[str, ...]": ConfigReader.names,
}
"""The method of ConfigReader for each type of field."""


def _sasl(read: ConfigReader, listeners: Iterable[Listener]) -> dict[str, tuple[MechanismSettings, ...]]:
    users = [listener for listener in listeners if listener.security_protocol.startswith("SASL_")]
    if not users:
        return {}
    from kwire.config.sasl import sasl_settings

    return {listener.name: sasl_settings(read, listener) for listener in users}


def _sizes(read: ConfigReader, topic: InternalTopicSettings) -> InternalTopicSizes:
    return InternalTopicSizes(
        num_partitions=read.int(topic.num_partitions),
        replication_factor=read.int(topic.replication_factor),
        segment_bytes=read.int(topic.segment_bytes),
        min_isr=None if topic.min_isr is None else read.int(topic.min_isr),
    )


def _zookeeper(read: ConfigReader) -> ZooKeeperConfig | None:
    connect = read.optional_text("zookeeper.connect")
    if not connect:
        return None
    return ZooKeeperConfig.of(
        connect=connect,
        session_timeout_ms=read.int("zookeeper.session.timeout.ms"),
        connection_timeout_ms=read.optional_int("zookeeper.connection.timeout.ms"),
        set_acl=read.flag("zookeeper.set.acl"),
        digest=read.optional_text("kwire.zookeeper.digest"),
        ssl_client_enable=read.flag("zookeeper.ssl.client.enable"),
        ssl_keystore_location=read.optional_text("zookeeper.ssl.keystore.location"),
        ssl_keystore_password=read.optional_text("zookeeper.ssl.keystore.password"),
        ssl_truststore_location=read.optional_text("zookeeper.ssl.truststore.location"),
        ssl_endpoint_identification_algorithm=read.text("zookeeper.ssl.endpoint.identification.algorithm"),
    )


def _metrics_listener(read: ConfigReader) -> Listener | None:
    address = read.optional_text(METRICS_LISTEN)
    return None if address is None else parse_address(METRICS_LISTEN, address)


def _check_log_dirs(paths: tuple[str, ...]) -> None:
    for path in paths:
        if paths.count(path) > 1:
            raise ConfigError(f"log.dirs has {path} more than once")


def _queued_max_request_bytes(configured: int) -> int:
    """Returns the limit. Kafka has none by default, so that clients decide how much memory a broker uses."""
    return configured if configured > 0 else QUEUED_MAX_REQUEST_BYTES


def _node_id(properties: Mapping[str, str], read: ConfigReader) -> int:
    node_id, broker_id = read.int("node.id"), read.int("broker.id")
    if "broker.id" not in properties:
        return node_id
    if "node.id" in properties and node_id != broker_id:
        raise ConfigError(
            f"node.id is {node_id} and broker.id is {broker_id}: set one of them, or both to the same value"
        )
    if broker_id < 0:
        raise ConfigError(f"broker.id is {broker_id}: it has to be at least 0")
    return broker_id


def load_config(
    text: str = "",
    *,
    settings: Iterable[str] = (),
    listen: Iterable[str] = (),
    data_dirs: Iterable[str] = (),
    defaults: Mapping[str, str] = NOTHING_ELSE,
) -> ServerConfig:
    """Returns the configuration from a server.properties text and the command line's flags.

    `settings` are `name=value`. `listen` are `host:port` (port 0: a free one) or `NAME://host:port`. `data_dirs` are
    paths, which may contain commas. `defaults` apply, and are described as such, where a name is not set. Logs a
    warning for names that have no effect. Raises ConfigError.
    """
    properties = parse_properties(text)
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{setting!r} is not a setting: write name=value")
        properties[name.strip()] = value
    addresses = list(listen)
    if addresses:
        _listen_on(addresses, properties)
    folders = tuple(data_dirs)
    if folders:
        properties["log.dirs"] = ",".join(folders)
    config = ServerConfig.from_properties(properties, defaults=defaults)
    if folders:
        _check_log_dirs(folders)
        config = attrs.evolve(
            config, log_dirs=folders, metadata_log_dir=properties.get("metadata.log.dir") or folders[0]
        )
    for warning in warnings_about(config.properties):
        log.warning("%s", warning)
    missed = [name for name in _FOR_THE_AUTHORIZER if name in properties and not config.authorizer_class_name]
    if missed:
        log.warning("everybody may do everything: without authorizer.class.name, %s has no effect", ", ".join(missed))
    return config


def _listen_on(addresses: list[str], properties: dict[str, str]) -> None:
    listeners: list[str] = []
    for number, address in enumerate(addresses, start=1):
        if "://" in address:
            listeners.append(address)
            continue
        if not address.rpartition(":")[0]:
            raise ConfigError(f"{address!r} is not an address to listen on: write host:port")
        name = "PLAINTEXT" if number == 1 else f"PLAINTEXT_{number}"
        if number > 1:
            protocol_map = properties.get("listener.security.protocol.map")
            default_map = str(HONOURED_CONFIGS["listener.security.protocol.map"].default)
            properties["listener.security.protocol.map"] = f"{protocol_map or default_map},{name}:PLAINTEXT"
        listeners.append(f"{name}://{address}")
    properties["listeners"] = ",".join(listeners)


def warnings_about(names: Iterable[str]) -> list[str]:
    """Returns a line that lists configurations without effect, and one that lists unknown names."""
    without_effect: list[str] = []
    unknown: list[str] = []
    for name in sorted(names):
        definition, of_listener = broker_config(name), listener_config(name)
        if definition is not None:
            is_used = has_effect(definition)
        elif of_listener is not None:
            is_used = has_effect_for_listener(of_listener)
        else:
            unknown.append(name)
            continue
        if not is_used:
            without_effect.append(name)
    warnings: list[str] = []
    if without_effect:
        warnings.append(f"these configurations have no effect in kwire: {', '.join(without_effect)}")
    if unknown:
        warnings.append(f"unknown configurations: {listed(unknown, broker_configs(), BROKER_NAMES_OF_TOPIC_CONFIGS)}")
    return warnings
