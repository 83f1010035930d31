"""What the brokers say about a topic, and what is told to them: a job's few questions, asked without Spark.

Several tables of one job ask in turn; each question has a connection that is made when the last one failed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.errors import ClientError, InvalidAddress, UnknownTopic
from kwire.client.groups import commit_offsets
from kwire.client.offsets import IsolationLevel, list_offsets
from kwire.client.topics import describe_topic_configs
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.topic_state import TopicState, topic_state

TIMEOUT_S = 30.0


class Unreachable(PipelineError):
    """The brokers do not answer: a job that runs already waits for them."""


class Topics:
    """A cluster's topics. A context manager; may be asked from several threads."""

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
        with self._lock:
            try:
                return topic_state(self._connected(), topic, IsolationLevel[isolation.upper()])
            except UnknownTopic:
                raise PipelineError(f"topic {topic} not found at {self._bootstrap}: create it, or see -b") from None
            except InvalidAddress as error:
                raise PipelineError(f"--bootstrap-server {self._bootstrap}: {error}") from None
            except ClientError as error:
                self._forget()
                raise Unreachable(
                    f"topic {topic} cannot be looked at: {error}. Is -b right, and the broker up?"
                ) from None

    def offsets_at(self, topic: str, ms: int) -> dict[int, int]:
        """The first record of each partition that is not older than a moment; those that have none are left out."""
        with self._lock:
            try:
                return list_offsets(self._connected(), topic, ms)
            except ClientError as error:
                self._forget()
                raise Unreachable(f"topic {topic} cannot be looked at: {error}") from None

    def is_compacted(self, topic: str) -> bool:
        """Whether the topic's cleanup.policy has "compact". Raises PipelineError."""
        with self._lock:
            try:
                policy = describe_topic_configs(self._connected(), [topic])[topic].get("cleanup.policy")
            except ClientError as error:
                self._forget()
                raise Unreachable(f"the configuration of topic {topic} cannot be looked at: {error}") from None
            return "compact" in (policy or "").split(",")

    def publish_group(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commits the offsets as a consumer group that has no members. Raises PipelineError."""
        with self._lock:
            try:
                commit_offsets(
                    self._connected(),
                    group,
                    {TopicPartition(topic, partition): offset for partition, offset in offsets.items()},
                )
            except ClientError as error:
                self._forget()
                raise PipelineError(f"group {group} cannot be told how far the table is: {error}") from None

    def _connected(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._bootstrap, timeout_s=self._timeout_s, client_id="kwire-pipeline")
        return self._cluster

    def _forget(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None
