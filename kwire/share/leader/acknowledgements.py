"""The acknowledgements in a member's request, and the check that they are valid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
from kwire_protocol.errors import ErrorCode

from kwire.share.leader.states import AcknowledgeType


@attrs.frozen
class AcknowledgementBatch:
    """`types` has one type for all records, or one for each offset, including those without a record."""

    first_offset: int
    last_offset: int
    types: Sequence[int]

    def pieces(self) -> Iterator[tuple[int, int, int]]:
        """Yields (first offset, last offset, type) of each run of offsets with the same type."""
        if len(self.types) == 1:
            yield self.first_offset, self.last_offset, self.types[0]
            return
        first, kind = self.first_offset, self.types[0]
        for offset, each in enumerate(self.types, start=self.first_offset):
            if each != kind:
                yield first, offset - 1, kind
                first, kind = offset, each
        yield first, self.last_offset, kind


def check(batches: Sequence[AcknowledgementBatch], *, may_renew: bool) -> ErrorCode:
    """Returns INVALID_REQUEST if the batches of one partition are not valid, as in Kafka's KafkaApis; else NONE.

    They must be in order, and each must have one type or as many as it has offsets. A batch may begin at the last
    offset of the one before: this is detected later, when the record has no lock any more. `may_renew` is the request's
    IsRenewAck, of version 2 and later.
    """
    highest = AcknowledgeType.RENEW if may_renew else AcknowledgeType.REJECT
    previous_last = -1
    for batch in batches:
        count = len(batch.types)
        if (
            batch.first_offset > batch.last_offset
            or batch.first_offset < previous_last
            or count == 0
            or (count > 1 and count != batch.last_offset - batch.first_offset + 1)
            or min(batch.types) < 0
            or max(batch.types) > highest
        ):
            return ErrorCode.INVALID_REQUEST
        previous_last = batch.last_offset
    return ErrorCode.NONE
