"""The share partitions of the partitions that this broker leads (KIP-932). Kafka's `SharePartitionManager`.

A share partition is created by the first ShareFetch of its group, and gets its state from the share coordinator. It
ends

* when this broker does not lead the partition any more, or leads it in another leader epoch; when the topic is deleted;
  when the log is offline. All of these wake the waiters of the partition, so this service needs no other notice;
* when it cannot be initialized, or a write is refused for good;
* when the group has no share session on this broker any more, and nothing is being written or copied to the group's
  dead-letter topic (`dead_letters.py`).

One task ends locks. It sleeps until the earliest deadline of all share partitions. And before a share partition is used
for a request, what is due in it is carried out (`_expire_due`). So an acknowledgement that comes after its lock has
timed out is too late, even if the task wakes up late.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

from kwire.backoff import Backoff
from kwire.coordinators.timekeeper import Timekeeper
from kwire.groups.config import SharePartitionSettings
from kwire.groups.settings import GroupSettings
from kwire.replicas.roles import Leader
from kwire.runtime.clock import Clock
from kwire.runtime.futures import Future, drive
from kwire.runtime.service import Service
from kwire.share.coordinator import state as share_state
from kwire.share.coordinator.persister import Persister
from kwire.share.coordinator.state import SharePartitionKey
from kwire.share.leader.acknowledgements import AcknowledgementBatch
from kwire.share.leader.acquiring import AcquiredRange, Fetched
from kwire.share.leader.counts import SharingCounts
from kwire.share.leader.dead_letters import DeadLetters
from kwire.share.leader.effects import Acknowledged, DeadLetter, Effect, Ended, StateBatch, Wake, Write
from kwire.share.leader.led import LedSharePartition
from kwire.share.leader.offset_reset import first_start_offset
from kwire.share.leader.sessions import SharedPartition, ShareSession, ShareSessions
from kwire.share.leader.share_partition import PersistedState, SharePartition, Status, client_error
from kwire.share.leader.states import AcknowledgeType, AcquireMode, RecordState, ShareLimits

if TYPE_CHECKING:
    from kwire.replicas.partition import Partition

log = logging.getLogger(__name__)

CHOSEN_BY_LEADER = -1
"""The start offset of a state for which share.auto.offset.reset decides."""

Outcome = Future[ErrorCode]
"""The outcome of an acknowledgement, or of a release."""

COPY_PAUSES_MS = Backoff(first=1_000, longest=30_000)
"""The pauses after failed copies of a dead letter. As in Kafka."""

_NOT_LED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class SharingService(Service):
    """The operations of ShareFetch and ShareAcknowledge. `sessions` has the share sessions of this broker.

    `lead` and `acquire` are for fetches, `acknowledge` and `release` for the rest.
    """

    def __init__(
        self,
        persister: Persister,
        settings: GroupSettings,
        dead_letters: DeadLetters,
        clock: Clock,
        counts: SharingCounts,
        *,
        max_sessions: int,
    ) -> None:
        self.counts = counts
        self.sessions = ShareSessions(max_sessions)
        self._persister = persister
        self._settings = settings
        self._dead_letters = dead_letters
        self._clock = clock
        self._led: dict[SharePartitionKey, LedSharePartition] = {}
        self._time = Timekeeper(clock)

    def settings(self, group_id: str) -> SharePartitionSettings:
        return self._settings.of_share_partitions(group_id)

    def __len__(self) -> int:
        """Returns the number of share partitions."""
        return len(self._led)

    def share_partitions(self) -> list[LedSharePartition]:
        return list(self._led.values())

    # Fetching

    def lead(self, group_id: str, partition: Partition) -> LedSharePartition:
        """Returns the share partition of a partition that this broker leads; begins to initialize a new one.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
        """
        role = partition.leader()
        key = SharePartitionKey(group_id, partition.topic_id, partition.index)
        led = self._led.get(key)
        if led is None:
            machine = SharePartition(role.leader_epoch, self._limits(group_id), self.counts)
            led = self._led[key] = LedSharePartition(key, partition, machine, self._changed)
            partition.waiters[led] = None
            drive(self._initialize(led))
        led.is_unused = False
        self._expire_due(led, self._now_ms())
        return led

    def acquire(
        self,
        led: LedSharePartition,
        member_id: str,
        fetched: Fetched,
        *,
        max_records: int,
        batch_size: int,
        mode: AcquireMode,
    ) -> list[AcquiredRange]:
        """Acquires the fetched records that the member may have, and returns their ranges."""
        now_ms = self._begin(led)
        acquired = led.machine.acquire(
            member_id, fetched, max_records=max_records, batch_size=batch_size, mode=mode, now_ms=now_ms
        )
        self._attend(led)
        return acquired

    async def _initialize(self, led: LedSharePartition) -> None:
        key, machine = led.key, led.machine
        began_ms = self._clock.monotonic_ms()
        try:
            try:
                state = await self._persister.read(key.group_id, key.topic_id, key.partition, machine.leader_epoch)
            except KafkaError:
                self.counts.failed_reads += 1
                raise
            finally:
                self.counts.reads.add(self._clock.monotonic_ms() - began_ms)
            if led.ended is not None:
                return
            start_offset = state.start_offset
            if start_offset == CHOSEN_BY_LEADER:
                reset = self.settings(key.group_id).auto_offset_reset
                start_offset = first_start_offset(led.partition, reset, now_ms=self._clock.now_ms())
            self._refresh(led)
            effects = machine.initialize(PersistedState(start_offset, state.state_epoch, _known(state.batches)))
        except KafkaError as error:
            # A client may repeat requests for what was never initialized. Only an invalid state is worth a log line.
            log.log(
                logging.WARNING if machine.status is Status.FAILED else logging.DEBUG,
                "no share partition of %s-%d for group %a: %s",
                led.partition.topic,
                led.partition.index,
                key.group_id,
                error,
            )
            code = client_error(error.code)
            self._end(led, led.not_leader() if code in _NOT_LED else KafkaError(code, error.message))
            return
        self._do(led, effects)
        self._follow_log_start(led)
        led.wake_fetches()

    # Acknowledging

    def acknowledge(
        self,
        group_id: str,
        member_id: str,
        shared: SharedPartition,
        batches: Sequence[AcknowledgementBatch],
        *,
        may_renew: bool,
    ) -> Outcome:
        """The future gets the error of `SharePartition.acknowledge`, or UNKNOWN_TOPIC_OR_PARTITION if the group has
        fetched nothing from the partition here."""
        outcome: Outcome = Future()
        led = self._led.get(SharePartitionKey(group_id, *shared))
        if led is None:
            outcome.set(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif (
            may_renew
            and not self.settings(group_id).may_renew
            and any(AcknowledgeType.RENEW in batch.types for batch in batches)
        ):
            outcome.set(ErrorCode.INVALID_RECORD_STATE)
        else:
            now_ms = self._begin(led)
            self._do(led, led.machine.acknowledge(outcome, member_id, batches, may_renew=may_renew, now_ms=now_ms))
        return outcome

    def release(self, session: ShareSession) -> list[Outcome]:
        """The session has ended: releases the records that its member holds."""
        group_id, member_id = session.key
        outcomes: list[Outcome] = []
        for shared in session.partitions:
            led = self._led.get(SharePartitionKey(group_id, *shared))
            if led is not None and led.machine.status is Status.ACTIVE:
                outcome: Outcome = Future()
                outcomes.append(outcome)
                self._begin(led)
                self._do(led, led.machine.release(outcome, member_id))
        return outcomes

    def disconnected(self, connection: Hashable) -> None:
        """A connection with a share session is lost."""
        session, empty_group = self.sessions.disconnected(connection)
        if session is not None:
            self.release(session)
        if empty_group is not None:
            for led in [it for key, it in self._led.items() if key.group_id == empty_group]:
                led.is_unused = True
                self._drop_if_unused(led)
            self._settings.forget_share_partitions(empty_group)

    def turn_off(self) -> None:
        """Ends all sessions, because the cluster has no share groups any more (`share.version` is 0)."""
        for session in self.sessions.close_all():
            self.release(session)

    # Effects

    def _do(self, led: LedSharePartition, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Write():
                    led.writes += 1
                    drive(self._write(led, effect))
                case Acknowledged(token, error):
                    assert isinstance(token, Future)
                    token.set(error)
                case DeadLetter():
                    self._dead_letter(led, effect)
                case Wake():
                    led.wake_fetches()
                case Ended(error):
                    self._end(led, led.not_leader() if error in _NOT_LED else KafkaError(error))
        self._attend(led)

    async def _write(self, led: LedSharePartition, write: Write) -> None:
        error = ErrorCode.NONE
        began_ms = self._clock.monotonic_ms()
        try:
            await self._persister.write(
                led.key.group_id,
                led.key.topic_id,
                led.key.partition,
                state_epoch=write.state_epoch,
                leader_epoch=write.leader_epoch,
                start_offset=write.start_offset,
                delivery_complete_count=write.delivery_complete_count,
                batches=[share_state.StateBatch(*batch) for batch in write.batches],
            )
        except KafkaError as failure:
            error = failure.code
            self.counts.failed_writes += 1
        finally:
            led.writes -= 1
        self.counts.writes.add(self._clock.monotonic_ms() - began_ms)
        self._do(led, led.machine.written(write, error, now_ms=self._now_ms()))
        self._drop_if_unused(led)

    def _dead_letter(self, led: LedSharePartition, letter: DeadLetter) -> None:
        if self.settings(led.key.group_id).dead_letter_topic:
            drive(self._copy(led, letter))
        else:  # the group had a dead-letter topic when the record failed
            self._do(led, led.machine.dead_lettered(letter))

    async def _copy(self, led: LedSharePartition, letter: DeadLetter) -> None:
        """Copies the letter in pieces, and has each piece archived when it is in the topic."""
        done = letter.first_offset - 1
        while done < letter.last_offset and led.ended is None:
            rest = attrs.evolve(letter, first_offset=done + 1)
            try:
                done = await self._dead_letters.copy(led.key.group_id, led.partition, rest)
            except KafkaError as error:
                led.failed_copies += 1
                pause_ms = COPY_PAUSES_MS.after(led.failed_copies)
                log.debug("the dead letter %s is copied again in %d ms: %s", rest, pause_ms, error)
                retry_at_ms = self._now_ms() + pause_ms
                self._do(led, led.machine.dead_letter_failed(rest, retry_at_ms=retry_at_ms))
                return
            led.failed_copies = 0
            self._do(led, led.machine.dead_lettered(attrs.evolve(rest, last_offset=done)))

    def _end(self, led: LedSharePartition, error: KafkaError) -> None:
        if led.ended is not None:
            return
        led.ended = error
        led.machine.end(error.code)
        if self._led.get(led.key) is led:
            del self._led[led.key]
        led.partition.waiters.pop(led, None)
        led.wake_fetches()

    def _drop_if_unused(self, led: LedSharePartition) -> None:
        # While it writes, the share coordinator does not have the state yet that another share partition would read.
        # And no other one would copy the remaining dead letters before the group comes back.
        if led.is_unused and not led.writes and not led.waiters and not led.has_dead_letters:
            self._end(led, led.not_leader())

    # Changes of the partition, and of the settings

    def _changed(self, led: LedSharePartition) -> None:
        if not led.leads:
            role = led.partition.role
            self._end(led, led.not_leader() if isinstance(role, Leader) else role.refusal())
            return
        self._follow_log_start(led)
        led.wake_fetches()

    def _follow_log_start(self, led: LedSharePartition) -> None:
        machine = led.machine
        if machine.status is Status.ACTIVE and led.partition.log_start_offset > machine.start_offset:
            self._do(led, machine.move_start_offset(led.partition.log_start_offset))

    def _limits(self, group_id: str) -> ShareLimits:
        settings = self.settings(group_id)
        return ShareLimits(
            max_in_flight_records=settings.max_record_locks,
            delivery_count_limit=settings.delivery_count_limit,
            lock_duration_ms=settings.record_lock_duration_ms,
            release_delay_ms=settings.release_delay_ms,
            max_release_delay_ms=settings.max_release_delay_ms,
            has_dead_letters=bool(settings.dead_letter_topic),
        )

    def _refresh(self, led: LedSharePartition) -> None:
        led.machine.limits = self._limits(led.key.group_id)

    # Time

    async def run(self) -> None:
        """Releases timed-out locks at their deadlines, until cancelled."""
        await self._time.run(self.settle, self._deadlines_ms)

    def settle(self) -> None:
        """Carries out what is due."""
        now_ms = self._now_ms()
        for led in list(self._led.values()):
            if self._expire_due(led, now_ms):
                self._drop_if_unused(led)

    def _begin(self, led: LedSharePartition) -> int:
        """Carries out what is due, and refreshes the share partition's settings. Returns the time of the next call."""
        now_ms = self._now_ms()
        self._expire_due(led, now_ms)
        self._refresh(led)
        return now_ms

    def _expire_due(self, led: LedSharePartition, now_ms: int) -> bool:
        """Carries out what is due. Returns True if anything was."""
        deadline_ms = led.machine.next_deadline_ms()
        if deadline_ms is None or deadline_ms > now_ms:
            return False
        self._refresh(led)
        self._do(led, led.machine.expire(now_ms=now_ms))
        return True

    def _now_ms(self) -> int:
        return self._time.now().monotonic_ms

    def _attend(self, led: LedSharePartition) -> None:
        """Wakes the task if the share partition has a deadline before the task wakes up."""
        deadline_ms = led.machine.next_deadline_ms()
        if deadline_ms is not None and deadline_ms < self._time.awaited_ms:
            self._time.wake()

    def _deadlines_ms(self) -> Iterator[int | None]:
        return (led.machine.next_deadline_ms() for led in self._led.values())


def _known(batches: Iterable[share_state.StateBatch]) -> list[StateBatch]:
    """Converts persisted batches. Raises KafkaError UNKNOWN_SERVER_ERROR for a state that does not exist."""
    try:
        return [StateBatch(first, last, RecordState(state), count) for first, last, state, count in batches]
    except ValueError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
