"""A blocking connection for requests that are not measured one by one: creating topics, waiting for them.

Apache Kafka names the leader of a new partition some moments before that leader answers. A load that began in between
would meet errors, so `create` returns when every partition answers for itself, as `kwire.client` has it. Other
requests have the versions of the loads, over a connection that does nothing of its own accord.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from kwire_protocol.messages.delete_topics import DeleteTopicsRequest
from kwire_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire_protocol.wire import ApiMessage

from benchmarks.load.answers import BadAnswer, check_produce
from benchmarks.load.requests import VERSIONS, encode, produce
from kwire.client.cluster import Cluster
from kwire.client.errors import ClientError
from kwire.client.topics import NewTopic, create_topics
from testkit.raw.client import ConnectionClosed, RawClient

LOOPBACK = "127.0.0.1"
CREATE_TIMEOUT_S = 180.0
COORDINATOR_TIMEOUT_S = 120.0

_RETRY_PAUSE_S = 0.02
_CONNECT_PAUSE_S = 0.002
_TOPIC, _BROKER = 2, 4
_SET = 0


class Connection:
    def __init__(self, port: int, timeout_s: float = CREATE_TIMEOUT_S) -> None:
        self._port = port
        self._client = RawClient(f"{LOOPBACK}:{port}", timeout_s=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def call(self, frame: bytes) -> bytearray:
        """Sends a frame; returns the answer without its size."""
        self._client.send(frame)
        return bytearray(self._client.read_frame())

    def request(self, request: ApiMessage, version: int | None = None) -> Any:
        """Sends a request, in the loads' version if none is given, and returns the response."""
        return self._client.call(request, VERSIONS[request.api_key] if version is None else version)

    def request_until_accepted(self, request: ApiMessage) -> Any:
        """Repeats the request while the answer is an error, as it is until there is a coordinator."""
        deadline_s = time.monotonic() + COORDINATOR_TIMEOUT_S
        while (answer := self.request(request)).error_code:
            if time.monotonic() > deadline_s:
                raise BadAnswer(f"{type(answer).__name__}: {answer.error_code} after {COORDINATOR_TIMEOUT_S:.0f} s")
            time.sleep(_RETRY_PAUSE_S)
        return answer

    def alter_topic(self, topic: str, configs: Mapping[str, str]) -> None:
        self._alter(_TOPIC, topic, configs)

    def alter_broker(self, configs: Mapping[str, str]) -> None:
        """Changes configurations of all brokers."""
        self._alter(_BROKER, "", configs)

    def _alter(self, kind: int, name: str, configs: Mapping[str, str]) -> None:
        changes = [AlterableConfig(config, config_operation=_SET, value=value) for config, value in configs.items()]
        answer = self.request(IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, changes)]))
        for response in answer.responses:
            if response.error_code:
                raise BadAnswer(f"IncrementalAlterConfigs: {response.error_code} {response.error_message}")

    def delete(self, topics: Iterable[str]) -> None:
        for topic in self.request(DeleteTopicsRequest(topic_names=list(topics), timeout_ms=30_000)).responses:
            if topic.error_code:
                raise BadAnswer(f"DeleteTopics {topic.name}: {topic.error_code} {topic.error_message}")

    def create(self, topics: Mapping[str, int], configs: Mapping[str, str] | None = None, *, replicas: int = 1) -> None:
        """Creates topics with so many partitions each, and waits until all of them are served."""
        wanted = [NewTopic(name, partitions, replicas, configs or {}) for name, partitions in topics.items()]
        try:
            with Cluster(f"{LOOPBACK}:{self._port}", timeout_s=CREATE_TIMEOUT_S) as cluster:
                create_topics(cluster, wanted)
        except ClientError as error:
            raise BadAnswer(error.message) from None


def wait_for_first_ack(port: int, topic: str, batch: bytes, *, deadline_s: float, alive: Callable[[], bool]) -> None:
    """Returns when the broker acknowledges a record in `topic`, which Metadata creates on the way.

    It knocks every 2 ms, from before there is anybody to answer. Raises TimeoutError when `time.monotonic()` passes
    `deadline_s` or the broker is no longer alive.
    """
    create = encode(MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True))
    record, check = produce(topic, [0], batch), check_produce(topic, 1)
    while time.monotonic() < deadline_s and alive():
        try:
            with Connection(port, timeout_s=10.0) as connection:
                while time.monotonic() < deadline_s:
                    connection.call(create)
                    answer = connection.call(record)
                    try:
                        check(answer, 0, len(answer))
                    except BadAnswer:  # not created yet, or nobody leads it yet
                        time.sleep(_CONNECT_PAUSE_S)
                    else:
                        return
        except (OSError, ConnectionClosed):
            time.sleep(_CONNECT_PAUSE_S)
    raise TimeoutError("no record was acknowledged")
