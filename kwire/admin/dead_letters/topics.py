"""Finds dead-letter topics, and counts their letters by group and topic of origin.

A dead-letter topic is one that a share group names in its configuration, or that groups may use by its own. Apache
Kafka before 4.4 has neither.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Final

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import quoted
from kwire_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

from kwire.admin.batches import batches
from kwire.admin.dead_letters.letters import Letter, Selection, read_span, spans_of
from kwire.admin.dead_letters.redriven import Redriven, partition_offset, state_topic_of
from kwire.admin.groups import SHARE, GroupAdmin
from kwire.client.cluster import Cluster
from kwire.client.errors import UnknownTopic, VersionNotServed, refused
from kwire.pipeline.delivery.compacted_topic import CompactedTopic

NAMED_BY_GROUP: Final = "errors.deadletterqueue.topic.name"
ENABLED: Final = "errors.deadletterqueue.group.enable"
MAX_COUNTS: Final = 1_000
"""The maximum number of pairs of group and topic of origin in one dead-letter topic. Others are counted together."""

_TOPIC, _GROUP = 2, 32  # types of resources in DescribeConfigs


@attrs.frozen
class DeadLetterTopic:
    name: str
    group_ids: tuple[str, ...]
    """The share groups whose configuration names the topic."""
    exists: bool


@attrs.define
class LetterCount:
    """Letters of one group about records of one topic. None stands for several, beyond MAX_COUNTS, or for no group."""

    topic: str
    group_id: str | None
    origin_topic: str | None
    letters: int = 0
    redriven: int = 0
    first_timestamp_ms: int | None = None
    last_timestamp_ms: int | None = None

    def add(self, letter: Letter, *, redriven: bool) -> None:
        at_ms = letter.timestamp_ms
        self.letters += 1
        self.redriven += redriven
        self.first_timestamp_ms = at_ms if self.first_timestamp_ms is None else min(at_ms, self.first_timestamp_ms)
        self.last_timestamp_ms = at_ms if self.last_timestamp_ms is None else max(at_ms, self.last_timestamp_ms)


@attrs.define
class Counted:
    counts: list[LetterCount]
    """The counts, sorted by group and topic of origin."""
    others: int = 0
    """The number of records that are no dead letters."""


def find_topics(cluster: Cluster, named: Iterable[str] = ()) -> list[DeadLetterTopic]:
    """The dead-letter topics by name; with `named`, only these, without a check. Raises ClientError."""
    groups: dict[str, list[str]] = defaultdict(list)
    for group_id, topic in _configured(cluster, _GROUP, _share_groups(cluster), NAMED_BY_GROUP).items():
        if topic:
            groups[topic].append(group_id)
    existing = {it.name for it in cluster.metadata(None).topics if it.name is not None and not it.is_internal}
    chosen = set(named)
    if not chosen:
        enabled = _configured(cluster, _TOPIC, existing, ENABLED)
        chosen = {*groups, *(name for name, value in enabled.items() if value == "true")}
    return [DeadLetterTopic(name, tuple(sorted(groups.get(name, ()))), name in existing) for name in sorted(chosen)]


def count_letters(cluster: Cluster, topic: str, progress: Callable[[int, int], None]) -> Counted:
    """Reads the whole topic. `progress` is called with the number of offsets that were read, and their total.

    Raises UnknownTopic and other ClientErrors.
    """
    redriven = redriven_so_far(cluster, topic)
    found: dict[tuple[str | None, str | None], LetterCount] = {}
    counted = Counted([])
    spans = spans_of(cluster, topic, Selection())
    total, done = sum(it.stop - it.start for it in spans), 0
    for span in spans:
        for record in read_span(cluster, span):
            progress(done + record.offset + 1 - span.start, total)
            letter = Letter.read(span.at, record)
            if letter is None:
                counted.others += 1
                continue
            key: tuple[str | None, str | None] = letter.group_id, letter.origin.at.topic
            if key not in found and len(found) >= MAX_COUNTS:
                key = None, None
            if key not in found:
                found[key] = LetterCount(topic, *key)
            found[key].add(letter, redriven=partition_offset(span.at, record.offset) in redriven)
        done += span.stop - span.start
    counted.counts = sorted(found.values(), key=lambda it: (it.group_id or "", it.origin_topic or ""))
    return counted


def redriven_so_far(cluster: Cluster, topic: str) -> Redriven:
    """Returns the letters sent so far, without waiting for a redrive in progress. Raises UnknownTopic, ClientError."""
    topic_id = cluster.topic(topic).topic_id
    try:
        values, _ = CompactedTopic(cluster, state_topic_of(topic)).committed_since(0)
    except UnknownTopic:
        values = {}
    return Redriven.of(topic, topic_id, values)


def _share_groups(cluster: Cluster) -> list[str]:
    try:
        return [it.group_id for it in GroupAdmin(cluster).list_groups(kinds=[SHARE])]
    except VersionNotServed:  # before Kafka 3.8, and before there were share groups
        return []


def _configured(cluster: Cluster, kind: int, names: Collection[str], config: str) -> dict[str, str]:
    """Returns the value of a configuration by the resource's name, for resources that have one. Raises Refused."""
    found: dict[str, str] = {}

    def describe(request: DescribeConfigsRequest) -> None:
        for it in cluster.call(request).results:
            if it.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue  # deleted meanwhile
            if it.error_code:
                what = f"the configurations of {quoted(it.resource_name)} cannot be looked at"
                raise refused(what, it.error_code, it.error_message)
            for entry in it.configs:
                if entry.value is not None:
                    found[it.resource_name] = entry.value

    for some in batches(sorted(names)):
        resources = [DescribeConfigsResource(kind, name, [config]) for name in some]
        cluster.until_done(partial(describe, DescribeConfigsRequest(resources)))
    return found
