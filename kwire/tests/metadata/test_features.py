"""Levels of features: the initial ones of a folder, those that clients get, and UpdateFeatures."""

from __future__ import annotations

import errno
import itertools
from typing import Any

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_brokers import BrokerFeature, RegisterBrokerRecord
from kwire_protocol.internal.metadata_configs import FeatureLevelRecord
from kwire_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kwire_protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from kwire_protocol.wire import Reader, Writer
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.disk.memory_disk import MemoryDisk

from devtools.suite.cases import naming
from kwire.handlers import api_versions, update_features
from kwire.handlers.apis import bound
from kwire.metadata import bootstrap
from kwire.metadata.answers import EncodedResponse
from kwire.metadata.features import INITIAL_LEVELS
from kwire.metadata.service import MetadataService
from testkit.metadata.distant_log import answered
from testkit.metadata.harness import FakeBroker, context, lacks, open_service, record, service

TRANSACTION, METADATA, ELR = "transaction.version", "metadata.version", "eligible.leader.replicas.version"
GROUP = "group.version"
SHARE = "share.version"
STREAMS = "streams.version"
UPGRADE, SAFE, UNSAFE = 1, 2, 3


def update(
    opened: MetadataService, *updates: tuple[str, int, int], version: int = 2, validate_only: bool = False
) -> UpdateFeaturesResponse:
    """Updates are (feature, level, upgrade type). The answer is as a client of this version reads it."""
    request = UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(name, level, upgrade_type=kind) for name, level, kind in updates],
        validate_only=validate_only,
    )
    broker: Any = FakeBroker(opened)
    writer = Writer()
    answered(bound(update_features.handle, broker)(request, context(version))).write(writer, version)
    return UpdateFeaturesResponse.read(Reader(writer.getvalue()), version)


def api_versions_response(opened: MetadataService, version: int) -> ApiVersionsResponse:
    broker: Any = FakeBroker(opened)
    response = bound(api_versions.handle, broker)(ApiVersionsRequest("tests", "1.0"), context(version))
    assert isinstance(response, EncodedResponse)
    return ApiVersionsResponse.read(Reader(response.body), version)


def supported(response: ApiVersionsResponse) -> dict[str, tuple[int, int]]:
    return {it.name: (it.min_version, it.max_version) for it in response.supported_features}


def finalized(response: ApiVersionsResponse) -> dict[str, tuple[int, int]]:
    return {it.name: (it.min_version_level, it.max_version_level) for it in response.finalized_features}


@pytest.mark.parametrize("kind", [UPGRADE, SAFE, UNSAFE])
def test_the_level_that_a_feature_has_is_no_change(kind: int) -> None:
    opened = service()
    end = opened.log.end_offset
    for name, level in INITIAL_LEVELS.items():
        assert update(opened, (name, level, kind)).error_code == ErrorCode.NONE
    assert opened.log.end_offset == end


@pytest.mark.parametrize(
    ("wrong", "facts"),
    [
        pytest.param(
            (TRANSACTION, 3, UPGRADE),
            ["'transaction.version'", "version 3", "only supports versions 0-2"],
            id="too high",
        ),
        pytest.param((TRANSACTION, -1, SAFE), ["version -1", "cannot be less than 0"], id="negative"),
        pytest.param(
            (TRANSACTION, 1, UPGRADE),
            ["2 now", "Can't downgrade", "safe or unsafe downgrade"],
            id="down without saying so",
        ),
        pytest.param(
            (TRANSACTION, 0, UPGRADE),
            ["2 now", "Can't downgrade", "safe or unsafe downgrade"],
            id="off without saying so",
        ),
        pytest.param((TRANSACTION, 1, 0), ["type 0", "3 (UNSAFE_DOWNGRADE)"], id="no type"),
        pytest.param((TRANSACTION, 2, 4), ["type 4"], id="unknown type"),
        pytest.param(
            (METADATA, 29, UPGRADE), ["30 now", "safe or unsafe downgrade"], id="metadata down without saying so"
        ),
        pytest.param((METADATA, 29, SAFE), ["metadata log", "version 30"], id="metadata down"),
        pytest.param((METADATA, 7, UNSAFE), ["metadata log", "version 30"], id="metadata down at any price"),
        pytest.param((METADATA, 0, UNSAFE), ["only supports versions 7-30"], id="metadata off"),
        pytest.param((METADATA, 31, UPGRADE), ["only supports versions 7-30"], id="metadata too high"),
        pytest.param(("kraft.version", 1, UPGRADE), ["does not support this feature", TRANSACTION], id="not served"),
        pytest.param(("x" * 5000, 0, SAFE), ["does not support this feature", "..."], id="unknown and long"),
    ],
)
def test_what_cannot_be_is_refused_with_all_that_came_with_it(wrong: tuple[str, int, int], facts: list[str]) -> None:
    opened = service()
    if wrong[0] != TRANSACTION:
        record(opened, FeatureLevelRecord(TRANSACTION, 1))
    before, end = dict(opened.image.features), opened.log.end_offset
    good = (TRANSACTION, 2, UPGRADE) if wrong[0] != TRANSACTION else (METADATA, 30, UPGRADE)
    for version, updates in itertools.product((1, 2), ((good, wrong), (wrong, good))):
        with naming(f"v{version}"):
            response = update(opened, *updates, version=version)
            assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
            assert lacks(response.error_message, *facts, "No feature was changed") == []
            assert len(response.error_message or "") < 1000
            assert response.results == []
            assert (opened.image.features, opened.log.end_offset) == (before, end)


def test_a_downgrade_that_goes_up_is_refused() -> None:
    opened = service()
    update(opened, (TRANSACTION, 0, SAFE))
    for kind in (SAFE, UNSAFE):
        response = update(opened, (TRANSACTION, 1, kind))
        assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert lacks(response.error_message, "newer version", "0 now", "upgrade") == []
    assert opened.transaction_version == 0


def test_validating_changes_nothing() -> None:
    opened = service()
    end = opened.log.end_offset
    assert update(opened, (TRANSACTION, 1, SAFE), validate_only=True).error_code == ErrorCode.NONE
    refused = update(opened, (TRANSACTION, 1, UPGRADE), validate_only=True)
    assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert (opened.transaction_version, opened.log.end_offset) == (2, end)


def test_a_broker_that_cannot_do_a_level_keeps_the_cluster_from_it() -> None:
    opened = service()
    update(opened, (TRANSACTION, 0, SAFE))
    answered(
        opened.change(
            lambda _: ([RegisterBrokerRecord(broker_id=2, features=[BrokerFeature(TRANSACTION, 0, 1)])], None)
        )
    )
    record(opened, RegisterBrokerRecord(broker_id=3, features=[]))
    refused = update(opened, (TRANSACTION, 2, UPGRADE))
    assert lacks(refused.error_message, "Broker 2 only supports versions 0-1") == []
    refused = update(opened, (TRANSACTION, 1, UPGRADE))
    assert lacks(refused.error_message, "Broker 3 only supports versions 0-0") == []
    assert update(opened, (TRANSACTION, 0, SAFE)).error_code == ErrorCode.NONE


def test_levels_outlive_a_power_cut() -> None:
    for level in (1, 0):
        disk = FaultyDisk()
        opened, _ = open_service(disk)
        update(opened, (TRANSACTION, level, UNSAFE))
        again, _ = open_service(disk.crash())
        assert again.transaction_version == level


def test_a_refused_write_is_an_error_and_no_change() -> None:
    disk = MemoryDisk()
    opened, _ = open_service(disk)

    def full(operation: str, path: str) -> None:
        raise OSError(errno.ENOSPC, "no space left on device", path)

    disk.before_operation = full
    assert update(opened, (TRANSACTION, 1, SAFE)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert opened.transaction_version == 2


def test_the_folder_of_a_kwire_without_the_feature_begins_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    with monkeypatch.context() as earlier:
        earlier.setattr(bootstrap, "INITIAL_LEVELS", {METADATA: 30})
        earlier.setattr(bootstrap, "SUPPORTED_FEATURES", {METADATA: (7, 30)})
        old, folder = open_service(disk)
        assert old.image.features == {METADATA: 30}
        folder.close()
    opened, folder = open_service(disk)
    assert opened.transaction_version == 2
    levels = {METADATA: 30, TRANSACTION: 2, GROUP: 1, SHARE: 1, STREAMS: 1}
    assert opened.image.features == levels, "eligible leader replicas wait for an upgrade"
    assert opened.image.brokers[1].features == {
        METADATA: (7, 30),
        TRANSACTION: (0, 2),
        ELR: (0, 1),
        GROUP: (0, 1),
        SHARE: (0, 1),
        STREAMS: (0, 1),
    }
    folder.close()
    again, _ = open_service(disk)
    assert again.log.end_offset == opened.log.end_offset


def test_clients_get_what_is_supported_and_what_is_finalized() -> None:
    opened = service()
    for version, features in (
        (3, {METADATA: (7, 30)}),  # Its clients cannot read a lowest version of 0.
        (4, {METADATA: (7, 30), TRANSACTION: (0, 2), ELR: (0, 1), GROUP: (0, 1), SHARE: (0, 1), STREAMS: (0, 1)}),
        (5, {METADATA: (7, 30), TRANSACTION: (0, 2), ELR: (0, 1), GROUP: (0, 1), SHARE: (0, 1), STREAMS: (0, 1)}),
    ):
        response = api_versions_response(opened, version)
        assert supported(response) == features
        assert finalized(response) == {
            METADATA: (30, 30),
            TRANSACTION: (2, 2),
            ELR: (1, 1),
            GROUP: (1, 1),
            SHARE: (1, 1),
            STREAMS: (1, 1),
        }
        assert response.finalized_features_epoch == opened.image.offset
