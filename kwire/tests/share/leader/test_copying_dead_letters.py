"""Records that a share group gives up on a broker: in the dead-letter topic, once archived (KIP-1191)."""

from __future__ import annotations

import gc
import logging
import sys

import pytest
import trio
import trio.testing
from kwire_protocol.errors import ErrorCode as E
from kwire_protocol.records import Record
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.metadata.image import ConfigResourceType
from kwire.runtime.futures import Future, begun, drive
from kwire.share.coordinator.state import StateBatch
from kwire.share.leader.dead_letters import ENABLED, MAX_COPYING
from kwire.share.leader.effects import DeadLetter
from kwire.share.leader.letter_records import letters
from kwire.share.leader.states import ARCHIVED, ARCHIVING, Cause
from testkit.raw.share_requests import ACCEPT, REJECT, RELEASE
from testkit.share.leader.dead_letter_scene import AUTO_CREATE, DLQ, DeadLetterScene, story_of
from testkit.share.leader.members import finished

REJECTED = "Offset rejected by client."
COUNTED = "Offset delivery count exceeded the threshold."


def headers(record: Record) -> dict[str, str]:
    return {name: (value or b"").decode() for name, value in record.headers}


def test_a_rejected_record_is_copied_with_its_origin_and_its_reason() -> None:
    async def story(scene: DeadLetterScene) -> None:
        await scene.create()
        await scene.name_topic()
        await scene.append(
            Record(timestamp=1, key=b"k", value=b"a", headers=[("mine", b"1")]), Record(timestamp=1, value=b"b")
        )
        member = await scene.group.member()
        assert await member.get() == [(0, 1, 1)]
        assert await member.ack((0, 0, REJECT), (1, 1, ACCEPT)) == E.NONE
        state = await scene.settled()
        (letter,) = scene.letters()
        assert (letter.key, letter.value) == (b"k", b"a")
        assert headers(letter) == {
            "mine": "1",
            "__dlq.errors.topic": "t",
            "__dlq.errors.partition": "0",
            "__dlq.errors.offset": "0",
            "__dlq.errors.group": "g",
            "__dlq.errors.delivery.count": "1",
            "__dlq.errors.message": REJECTED,
        }
        assert letter.timestamp > 1, "a letter has the time at which it was written"
        assert state.start_offset == 2 or state.batches[0] == StateBatch(0, 0, ARCHIVED, 1)

    story_of(story)


def test_without_copies_a_letter_has_headers_only() -> None:
    async def story(scene: DeadLetterScene) -> None:
        await scene.create()
        await scene.name_topic(copies=False)
        await scene.append(Record(timestamp=1, key=b"k", value=b"a", headers=[("mine", b"1")]))
        member = await scene.group.member()
        await member.get()
        assert await member.ack((0, 0, REJECT)) == E.NONE
        await scene.settled()
        (letter,) = scene.letters()
        assert (letter.key, letter.value, "mine" in headers(letter)) == (None, None, False)
        assert headers(letter)["__dlq.errors.offset"] == "0"

    story_of(story)


def test_a_record_that_was_delivered_too_often_is_copied_with_its_count() -> None:
    async def story(scene: DeadLetterScene) -> None:
        await scene.create()
        await scene.name_topic()
        await scene.configure(ConfigResourceType.GROUP, "g", share_delivery_count_limit="2")
        await scene.group.produce(b"a")
        member = await scene.group.member()
        for _ in range(2):
            await member.get()
            assert scene.letters() == []
            assert await member.ack((0, 0, RELEASE)) == E.NONE
        await scene.settled()
        (letter,) = scene.letters()
        found = headers(letter)
        assert (found["__dlq.errors.delivery.count"], found["__dlq.errors.message"]) == ("2", COUNTED)

    story_of(story)


def test_records_of_several_batches_are_copied_in_their_order_and_acknowledged_ones_are_not() -> None:
    async def story(scene: DeadLetterScene) -> None:
        await scene.create()
        await scene.name_topic()
        await scene.group.produce(b"a", b"b", b"c")
        await scene.group.produce(b"d", b"e")
        member = await scene.group.member()
        await member.get()
        assert await member.ack((0, 4, [REJECT, ACCEPT, REJECT, REJECT, REJECT])) == E.NONE
        await scene.settled()
        assert [letter.value for letter in scene.letters()] == [b"a", b"c", b"d", b"e"]

    story_of(story)


def test_what_does_not_fit_into_one_batch_is_copied_in_several() -> None:
    async def story(scene: DeadLetterScene) -> None:
        await scene.create(max_message_bytes="1000")
        await scene.name_topic()
        await scene.group.produce(*[b"x" * 300] * 5)
        member = await scene.group.member()
        await member.get()
        assert await member.ack((0, 4, REJECT)) == E.NONE
        await scene.settled()
        assert [headers(letter)["__dlq.errors.offset"] for letter in scene.letters()] == list("01234")
        assert all(letter.value == b"x" * 300 for letter in scene.letters())

    story_of(story)


def test_of_a_record_that_is_too_large_for_the_topic_the_letter_has_headers_only() -> None:
    async def story(scene: DeadLetterScene) -> None:
        await scene.create(max_message_bytes="1000")
        await scene.name_topic()
        await scene.group.produce(b"x" * 1000, b"b")
        member = await scene.group.member()
        await member.get()
        assert await member.ack((0, 1, REJECT)) == E.NONE
        await scene.settled()
        assert [(headers(it)["__dlq.errors.offset"], it.value) for it in scene.letters()] == [("0", None), ("1", b"b")]

    story_of(story)


def test_a_dead_letter_that_fails_again_has_the_headers_of_the_second_time() -> None:
    async def story(scene: DeadLetterScene) -> None:
        await scene.create()
        await scene.name_topic()
        await scene.append(Record(timestamp=1, value=b"a", headers=[("__dlq.errors.topic", b"first")]))
        member = await scene.group.member()
        await member.get()
        assert await member.ack((0, 0, REJECT)) == E.NONE
        await scene.settled()
        (letter,) = scene.letters()
        assert [value for name, value in letter.headers if name == "__dlq.errors.topic"] == [b"t"]

    story_of(story)


def test_the_topic_is_created_where_that_is_allowed() -> None:
    async def story(scene: DeadLetterScene) -> None:
        await scene.name_topic()
        await scene.group.produce(b"a")
        member = await scene.group.member()
        await member.get()
        assert await member.ack((0, 0, REJECT)) == E.NONE
        await scene.settled()
        assert [letter.value for letter in scene.letters()] == [b"a"]
        values = scene.group.broker.metadata.topic_values(DLQ)
        assert (values[ENABLED], values["message.timestamp.type"]) == (True, "CreateTime")

    story_of(story, settings=[AUTO_CREATE])


@pytest.mark.parametrize(
    ("name", "configs", "words"),
    [
        pytest.param(DLQ, None, "there is no such topic", id="missing"),
        pytest.param(DLQ, {ENABLED: "false"}, f"it does not have {ENABLED}=true", id="not allowed"),
        pytest.param("letters", {}, "does not begin with", id="prefix"),
        pytest.param(DLQ, {"cleanup.policy": "compact"}, "INVALID_RECORD", id="refused"),
    ],
)
def test_what_cannot_be_copied_is_archived_and_logged_once(
    caplog: pytest.LogCaptureFixture, name: str, configs: dict[str, str] | None, words: str
) -> None:
    async def story(scene: DeadLetterScene) -> None:
        if configs is not None:
            await scene.create(name, **configs)
        await scene.name_topic(name)
        await scene.group.produce(b"a", b"b", b"c")
        member = await scene.group.member()
        await member.get()
        for offset in range(3):
            assert await member.ack((offset, offset, REJECT)) == E.NONE
        state = await scene.settled()
        assert state.start_offset == 3 or {it.delivery_state for it in state.batches} == {ARCHIVED}
        assert scene.letters(name) == []
        found = [it for it in caplog.messages if "archived without a dead letter" in it]
        assert len(found) == 1
        assert words in found[0]

    caplog.set_level(logging.INFO, "kwire")
    story_of(story)


def test_an_append_that_fails_is_repeated_with_growing_pauses() -> None:
    async def story(scene: DeadLetterScene) -> None:
        await scene.create()
        scene.lead(False)
        await scene.name_topic()
        await scene.group.produce(b"a")
        member = await scene.group.member()
        await member.get()
        assert await member.ack((0, 0, REJECT)) == E.NONE
        await scene.settled()
        (led,) = scene.group.broker.sharing._led.values()
        assert led.failed_copies == 1
        await trio.sleep(1.5)
        assert led.failed_copies == 2
        assert (await scene.settled()).batches == (StateBatch(0, 0, ARCHIVING, 1),)
        scene.lead(True)
        assert scene.letters() == []
        await trio.sleep(2)
        await scene.settled()
        assert [letter.value for letter in scene.letters()] == [b"a"]
        assert led.failed_copies == 0

    story_of(story)


def test_a_letter_outlives_the_members_of_the_group() -> None:
    async def story(scene: DeadLetterScene) -> None:
        await scene.create()
        scene.lead(False)
        await scene.name_topic()
        await scene.group.produce(b"a")
        member = await scene.group.member()
        await member.get()
        assert await member.ack((0, 0, REJECT)) == E.NONE
        await member.client.hang_up()
        await scene.settled()
        assert len(scene.group.broker.sharing) == 1
        scene.lead(True)
        await trio.sleep(5)
        await scene.settled()
        assert [letter.value for letter in scene.letters()] == [b"a"]
        assert len(scene.group.broker.sharing) == 0

    story_of(story)


def test_after_a_restart_a_letter_is_copied_that_was_not() -> None:
    disk = MemoryDisk()

    async def before(scene: DeadLetterScene) -> None:
        await scene.create()
        scene.lead(False)
        await scene.name_topic()
        await scene.group.produce(b"a", b"b")
        member = await scene.group.member()
        await member.get()
        assert await member.ack((0, 1, [REJECT, ACCEPT])) == E.NONE
        await scene.settled()
        assert scene.letters() == []

    async def after(scene: DeadLetterScene) -> None:
        assert scene.letters() == []
        member = await scene.group.member("b")
        assert await member.get() == []
        await scene.settled()
        (letter,) = scene.letters()
        assert letter.value == b"a"
        assert headers(letter)["__dlq.errors.message"] == REJECTED
        await scene.group.produce(b"c")
        assert await member.get() == [(2, 2, 1)]

    story_of(before, disk=disk)
    story_of(after, disk=disk, is_restarted=True)


def test_after_a_restart_a_letter_that_is_there_is_not_copied_again() -> None:
    """The broker ended between the letter and the state that records it."""
    disk = MemoryDisk()

    async def before(scene: DeadLetterScene) -> None:
        await scene.create()
        scene.lead(False)
        await scene.name_topic()
        await scene.group.produce(b"a", b"b", b"c", b"d")
        member = await scene.group.member()
        await member.get()
        assert await member.ack((0, 3, [REJECT])) == E.NONE
        await scene.settled()
        scene.lead(True)
        partition = scene.group.server.partition
        for offset, group_id in ((1, "g"), (2, "another")):
            letter = DeadLetter(offset, offset, 1, Cause.REJECTED)
            await scene.append(*letters(group_id, partition, letter, {}, offset, max_bytes=1_000, now_ms=1), topic=DLQ)
        scene.lead(False)

    async def after(scene: DeadLetterScene) -> None:
        member = await scene.group.member("b")
        assert await member.get() == []
        await scene.settled()
        found = [headers(it) for it in scene.letters()]
        mine = [it["__dlq.errors.offset"] for it in found if it["__dlq.errors.group"] == "g"]
        assert sorted(mine) == ["0", "1", "2", "3"]
        assert len(found) == 5
        assert {it.delivery_state for it in (await scene.settled()).batches} == {ARCHIVED}

    story_of(before, disk=disk)
    story_of(after, disk=disk, is_restarted=True)


def test_a_group_whose_topic_is_taken_away_archives_what_waits() -> None:
    async def story(scene: DeadLetterScene) -> None:
        await scene.create()
        scene.lead(False)
        await scene.name_topic()
        await scene.group.produce(b"a")
        member = await scene.group.member()
        await member.get()
        assert await member.ack((0, 0, REJECT)) == E.NONE
        await scene.settled()
        await scene.name_topic("")
        await trio.sleep(2)
        state = await scene.settled()
        assert state.start_offset == 1 or state.batches == (StateBatch(0, 0, ARCHIVED, 1),)

    story_of(story)


def test_what_is_not_in_the_log_any_more_leaves_headers() -> None:
    async def story(scene: DeadLetterScene) -> None:
        await scene.create()
        await scene.name_topic()
        await scene.group.produce(b"a", b"b", b"c")
        partition = scene.group.server.partition
        partition.delete_records_before(2, now_ms=0)
        letters = scene.group.broker.sharing._dead_letters
        done = await finished(letters.copy("g", partition, DeadLetter(0, 2, 1, Cause.REJECTED)))
        assert done == 1
        assert await finished(letters.copy("g", partition, DeadLetter(2, 5, 1, Cause.REJECTED))) == 2
        assert await finished(letters.copy("g", partition, DeadLetter(3, 5, 1, Cause.REJECTED))) == 5
        assert [it.value for it in scene.letters()] == [None, None, b"c", None, None, None]

    story_of(story)


def test_more_letters_than_are_copied_at_a_time_wait_for_their_turn() -> None:
    async def story(scene: DeadLetterScene) -> None:
        await scene.create()
        await scene.name_topic()
        await scene.group.produce(*[b"%d" % it for it in range(100)])
        member = await scene.group.member()
        await member.get()
        assert await member.ack(*[(it, it, REJECT if it % 2 else ACCEPT) for it in range(100)]) == E.NONE
        await scene.settled()
        assert {letter.value for letter in scene.letters()} == {b"%d" % it for it in range(1, 100, 2)}

    story_of(story)


def test_one_that_ends_lets_the_next_one_begin() -> None:
    async def story(scene: DeadLetterScene) -> None:
        await scene.create()
        await scene.name_topic()
        await scene.group.produce(b"a")
        letters = scene.group.broker.sharing._dead_letters
        letter = DeadLetter(0, 0, 1, Cause.REJECTED)
        ends: list[Future[None]] = [Future() for _ in range(MAX_COPYING)]

        async def hold(end: Future[None]) -> None:
            await letters._acquire_slot()
            await end
            letters._release_slot()

        for end in ends:
            drive(hold(end))
        copied = [begun(letters.copy("g", scene.group.server.partition, letter)) for _ in range(2)]
        await scene.settled()
        assert [it.is_set for it in copied] == [False, False]
        ends.pop().set(None)
        await scene.settled()
        assert [it.value.unwrap() for it in copied] == [0, 0]
        for end in ends:
            end.set(None)

    story_of(story)


def test_a_server_that_ends_while_it_copies_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", errors.append)

    async def never(*_args: object) -> None:
        await Future()

    async def story(scene: DeadLetterScene) -> None:
        await scene.name_topic()
        letters = scene.group.broker.sharing._dead_letters
        monkeypatch.setattr(letters, "_topic", never)
        drive(letters.copy("g", scene.group.server.partition, DeadLetter(0, 0, 1, Cause.REJECTED)))

    story_of(story)
    gc.collect()
    assert not errors
