"""Descriptions of topologies, by raw requests."""

from __future__ import annotations

from kwire_protocol.messages.streams_group_describe import DescribedGroup, StreamsGroupDescribeRequest

from testkit.raw.client import RawClient

VERSION = 1


NOT_REQUESTED, NOT_STORED, _, AVAILABLE = range(4)


PLUGIN = "org.apache.kafka.server.streams.InMemoryTopologyDescriptionPlugin"


def described(client: RawClient, group: str, *, version: int = VERSION, wanted: bool = True) -> DescribedGroup:
    (answer,) = client.call(StreamsGroupDescribeRequest([group], False, wanted), version).groups
    assert isinstance(answer, DescribedGroup)
    return answer
