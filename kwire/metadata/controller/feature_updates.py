"""Decides on UpdateFeatures: new levels for the cluster's features (KIP-584, KIP-778).

A request changes all of its features or none. The rules are those of Kafka's FeatureControlManager:

* every registered broker must support the level; 0, which turns a feature off, is a level like any other
* a lower level must be requested as a downgrade, safe or unsafe; a higher one as an upgrade; the same one as either
* metadata.version is never lowered: the log has records of the current level

As in Kafka, a feature that is named twice gets the last level, and has two results.
"""

from __future__ import annotations

from enum import IntEnum

from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_configs import FeatureLevelRecord
from kwire_protocol.kafka_error import KafkaError, quoted
from kwire_protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

from kwire.metadata.controller.deciding import ClusterState, Records
from kwire.metadata.controller.partitions.eligible_replicas import turn_off, turn_on
from kwire.metadata.features import ELR_VERSION, METADATA_VERSION, SUPPORTED_FEATURES

_OFF = (0, 0)
"""The supported levels of a feature that is unknown to a broker."""


class UpgradeType(IntEnum):
    """The types, with their numbers in requests. Version 0 of the request is always an UPGRADE (its allow_downgrade is
    ignored, as in Kafka 4.3), so a downgrade needs version 1.
    """

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def update_features(state: ClusterState, request: UpdateFeaturesRequest) -> tuple[Records, UpdateFeaturesResponse]:
    """Updates features, or none: raises KafkaError(INVALID_UPDATE_VERSION) for the first impossible update."""
    updates = {update.feature: update for update in request.feature_updates}
    records: Records = []
    for name, update in updates.items():
        why = _why_not(state, update)
        if why is not None:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Invalid update version {update.max_version_level} for feature {quoted(name)}. {why} "
                "No feature was changed.",
            )
        if name == ELR_VERSION:
            records += _elr_update(state, update.max_version_level)
        if update.max_version_level != state.image.features.get(name, 0):
            records.append(FeatureLevelRecord(name, update.max_version_level))
    response = UpdateFeaturesResponse(
        error_message=None,
        results=[UpdatableFeatureResult(update.feature, ErrorCode.NONE, None) for update in request.feature_updates],
    )
    return [] if request.validate_only else records, response


def _elr_update(state: ClusterState, level: int) -> Records:
    """Returns the records that a new level of eligible.leader.replicas.version requires."""
    if (level > 0) == state.has_elr:
        return []
    return turn_on(state) if level > 0 else turn_off(state)


def _why_not(state: ClusterState, update: FeatureUpdateKey) -> str | None:
    """Returns the reason why an update is not possible; None if it is."""
    name, level = update.feature, update.max_version_level
    if update.upgrade_type not in {*UpgradeType}:
        known = ", ".join(f"{it.value} ({it.name})" for it in UpgradeType)
        return f"Upgrade type {update.upgrade_type} is not one of {known}."
    if name not in SUPPORTED_FEATURES:
        return f"This broker does not support this feature, only {', '.join(SUPPORTED_FEATURES)}."
    lowest, highest = SUPPORTED_FEATURES[name]
    if level < 0:
        return "A feature version cannot be less than 0."
    if not lowest <= level <= highest:
        return f"This broker only supports versions {lowest}-{highest}."
    for broker_id, broker in sorted(state.image.brokers.items()):
        lowest, highest = broker.features.get(name, _OFF)
        if not lowest <= level <= highest:
            return f"Broker {broker_id} only supports versions {lowest}-{highest}."
    current = state.image.features.get(name, 0)
    if level > current and update.upgrade_type != UpgradeType.UPGRADE:
        return f"Can't downgrade to a newer version: it is {current} now. Set the upgrade type to upgrade."
    if level < current and update.upgrade_type == UpgradeType.UPGRADE:
        return (
            f"Can't downgrade the version of this feature, {current} now, without setting the upgrade type to either "
            "safe or unsafe downgrade."
        )
    if level < current and name == METADATA_VERSION:
        return f"Can't downgrade: the metadata log has records of version {current}, which a lower one could lose."
    return None
