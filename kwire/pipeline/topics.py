"""A job's few requests to brokers about a topic, without Spark.

Several tables of one job use it in turn. A request makes a new connection if the last one has failed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.errors import ClientError, UnknownTopic
from kwire.client.groups import commit_offsets
from kwire.client.offsets import IsolationLevel, list_offsets
from kwire.client.topics import describe_topic_configs
from kwire.pipeline.brokers import TIMEOUT_S, connect, explaining
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.topic_state import TopicState, topic_state

_HINT: Final = "Is the broker up?"


class Topics:
    """A cluster's topics. A context manager; may be used from several threads."""

    def __init__(self, bootstrap: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._cluster: Cluster | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._lock:
            self._forget()

    def state(self, topic: str, isolation: str) -> TopicState:
        """The topic's ids, first offsets and ends. Raises PipelineError."""
        with self._requesting(f"topic {topic} cannot be looked at") as cluster:
            try:
                return topic_state(cluster, topic, IsolationLevel[isolation.upper()])
            except UnknownTopic:
                raise PipelineError(f"topic {topic} not found at {self._bootstrap}: create it, or see -b") from None

    def offsets_at(self, topic: str, ms: int) -> dict[int, int]:
        """Returns the first offset of each partition at or after a time; partitions without such a record are left out.

        Raises PipelineError.
        """
        with self._requesting(f"topic {topic} cannot be looked at") as cluster:
            return list_offsets(cluster, topic, ms)

    def is_compacted(self, topic: str) -> bool:
        """Returns True if the topic's cleanup.policy has "compact". Raises PipelineError."""
        with self._requesting(f"the configuration of topic {topic} cannot be looked at") as cluster:
            policy = describe_topic_configs(cluster, [topic])[topic].get("cleanup.policy")
        return "compact" in (policy or "").split(",")

    def publish_group(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commits the offsets as a consumer group that has no members. Raises PipelineError."""
        committed = {TopicPartition(topic, partition): offset for partition, offset in offsets.items()}
        with self._requesting(f"group {group} cannot be given the table's offsets") as cluster:
            commit_offsets(cluster, group, committed)

    @contextmanager
    def _requesting(self, doing: str) -> Iterator[Cluster]:
        """Yields the cluster for one request. `doing` names the operation in the message of an error."""
        with self._lock, explaining(doing, _HINT):
            try:
                if self._cluster is None:
                    self._cluster = connect(self._bootstrap, timeout_s=self._timeout_s)
                yield self._cluster
            except ClientError:
                self._forget()
                raise

    def _forget(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None
