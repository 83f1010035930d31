"""Share sessions: epochs, what changes, limits and connections."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import Uuid

from kwire.share.leader.sessions import MAX_EPOCH, Disconnected, ShareContext, SharedPartition, ShareSessions

TOPIC = Uuid(bytes(15) + b"t")
P0, P1, P2 = (SharedPartition(TOPIC, index) for index in range(3))


def opened(
    sessions: ShareSessions,
    *partitions: SharedPartition,
    group: str = "g",
    member: str = "m",
    connection: str = "c",
) -> ShareContext:
    return sessions.begin(group, member, 0, partitions, connection=connection)


def continued(
    sessions: ShareSessions,
    epoch: int,
    wanted: Iterable[SharedPartition] = (),
    forgotten: Iterable[SharedPartition] = (),
) -> ShareContext:
    return sessions.begin("g", "m", epoch, wanted, forgotten, connection="c")


def refused(error: ErrorCode) -> pytest.RaisesExc[KafkaError]:
    return pytest.raises(KafkaError, match=error.name)


def test_a_first_request_opens_a_session() -> None:
    sessions = ShareSessions(10)
    context = opened(sessions, P0, P1)
    assert context.is_first
    assert context.partitions == [P0, P1]
    assert context.ended == []
    assert len(sessions) == 1
    session = sessions.get("g", "m")
    assert session is not None
    assert session.epoch == 1


def test_later_requests_add_and_forget() -> None:
    sessions = ShareSessions(10)
    opened(sessions, P0, P1)
    assert continued(sessions, 1, [P2, P0], [P1]).partitions == [P0, P2]
    assert continued(sessions, 2).partitions == [P0, P2]
    assert continued(sessions, 3, [P1], [P1]).partitions == [P0, P2]


@pytest.mark.parametrize("epoch", [2, 3, 100])
def test_another_epoch_is_refused_and_changes_nothing(epoch: int) -> None:
    sessions = ShareSessions(10)
    opened(sessions, P0)
    with refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH):
        continued(sessions, epoch, [P1])
    assert continued(sessions, 1).partitions == [P0]
    with refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH):
        continued(sessions, 1)


def test_epochs_begin_again_after_the_highest() -> None:
    sessions = ShareSessions(10)
    session = opened(sessions, P0).session
    assert session is not None
    session.epoch = MAX_EPOCH
    continued(sessions, MAX_EPOCH)
    assert session.epoch == 1


@pytest.mark.parametrize("epoch", [1, -1])
def test_a_session_that_is_not_there_is_not_found(epoch: int) -> None:
    sessions = ShareSessions(10)
    with refused(ErrorCode.SHARE_SESSION_NOT_FOUND):
        continued(sessions, epoch)
    with refused(ErrorCode.SHARE_SESSION_NOT_FOUND):
        sessions.acknowledge("g", "m", epoch)
    with refused(ErrorCode.SHARE_SESSION_NOT_FOUND):
        sessions.close("g", "m")


def test_sessions_belong_to_a_member_of_a_group() -> None:
    sessions = ShareSessions(10)
    opened(sessions, P0, connection="1")
    opened(sessions, P1, group="h", connection="2")
    opened(sessions, P2, member="n", connection="3")
    assert len(sessions) == 3
    assert continued(sessions, 1).partitions == [P0]


def test_a_first_request_acknowledges_nothing() -> None:
    sessions = ShareSessions(10)
    with refused(ErrorCode.INVALID_REQUEST):
        sessions.begin("g", "m", 0, [P0], connection="c", has_acknowledgements=True)
    assert len(sessions) == 0


def test_acknowledgements_move_the_epoch_too() -> None:
    sessions = ShareSessions(10)
    opened(sessions, P0)
    sessions.acknowledge("g", "m", 1)
    continued(sessions, 2)
    with refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH):
        sessions.acknowledge("g", "m", 2)
    sessions.acknowledge("g", "m", 3)


def test_an_acknowledgement_opens_no_session() -> None:
    with refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH):
        ShareSessions(10).acknowledge("g", "m", 0)


def test_the_last_request_fetches_nothing_and_the_caller_closes() -> None:
    sessions = ShareSessions(10)
    opened(sessions, P0)
    assert continued(sessions, -1).partitions == []
    sessions.acknowledge("g", "m", -1)
    session = sessions.close("g", "m")
    assert list(session.partitions) == [P0]
    assert len(sessions) == 0
    assert sessions.disconnected("c") == Disconnected(None, "g")


def test_a_full_cache_refuses_and_evicts_nobody() -> None:
    sessions = ShareSessions(2)
    opened(sessions, P0, member="1", connection="1")
    opened(sessions, P0, member="2", connection="2")
    with refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED):
        opened(sessions, P0, member="3", connection="3")
    assert len(sessions) == 2
    sessions.disconnected("1")
    opened(sessions, P0, member="3", connection="3")


def test_a_member_that_begins_again_takes_its_own_place() -> None:
    sessions = ShareSessions(1)
    first = opened(sessions, P0, connection="1").session
    context = opened(sessions, P1, connection="2")
    assert context.ended == [first]
    assert context.partitions == [P1]
    assert sessions.disconnected("1") == Disconnected(None, None)
    assert sessions.disconnected("2") == Disconnected(context.session, "g")


def test_a_connection_has_one_session() -> None:
    sessions = ShareSessions(10)
    first = opened(sessions, P0, member="1").session
    context = opened(sessions, P0, member="2")
    assert context.ended == [first]
    assert len(sessions) == 1


def test_a_lost_connection_ends_its_session() -> None:
    sessions = ShareSessions(10)
    lost = opened(sessions, P0, member="1", connection="1").session
    opened(sessions, P0, member="2", connection="2")
    assert sessions.disconnected("1") == Disconnected(lost, None)
    assert sessions.disconnected("1") == Disconnected(None, None)
    assert sessions.disconnected("other") == Disconnected(None, None)
    assert len(sessions) == 1


def test_sessions_can_be_closed_together() -> None:
    sessions = ShareSessions(10)
    ended = [opened(sessions, P0, member=it, connection=it).session for it in "12"]
    assert sessions.close_all() == ended
    assert len(sessions) == 0


def response(context: ShareContext, **how: str) -> list[SharedPartition]:
    """Returns the partitions of a response. `how`: the result of a partition by its index: records, error."""
    return [
        it
        for it in context.partitions
        if context.must_respond(
            it, has_records=how.get(f"p{it.partition}") == "records", has_error=how.get(f"p{it.partition}") == "error"
        )
    ]


def test_a_first_response_has_every_partition() -> None:
    assert response(opened(ShareSessions(10), P0, P1)) == [P0, P1]


def test_a_later_response_has_what_is_new() -> None:
    sessions = ShareSessions(10)
    opened(sessions, P0, P1)
    assert response(continued(sessions, 1)) == []
    assert response(continued(sessions, 2), p1="records") == [P1]
    assert response(continued(sessions, 3, [P2])) == [P2]
    assert response(continued(sessions, 4)) == []


def test_an_error_is_repeated_until_it_is_gone() -> None:
    sessions = ShareSessions(10)
    opened(sessions, P0)
    assert response(continued(sessions, 1), p0="error") == [P0]
    assert response(continued(sessions, 2), p0="error") == [P0]
    assert response(continued(sessions, 3)) == [P0]
    assert response(continued(sessions, 4)) == []


def test_who_got_records_is_served_last() -> None:
    sessions = ShareSessions(10)
    opened(sessions, P0, P1, P2)
    response(continued(sessions, 1), p0="records")
    assert continued(sessions, 2).partitions == [P1, P2, P0]
