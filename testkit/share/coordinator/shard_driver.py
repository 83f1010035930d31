"""A driver for the share coordinator's machine without a loop, a log file or a clock.

Time is a number that a test moves, topics come from the test, and the log is a list. `append_error` makes the next
append fail, `prune_fails` the next prune. Every reply is checked to be the only one to its token, and to be one that
the wire can carry.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages import delete_share_group_state as deleting
from kwire_protocol.messages import initialize_share_group_state as initializing
from kwire_protocol.messages import read_share_group_state as reading
from kwire_protocol.messages import read_share_group_state_summary as summarizing
from kwire_protocol.messages import write_share_group_state as writing
from kwire_protocol.wire import Uuid, Writer

from kwire.coordinators.effects import Append, Effect, KeyedRecord, Now, Reply
from kwire.share.coordinator.config import ShareStateConfig
from kwire.share.coordinator.effects import Prune
from kwire.share.coordinator.kinds import DELETE, INITIALIZE, READ, SUMMARIZE, WRITE, Kind, Result
from kwire.share.coordinator.records import Change, read_record
from kwire.share.coordinator.shard import ShareStateShard
from kwire.share.coordinator.state import SharePartitionKey, StateBatch, StoredState

TOPIC_ID: Uuid = bytes(range(16))
OTHER_ID: Uuid = bytes(range(16, 32))
KEY = SharePartitionKey("g", TOPIC_ID, 0)
PARTITIONS = 3
START_MS = 1_700_000_000_000


class ShardDriver:
    def __init__(self, config: ShareStateConfig | None = None) -> None:
        self.config = config or ShareStateConfig()
        self.topics = {TOPIC_ID: PARTITIONS, OTHER_ID: PARTITIONS}
        self.now_ms = 0
        self.history: list[KeyedRecord] = []
        """All records ever appended; the index is the offset."""
        self.log_start = 0
        self.appends = 0
        self.append_error = ErrorCode.NONE
        self.prune_fails = False
        self.replies: dict[object, Any] = {}
        self.tokens: set[object] = set()
        self.shard = self.new_shard()
        self.run(self.shard.loaded(now=self.now))

    def new_shard(self) -> ShareStateShard:
        return ShareStateShard(self.config, partition_count=self.topics.get)

    @property
    def now(self) -> Now:
        return Now(START_MS + self.now_ms, self.now_ms)

    @property
    def log(self) -> list[tuple[int, KeyedRecord]]:
        return list(enumerate(self.history))[self.log_start :]

    def changes(self) -> list[Change]:
        """Returns the changes in the records of the log."""
        found = [read_record(*record) for _, record in self.log]
        return [change for change in found if change is not None]

    # The loop of a driver

    def run(self, effects: Iterable[Effect]) -> None:
        todo = list(reversed(list(effects)))
        while todo:
            match todo.pop():
                case Append() as append:
                    assert append.records
                    error, self.append_error = self.append_error, ErrorCode.NONE
                    if error is ErrorCode.NONE:
                        append.base_offset = len(self.history)
                        self.history += append.records
                        self.appends += 1
                    todo += reversed(append.done(error, now=self.now))
                case Reply(token, response):
                    assert token in self.tokens, "a reply to nobody"
                    assert token not in self.replies, "a second reply to the same request"
                    self.replies[token] = response
                case Prune(before_offset):
                    assert self.log_start <= before_offset <= len(self.history)
                    failed, self.prune_fails = self.prune_fails, False
                    if not failed:
                        self.log_start = before_offset
                    todo += reversed(self.shard.pruned(before_offset, done=not failed, now=self.now))
                case other:
                    raise AssertionError(f"an unknown effect: {other}")

    def advance(self, by_ms: int) -> None:
        """Moves the time, stopping at every deadline on the way as a real driver does."""
        until_ms = self.now_ms + by_ms
        while (deadline_ms := self.shard.next_deadline_ms()) is not None and deadline_ms <= until_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.run(self.shard.expire(now=self.now))
        self.now_ms = until_ms

    def restart(self) -> None:
        """A new shard from the log, as when the process died, or another node was elected."""
        self.run(self.shard.unload(now=self.now))
        self.shard = self.replayed()
        self.run(self.shard.loaded(now=self.now))

    def replayed(self) -> ShareStateShard:
        shard = self.new_shard()
        for offset, (key, value) in self.log:
            shard.apply(key, value, -1, offset=offset)
        return shard

    def forget_topic(self, topic_id: Uuid) -> None:
        """It was deleted."""
        del self.topics[topic_id]
        self.run(self.shard.forget_topics({topic_id}, now=self.now))

    # Requests

    def send(self, kind: Kind, key: SharePartitionKey, requested: Any) -> Result:
        token = object()
        self.tokens.add(token)
        self.run(getattr(self.shard, kind.name)(key, requested, token, now=self.now))
        result = self.replies[token]
        response = kind.response({key.topic_id: {key.partition: result}})
        response.write(Writer(), response.versions[-1])
        assert result.partition == key.partition
        assert (result.error_message is None) == (result.error_code == ErrorCode.NONE)
        return result

    def initialize(self, key: SharePartitionKey = KEY, *, state_epoch: int = 0, start_offset: int = 0) -> ErrorCode:
        requested = initializing.PartitionData(key.partition, state_epoch, start_offset)
        return ErrorCode(self.send(INITIALIZE, key, requested).error_code)

    def read(self, key: SharePartitionKey = KEY, leader_epoch: int = -1) -> reading.PartitionResult:
        result = self.send(READ, key, reading.PartitionData(key.partition, leader_epoch))
        assert isinstance(result, reading.PartitionResult)
        return result

    def write(
        self,
        *batches: tuple[int, int, int, int],
        key: SharePartitionKey = KEY,
        state_epoch: int = 0,
        leader_epoch: int = 0,
        start_offset: int = -1,
        complete: int = 0,
    ) -> ErrorCode:
        requested = writing.PartitionData(
            key.partition,
            state_epoch,
            leader_epoch,
            start_offset,
            complete,
            [writing.StateBatch(*batch) for batch in batches],
        )
        return ErrorCode(self.send(WRITE, key, requested).error_code)

    def delete(self, key: SharePartitionKey = KEY) -> ErrorCode:
        return ErrorCode(self.send(DELETE, key, deleting.PartitionData(key.partition)).error_code)

    def summary(self, key: SharePartitionKey = KEY) -> summarizing.PartitionResult:
        result = self.send(SUMMARIZE, key, summarizing.PartitionData(key.partition, 0))
        assert isinstance(result, summarizing.PartitionResult)
        return result

    # What can be seen

    def batches(self, key: SharePartitionKey = KEY) -> list[StateBatch]:
        result = self.read(key)
        assert result.error_code == 0
        return [
            StateBatch(it.first_offset, it.last_offset, it.delivery_state, it.delivery_count)
            for it in result.state_batches
        ]

    def stored(self, key: SharePartitionKey = KEY) -> StoredState:
        """Returns the state after a restart."""
        return self.replayed()._entries[key].state
