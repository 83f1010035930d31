"""kwire.testing: the broker in the caller's process, and the pytest fixture."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.metadata import MetadataRequest

from kwire.config.server import ConfigError
from kwire.running import StartError
from kwire.testing import Broker
from kwire.tests.raw_client import RawClient

pytest_plugins = ["pytester"]


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


def test_a_bad_setting_is_told_where_the_broker_is_started() -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        Broker(settings={"num.partitions": "many"}).start()


def test_a_second_broker_on_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path), pytest.raises(StartError, match="another broker is using"):
        Broker(data_dir=tmp_path).start()


def test_a_port_in_use_is_told() -> None:
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
