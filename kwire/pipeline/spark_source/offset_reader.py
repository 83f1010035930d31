"""The driver's requests to the brokers: for the partitions to read, and for the bounds of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

from kwire_protocol.wire import NULL_UUID, Uuid

from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.errors import ClientError, UnknownTopic
from kwire.client.offsets import EARLIEST, LATEST, IsolationLevel, list_offsets
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.spark_source import positions
from kwire.pipeline.spark_source.options import Bound, SourceOptions
from kwire.pipeline.spark_source.positions import Positions, listed


class OffsetReader:
    """The requests of one query. All raise PipelineError. Not thread-safe."""

    def __init__(self, options: SourceOptions, open_cluster: Callable[[], Cluster] | None = None) -> None:
        self._options = options
        self._open_cluster = open_cluster or (lambda: connect(options))
        self._cluster: Cluster | None = None
        self.topic_ids: dict[str, Uuid] = {}
        """The ids of the topics that `partitions` found last."""

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that the query reads, as they are now."""
        subscription = self._options.subscription
        cluster = self._connected()
        try:
            if subscription.pattern is not None:
                pattern = re.compile(subscription.pattern)
                topics_found = cluster.metadata(None).topics
                names = {it.name for it in topics_found if it.name and not it.is_internal and not it.error_code}
                # As in the connector: a pattern matches anywhere in a name unless it has ^ and $.
                topics = {name for name in names if pattern.search(name)}
            elif subscription.topics is not None:
                topics = set(subscription.topics)
                cluster.until_done(lambda: cluster.metadata(sorted(topics)))
            else:
                topics = {at.topic for at in subscription.assigned or ()}
                cluster.until_done(lambda: cluster.metadata(sorted(topics)))
            found = [cluster.until_done(lambda name=name: cluster.topic(name)) for name in sorted(topics)]  # type: ignore[misc]
        except UnknownTopic as error:
            raise PipelineError(
                f"{error.message} at {self._options.bootstrap} (UNKNOWN_TOPIC_OR_PARTITION): create it, or name another"
            ) from None
        except ClientError as error:
            raise self._failed(error) from None
        self.topic_ids = {it.name: it.topic_id for it in found if it.topic_id != NULL_UUID}
        there = frozenset(TopicPartition(it.name, partition) for it in found for partition in it.leaders)
        if subscription.assigned is None:
            return there
        if missing := subscription.assigned - there:
            raise PipelineError(
                f"option assign names partitions that are not there (UNKNOWN_TOPIC_OR_PARTITION): {listed(missing)}"
            )
        return subscription.assigned

    def starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the offsets at which the query begins in these partitions."""
        return self._resolve(self._options.starting, partitions, latest_if_none_is_so_late=None)

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the end of a batch in these partitions: the latest offset for a time after the last record."""
        return self._resolve(self._options.ending, partitions, latest_if_none_is_so_late=True)

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition that exists."""
        return self._list(partitions, EARLIEST, missing_is_fine=True)

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The end of each partition. With read_committed, records of open transactions are after it."""
        return self._list(partitions, LATEST)

    def _resolve(
        self, bound: Bound, partitions: Collection[TopicPartition], *, latest_if_none_is_so_late: bool | None
    ) -> dict[TopicPartition, int]:
        if bound.word is not None:
            return self._list(partitions, LATEST if bound.word == positions.LATEST else EARLIEST)
        if bound.time_ms is not None:
            given: Positions = dict.fromkeys(partitions, bound.time_ms)
        else:
            given = bound.offsets if bound.offsets is not None else bound.times_ms or {}
            _check_all_are_given(bound.option, given, partitions)
        if bound.offsets is not None:
            found = {at: offset for at, offset in given.items() if offset >= 0}
            for word in (positions.EARLIEST, positions.LATEST):
                found |= self._list([at for at, offset in given.items() if offset == word], word)
            return found
        take_latest = latest_if_none_is_so_late
        if take_latest is None:
            take_latest = self._options.latest_where_no_record_is_so_late
        return self._at_times(bound.option, given, take_latest=take_latest)

    def _at_times(self, option: str, times_ms: Positions, *, take_latest: bool) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for time_ms in set(times_ms.values()):
            found |= self._list([at for at, wanted in times_ms.items() if wanted == time_ms], time_ms)
        missing = times_ms.keys() - found.keys()
        if missing and not take_latest:
            at = min(missing)
            raise PipelineError(
                f"option {option}: {listed(missing)} has no record of {times_ms[at]} ms or later. To begin at the end "
                "there, set startingOffsetsByTimestampStrategy to latest"
            )
        return found | self._list(missing, LATEST)

    def _list(
        self, partitions: Collection[TopicPartition], which: int, *, missing_is_fine: bool = False
    ) -> dict[TopicPartition, int]:
        cluster = self._connected()
        level = self._options.isolation_level if which == LATEST else IsolationLevel.READ_UNCOMMITTED
        found: dict[TopicPartition, int] = {}
        for topic in sorted({at.topic for at in partitions}):
            wanted = [at.partition for at in partitions if at.topic == topic]
            try:
                offsets = list_offsets(cluster, topic, which, isolation_level=level, partitions=wanted)
            except UnknownTopic as error:
                if missing_is_fine:
                    continue
                raise PipelineError(f"{error.message} (UNKNOWN_TOPIC_OR_PARTITION): it was deleted just now") from None
            except ClientError as error:
                raise self._failed(error) from None
            found |= {TopicPartition(topic, partition): offset for partition, offset in offsets.items()}
        return found

    def _connected(self) -> Cluster:
        if self._cluster is None:
            try:
                self._cluster = self._open_cluster()
            except ClientError as error:
                raise PipelineError(error.message) from None
        return self._cluster

    def _failed(self, error: ClientError) -> PipelineError:
        self.close()
        return PipelineError(error.message)


def connect(options: SourceOptions) -> Cluster:
    """Raises ClientError."""
    return Cluster(options.bootstrap, timeout_s=options.timeout_s, client_id=options.client_id)


def _check_all_are_given(option: str, given: Mapping[TopicPartition, int], there: Collection[TopicPartition]) -> None:
    if missing := set(there) - given.keys():
        raise PipelineError(f"option {option} has to name every partition that is read: {listed(missing)} is missing")
    if surplus := given.keys() - set(there):
        raise PipelineError(f"option {option} names what is not read: {listed(surplus)}")
