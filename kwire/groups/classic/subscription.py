"""The topics in a consumer's metadata: the only part of the opaque metadata that the coordinator reads.

The consumer protocol's subscription begins, in every version, with an int16 version and the fields of version 0: topic
names and user data. With the topics, the coordinator can expire the offsets of topics that are no longer read while the
group is alive, and protect those that are read from OffsetDelete. If the metadata cannot be parsed, the topics are
unknown; that is not an error of the member.
"""

from __future__ import annotations

from collections.abc import Iterable

from kwire_protocol.internal.consumer_protocol import ConsumerProtocolSubscription
from kwire_protocol.wire import ProtocolError, Reader

CONSUMER_PROTOCOL_TYPE = "consumer"

_PREFIX_OF_ALL_VERSIONS = 0


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The union of the topics of all members, or None if one of the subscriptions cannot be parsed."""
    topics: set[str] = set()
    try:
        for metadata in subscriptions:
            reader = Reader(metadata)
            if reader.int16() < 0:
                return None
            topics.update(ConsumerProtocolSubscription.read(reader, _PREFIX_OF_ALL_VERSIONS).topics)
    except ProtocolError:
        return None
    return frozenset(topics)
