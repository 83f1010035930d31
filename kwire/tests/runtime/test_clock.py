"""The machine's own clock and randomness."""

from __future__ import annotations

import uuid

from kwire_protocol.wire import uuid_to_text

from kwire.runtime.clock import SystemClock


def test_ids_are_random_uuids_whose_text_is_no_flag() -> None:
    clock = SystemClock()
    ids = {clock.uuid() for _ in range(5_000)}
    assert len(ids) == 5_000
    for raw in ids:
        read = uuid.UUID(bytes=raw)
        assert (read.version, read.variant) == (4, uuid.RFC_4122)
        assert not uuid_to_text(raw).startswith("-")
