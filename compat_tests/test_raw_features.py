"""ApiVersions' features and UpdateFeatures in every version, as bytes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kwire_protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse

from testkit.basics.waiting import eventually
from testkit.raw.client import RawClient
from testkit.servers.brokers import Broker, RestartableBroker

E = ErrorCode
TRANSACTION, METADATA = "transaction.version", "metadata.version"
UPGRADE, SAFE, UNSAFE = 1, 2, 3


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as connected:
        yield connected
        update(connected, (TRANSACTION, 2, UPGRADE))
        wait_for_level(connected, 2)


def api_versions(client: RawClient, version: int) -> ApiVersionsResponse:
    answer: ApiVersionsResponse = client.call(ApiVersionsRequest("tests", "1.0"), version)
    return answer


def supported(client: RawClient, version: int) -> dict[str, tuple[int, int]]:
    return {it.name: (it.min_version, it.max_version) for it in api_versions(client, version).supported_features}


def finalized(client: RawClient, version: int) -> dict[str, tuple[int, int]]:
    return {
        it.name: (it.min_version_level, it.max_version_level) for it in api_versions(client, version).finalized_features
    }


def update(
    client: RawClient, *updates: tuple[str, int, int], version: int = 2, validate_only: bool = False
) -> UpdateFeaturesResponse:
    """Updates features, each given as (feature, level, upgrade type)."""
    keys = [FeatureUpdateKey(name, level, upgrade_type=kind) for name, level, kind in updates]
    request = UpdateFeaturesRequest(10_000, keys, validate_only)
    answer: UpdateFeaturesResponse = client.call(request, version)
    return answer


def wait_for_level(client: RawClient, level: int) -> None:
    """Waits for the level: a broker that is not its own controller has it a moment later."""
    wanted = (level, level) if level else None
    eventually(lambda: finalized(client, 4).get(TRANSACTION) == wanted, f"level {level}")


def test_a_feature_that_can_be_off_is_supported_for_clients_that_can_read_it(client: RawClient) -> None:
    assert supported(client, 3) == {METADATA: (7, 30)}
    features = supported(client, 4)
    assert (features[METADATA], features[TRANSACTION]) == ((7, 30), (0, 2))


@pytest.mark.parametrize("version", [3, 4])
def test_every_client_gets_the_finalized_features(client: RawClient, version: int) -> None:
    features = finalized(client, version)
    assert (features[METADATA], features[TRANSACTION]) == ((30, 30), (2, 2))
    assert api_versions(client, version).finalized_features_epoch > 0


@pytest.mark.parametrize("version", [0, 1, 2])
def test_results_of_features_are_there_up_to_version_1(client: RawClient, version: int) -> None:
    answer = update(client, (TRANSACTION, 2, UPGRADE), (METADATA, 30, UPGRADE), version=version)
    assert (answer.error_code, answer.error_message) == (E.NONE, None)
    results = {(it.feature, it.error_code) for it in answer.results}
    assert results == ({(TRANSACTION, E.NONE), (METADATA, E.NONE)} if version < 2 else set())


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_error_is_the_request_s_and_nothing_changes(client: RawClient, version: int) -> None:
    before = finalized(client, 4)
    for updates in (
        [(TRANSACTION, 3, UPGRADE)],
        [(TRANSACTION, -1, UPGRADE)],
        [(TRANSACTION, 1, UPGRADE)],
        [(METADATA, 29, UPGRADE)],
        [("no.such.feature", 1, UPGRADE), (METADATA, 30, UPGRADE)],
        [(METADATA, 30, UPGRADE), ("no.such.feature", 0, UPGRADE)],
        [("", 1, UPGRADE)],
    ):
        answer = update(client, *updates, version=version)
        assert (answer.error_code, answer.results) == (E.INVALID_UPDATE_VERSION, [])
        assert updates[0][0] in str(answer.error_message) or "no.such.feature" in str(answer.error_message)
    assert finalized(client, 4) == before


@pytest.mark.parametrize("kind", [-1, 0, 4])
def test_an_unknown_upgrade_type_is_refused(client: RawClient, kind: int) -> None:
    assert update(client, (TRANSACTION, 2, kind)).error_code == E.INVALID_UPDATE_VERSION


@pytest.mark.parametrize("kind", [SAFE, UNSAFE])
def test_metadata_version_does_not_go_down(client: RawClient, kind: int) -> None:
    for level in (29, 7, 0):
        assert update(client, (METADATA, level, kind)).error_code == E.INVALID_UPDATE_VERSION


@pytest.mark.parametrize("kind", [SAFE, UNSAFE])
def test_a_downgrade_goes_down_to_nothing_and_not_up(client: RawClient, kind: int) -> None:
    assert update(client, (TRANSACTION, 2, kind)).error_code == E.NONE
    assert update(client, (TRANSACTION, 1, kind), validate_only=True).error_code == E.NONE
    epoch = api_versions(client, 4).finalized_features_epoch
    others = {name: levels for name, levels in finalized(client, 4).items() if name != TRANSACTION}
    for level in (1, 0):
        assert update(client, (TRANSACTION, level, kind)).error_code == E.NONE
        wait_for_level(client, level)
        assert finalized(client, 4) == others | ({TRANSACTION: (level, level)} if level else {})
    assert api_versions(client, 4).finalized_features_epoch > epoch
    assert (finalized(client, 3), supported(client, 4)[TRANSACTION]) == (others, (0, 2))
    assert update(client, (TRANSACTION, 1, kind)).error_code == E.INVALID_UPDATE_VERSION
    assert update(client, (TRANSACTION, 1, UPGRADE)).error_code == E.NONE
    wait_for_level(client, 1)


def test_in_version_0_nothing_goes_down(client: RawClient) -> None:
    request = UpdateFeaturesRequest(10_000, [FeatureUpdateKey(TRANSACTION, 1, allow_downgrade=True)])
    assert client.call(request, 0).error_code == E.INVALID_UPDATE_VERSION


def test_of_two_updates_of_a_feature_the_last_counts(client: RawClient) -> None:
    assert update(client, (TRANSACTION, 9, UPGRADE), (TRANSACTION, 1, SAFE), validate_only=True).error_code == E.NONE
    answer = update(client, (TRANSACTION, 1, SAFE), (TRANSACTION, 9, UPGRADE), validate_only=True)
    assert answer.error_code == E.INVALID_UPDATE_VERSION


def test_no_updates_are_no_error(client: RawClient) -> None:
    answer = update(client)
    assert (answer.error_code, answer.error_message) == (E.NONE, None)


def test_levels_outlive_a_restart_and_a_kill(restartable_broker: RestartableBroker) -> None:
    for again, level in ((restartable_broker.restart, 1), (restartable_broker.kill_and_restart, 0)):
        with RawClient(restartable_broker.bootstrap) as client:
            assert update(client, (TRANSACTION, level, SAFE)).error_code == E.NONE
            wait_for_level(client, level)
        again()
        with RawClient(restartable_broker.bootstrap) as client:
            wait_for_level(client, level)
    with RawClient(restartable_broker.bootstrap) as client:
        update(client, (TRANSACTION, 2, UPGRADE))
        wait_for_level(client, 2)
