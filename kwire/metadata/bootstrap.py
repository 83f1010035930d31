"""The records of a first start, and this broker's registration if it differs from the recorded one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kwire_protocol.internal.metadata_brokers import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord
from kwire_protocol.internal.metadata_configs import FeatureLevelRecord
from kwire_protocol.wire import Uuid

from kwire.config.server import Listener
from kwire.metadata.controller.deciding import ClusterState, Records, min_isr_for_everybody
from kwire.metadata.features import BEGUN_LATER, INITIAL_LEVELS, METADATA_VERSION, SUPPORTED_FEATURES
from kwire.metadata.image import BrokerRegistration

_SECURITY_PROTOCOL_IDS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


def bootstrap_records(state: ClusterState) -> Records:
    """The first records of a new cluster; none if the cluster exists."""
    begun = state.image.features
    if METADATA_VERSION in begun:
        return [
            FeatureLevelRecord(name, INITIAL_LEVELS[name]) for name in INITIAL_LEVELS if name in BEGUN_LATER - {*begun}
        ]
    return [*(FeatureLevelRecord(name, level) for name, level in INITIAL_LEVELS.items()), *min_isr_for_everybody(state)]


def register_alone(state: ClusterState, log_dirs: Sequence[Uuid]) -> Records:
    """Registers a broker without a cluster, unless the same registration is recorded already.

    `log_dirs` are the directory ids of its log dirs. The recorded addresses are as configured (including port 0);
    clients get those of `Broker.endpoints`.
    """
    registration = registration_record(state, log_dirs, fenced=False)
    registered = state.image.brokers.get(state.node_id)
    if registered is not None and _is_as_recorded(registered, registration):
        return []
    return [registration]


def registration_record(state: ClusterState, log_dirs: Sequence[Uuid], *, fenced: bool) -> RegisterBrokerRecord:
    """The registration of the deciding broker. `log_dirs` are the directory ids of its log dirs."""
    config = state.config
    return RegisterBrokerRecord(
        broker_id=config.node_id,
        incarnation_id=state.new_id(),
        broker_epoch=state.end_offset,
        end_points=[_endpoint(listener) for listener in config.advertised_listeners or config.listeners],
        features=[BrokerFeature(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()],
        rack=config.broker_rack,
        fenced=fenced,
        log_dirs=list(log_dirs),
    )


def _endpoint(listener: Listener) -> BrokerEndpoint:
    return BrokerEndpoint(
        listener.name,
        "localhost" if listener.is_wildcard else listener.host,
        listener.port,
        _SECURITY_PROTOCOL_IDS[listener.security_protocol],
    )


def _is_as_recorded(registered: BrokerRegistration, registration: RegisterBrokerRecord) -> bool:
    return (
        {(name, it.host, it.port, it.security_protocol) for name, it in registered.endpoints.items()}
        == {(it.name, it.host, it.port, it.security_protocol) for it in registration.end_points}
        and registered.features
        == {it.name: (it.min_supported_version, it.max_supported_version) for it in registration.features}
        and registered.rack == registration.rack
        and registered.log_dirs == tuple(registration.log_dirs)
        and not registered.fenced
    )
