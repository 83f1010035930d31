"""The last stable offset, as a client sees it."""

from __future__ import annotations

from kwire_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

from testkit.raw.client import RawClient

READ_COMMITTED = 1


def stable_end(client: RawClient) -> int:
    wanted = [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, -1)])]
    offset: int = client.call(ListOffsetsRequest(-1, READ_COMMITTED, wanted), 5).topics[0].partitions[0].offset
    return offset
