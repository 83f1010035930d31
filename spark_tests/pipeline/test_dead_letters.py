"""Records that cannot be decoded, sent to a topic as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kwire.pipeline.tables.draft import Table
from testkit.spark import records
from testkit.spark.jobs import Jobs, positions
from testkit.spark.records import Record

pytestmark = pytest.mark.more

NewTopic = Callable[..., str]
Sent = Callable[..., None]

_JSON: dict[str, Any] = {"value": "json", "schema": "id BIGINT"}


def test_a_bad_record_goes_to_the_topic_as_it_came_with_its_origin_and_the_reason(
    jobs: Jobs, new_topic: NewTopic, sent: Sent
) -> None:
    topic, letters = new_topic(partitions=2), new_topic()
    headers: list[tuple[str, str | bytes | None]] = [("trace", b"\x00"), ("trace", None)]
    sent(
        topic,
        [
            Record(b'{"id": 1}'),
            Record(b"\xff", key=b"k", partition=1, headers=headers),
            Record(b"{broken"),
            Record(None),
        ],
    )
    jobs.once(topic, dead_letter_topic=letters, **_JSON)

    found = {it.value: it for it in records.consume(jobs.bootstrap, letters)}
    assert set(found) == {b"\xff", b"{broken"}
    first, second = found[b"\xff"], found[b"{broken"]
    assert (first.key, second.key) == (b"k", None)
    where = [("kwire.topic", topic.encode()), ("kwire.replicas.partition", b"1"), ("kwire.offset", b"0")]
    assert first.headers == [*headers, *where, ("kwire.reason", b"not UTF-8")]
    assert ("kwire.offset", b"1") in second.headers
    assert ("kwire.reason", b"not JSON of the table's schema") in second.headers

    # A batch without bad records sends nothing, nor does one more job.
    sent(topic, [Record(b'{"id": 2}')])
    jobs.once(topic, dead_letter_topic=letters, **_JSON)
    jobs.once(topic, dead_letter_topic=letters, **_JSON)
    assert len(records.consume(jobs.bootstrap, letters)) == 2


@pytest.mark.parametrize("kill", ["errors", "rows"])
def test_a_kill_loses_no_letter_and_sends_again_only_what_the_errors_table_has_not(
    jobs: Jobs, new_topic: NewTopic, sent: Sent, monkeypatch: pytest.MonkeyPatch, kill: str
) -> None:
    topic, letters = new_topic(), new_topic()
    sent(topic, [Record(b"{broken"), Record(b"no key", key=None)])

    class Killed(Exception):
        pass

    publish = Table.publish

    def killed(table: Table, *, with_position: bool) -> None:
        begun = table.head().snapshot_id is not None
        if begun and table.name.endswith("__errors`") == (kill == "errors"):
            raise Killed
        publish(table, with_position=with_position)

    with monkeypatch.context() as patch:
        patch.setattr(Table, "publish", killed)
        with pytest.raises(Killed):
            jobs.once(topic, mode="upsert", dead_letter_topic=letters, **_JSON)
    assert len(records.consume(jobs.bootstrap, letters)) == 2, "they are sent first"

    jobs.once(topic, mode="upsert", dead_letter_topic=letters, **_JSON)
    assert len(records.consume(jobs.bootstrap, letters)) == (4 if kill == "errors" else 2)
    assert positions(jobs.errors(topic)) == [(0, 0), (0, 1)]
