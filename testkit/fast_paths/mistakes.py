"""Deliberate mistakes in the fast paths, by the text of their source; the stories must find each of them.

They are made in functions inside of functions, which `testkit.mutants` cannot name.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Final

import attrs

PRODUCE: Final = "kwire.handlers.fast.produce"
FETCH: Final = "kwire.handlers.fast.fetch"
READS: Final = "kwire.handlers.fast.fetched"
SESSION: Final = "kwire.handlers.fast.session_fetch"
SESSIONS: Final = "kwire.replicas.fetch_sessions"
HEARTBEAT: Final = "kwire.handlers.fast.consumer_group_heartbeat"
TEMPLATES: Final = "kwire.handlers.fast.templates"
SHAPES: Final = "kwire.handlers.shapes"
CONNECTION: Final = "kwire.network.connection"
AUTHORIZATION: Final = "kwire.handlers.authorization"
GROUPS: Final = "kwire.groups.service"
HEARTBEATS: Final = "kwire.groups.consumer.heartbeats"
VALIDATION: Final = "kwire_protocol.record_validation"


@attrs.frozen
class Mistake:
    """In a module, `right`, which occurs once, becomes `wrong`."""

    name: str
    module: str
    right: str
    wrong: str


def _without(name: str, module: str, condition: str) -> Mistake:
    """A condition that is left out of an `or`."""
    return Mistake(name, module, condition, f"({condition}) and False")


MISTAKES: Final = (
    # Produce: the request
    Mistake("several partitions", PRODUCE, "len(shape.topics[0][2]) != 1", "not shape.topics[0][2]"),
    _without("a negative partition", PRODUCE, "index < 0"),
    _without("an unknown acks", PRODUCE, "acks not in VALID_ACKS"),
    _without("the bytes behind the records", PRODUCE, "frame[start + size :] != rest"),
    # Produce: the batch
    _without("an invalid batch", PRODUCE, "header is None"),
    Mistake(
        "a batch that is not checked",
        VALIDATION,
        "header if header[5] in PLAIN_ATTRIBUTES and _is_ordinary(records, header, None) else None",
        "header if header[5] in PLAIN_ATTRIBUTES else None",
    ),
    Mistake(
        "the attributes",
        VALIDATION,
        "header if header[5] in PLAIN_ATTRIBUTES and",
        "header if header[5] & 0x20 == 0 and",
    ),
    # Produce: the partition
    _without("a replica that is absent", PRODUCE, "type(partition) is not Partition"),
    _without("an internal topic", PRODUCE, "partition.is_internal"),
    _without("other replicas", PRODUCE, "(acks == ALL_IN_SYNC and not role.is_alone)"),
    _without("a flush that is required", PRODUCE, "gate.trigger_messages != NEVER"),
    _without("a flush that is awaited", PRODUCE, "gate.held_from != NEVER"),
    _without("a topic with rules", PRODUCE, "not rules.accepts_unchanged"),
    _without("max.message.bytes", PRODUCE, "size > rules.max_message_bytes"),
    Mistake(
        "max.message.bytes by one", PRODUCE, "size > rules.max_message_bytes", "size >= rules.max_message_bytes + 9"
    ),
    _without("a timestamp of the future", PRODUCE, "header.max_timestamp > now_ms + rules.timestamp_after_max_ms"),
    _without("the authorizer", PRODUCE, "not may_write(context, Operation.WRITE, topic)"),
    Mistake("another operation", PRODUCE, "may_write(context, Operation.WRITE", "may_write(context, Operation.READ"),
    # Produce: the append and the response
    Mistake(
        "the epoch of the producer",
        PRODUCE,
        "partition.append(batch, header, acks",
        "partition.append(batch, header._replace(producer_id=-1), acks",
    ),
    Mistake("a refusal with acks=0", PRODUCE, "refusals, acks, context)", "refusals, 1, context)"),
    Mistake("a refused batch", PRODUCE, "refusals.refuse(refused, batch,", "refusals.refuse(refused, None,"),
    Mistake("the partition of a refusal", PRODUCE, "batch, error, partition)", "batch, error, None)"),
    Mistake("a reply with acks=0", PRODUCE, "if not acks:", "if acks > 1:"),
    Mistake("the log start", PRODUCE, "partition.log.log_start_offset, tail", "0, tail"),
    Mistake(
        "the timestamp of a repeat",
        PRODUCE,
        "base_offset, log_append_time_ms, partition.log",
        "base_offset, -1, partition.log",
    ),
    Mistake(
        "the correlation id",
        PRODUCE,
        "size_of_reply, correlation_id, head",
        "size_of_reply, correlation_id & 0xFFFF, head",
    ),
    # Fetch: the request
    Mistake("a version without the log start", READS, "version >= FIRST_VERSION\n", "True\n"),
    Mistake("a follower", READS, "and replica_id <= CONSUMER\n", ""),
    Mistake(
        "an unknown isolation level", READS, "request.isolation_level in (READ_UNCOMMITTED, READ_COMMITTED)", "True"
    ),
    Mistake("a consumer that detects truncation", READS, "partition.last_fetched_epoch == NO_EPOCH", "True"),
    Mistake("a negative partition to read", READS, " or index < 0", ""),
    Mistake(
        "sessions", SHAPES, "if request.session_id == NO_SESSION and request.session_epoch == FINAL_EPOCH and", "if"
    ),
    # Fetch: the partition and the records
    _without("a replica to read that is absent", READS, "type(partition) is not Partition"),
    Mistake("a leader epoch", READS, "current_leader_epoch != role.leader_epoch", "False"),
    Mistake("a follower that is read", READS, "type(role) is not Leader or ", ""),
    Mistake(
        "the authorizer of a fetch",
        READS,
        "partition if self.authorization.has_granted(context, Operation.READ, topic) else None",
        "partition",
    ),
    Mistake(
        "the last stable offset", READS, "bound = last_stable_offset if is_committed", "bound = high_watermark if True"
    ),
    Mistake("aborted transactions", READS, "if is_committed and partition.aborted", "if False and partition.aborted"),
    Mistake("max_bytes", FETCH, "min(wanted.partition_max_bytes, request.max_bytes)", "wanted.partition_max_bytes"),
    Mistake("partition_max_bytes", FETCH, "min(wanted.partition_max_bytes, request.max_bytes)", "request.max_bytes"),
    Mistake("fetch.max.bytes", READS, "min(max_bytes, self.metadata.config.fetch_max_bytes)", "max_bytes"),
    Mistake("the first batch", READS, "min_one_batch=True", "min_one_batch=False"),
    # Fetch: the wait
    Mistake("min_bytes", FETCH, "size < min_bytes and max_wait_ms > 0", "size == 0 and max_wait_ms > 0"),
    Mistake("the wait's length", FETCH, "ParkedFetch(max_wait_ms / 1000)", "ParkedFetch(max_wait_ms / 400)"),
    Mistake("quotas that were set during a wait", FETCH, "if context.fetch_throttle_ms is None:", "if True:"),
    Mistake("a change during a wait", FETCH, "if find(context, topic, index, epoch) is partition:", "if True:"),
    Mistake("too few records after a wait", FETCH, "again is not None and size >= min_bytes", "again is not None"),
    Mistake("the rest of a wait", FETCH, "replace(max_wait_ms=rest_ms)", "replace(max_wait_ms=max_wait_ms)"),
    Mistake("a wait that is not ended", FETCH, "partition.waiters.pop(parked, None)", "pass"),
    # Fetch in a session
    Mistake("another session epoch", SESSIONS, "is None or session.epoch != session_epoch or", "is None or"),
    Mistake(
        "a session whose request waits", SESSIONS, "session.parked is not None or session.reader", "session.reader"
    ),
    Mistake("another reader", SESSIONS, "is not None or session.reader != reader:", "is not None:"),
    Mistake(
        "a session of several partitions", SESSION, "session is None or len(session.partitions) != 1", "session is None"
    ),
    Mistake(
        "another partition",
        SESSION,
        "if wanted.index != followed.index or wanted.topic != followed.topic:",
        "if False:",
    ),
    Mistake("the session's epoch", SESSION, "fetch_sessions.advance(session, clock.now_ms())", "pass"),
    Mistake("an offset that changes", SESSION, "            followed.named_again(wanted)\n", ""),
    Mistake("a partition that is named", SESSION, "            session.read_again(followed)\n", ""),
    Mistake("a reader that has everything", SESSION, "followed.rest(partition, None)", "pass"),
    Mistake("the limits in a session", SESSION, "min(followed.max_bytes, request.max_bytes)", "request.max_bytes"),
    Mistake(
        "the request's limit in a session", SESSION, "min(followed.max_bytes, request.max_bytes)", "followed.max_bytes"
    ),
    Mistake("no news", SESSION, "if not is_news:", "if False:"),
    Mistake("what is due next", SESSION, "session.update_due(followed, has_records=records is not None)", "pass"),
    Mistake("enough records", SESSION, "if size < min_bytes and max_wait_ms > 0:", "if not size and max_wait_ms > 0:"),
    Mistake("a reader that does not rest", SESSION, "if found is not None and not followed.rests:", "if False:"),
    Mistake(
        "the length of the session's wait", SESSION, "ParkedFetch(max_wait_ms / 1000)", "ParkedFetch(max_wait_ms / 400)"
    ),
    Mistake("the session's waiting request", SESSION, "session.parked = parked = ParkedFetch", "parked = ParkedFetch"),
    Mistake(
        "the end of the session's wait", SESSION, "                session.parked = None\n", "                pass\n"
    ),
    Mistake(
        "quotas that were set during the session's wait", SESSION, "if context.fetch_throttle_ms is None:", "if True:"
    ),
    Mistake(
        "too few records after the session's wait", SESSION, "found.records.size >= min_bytes", "found.records.size"
    ),
    Mistake(
        "the rest of the session's wait",
        SESSION,
        "max(deadline_ms - clock.monotonic_ms(), 0) if woken",
        "max_wait_ms if woken",
    ),
    Mistake("a truncation in a session", SESSION, " or wanted.last_fetched_epoch != NO_EPOCH", ""),
    # ConsumerGroupHeartbeat
    Mistake("other fields", HEARTBEAT, "request != bare", "request.member_epoch != bare.member_epoch"),
    Mistake("the protocol", HEARTBEAT, "check_protocol(metadata, CONSUMER)\n", "pass\n"),
    _without(
        "the authorizer of groups", HEARTBEAT, "not allows(context, Operation.READ, ResourceType.GROUP, group_id)"
    ),
    Mistake("a changed interval", HEARTBEAT, "replies.get(interval_ms)", "next(iter(replies.values()), None)"),
    Mistake(
        "new topics",
        HEARTBEATS,
        "group is None or group.topics_version != self.assigning.topics.version",
        "group is None",
    ),
    _without("another epoch of the member", HEARTBEATS, "current.epoch != member_epoch"),
    _without("a member that moves", HEARTBEATS, "not current.is_reconciled_to(group.assignment_epoch)"),
    _without("an assignment that is due", HEARTBEATS, "group.epoch > group.assignment_epoch"),
    _without("another client id", HEARTBEATS, "member.client_id != client_id"),
    _without("another host", HEARTBEATS, "member.client_host != client_host"),
    Mistake("regular expressions", HEARTBEATS, "or group.regex_subscribers\n            or group.regexes\n", ""),
    Mistake("the session", HEARTBEATS, "self.membership.restart_session(group, member_id, now)", "pass"),
    Mistake("an uncommitted state", GROUPS, "if not self.runtime.topic.is_committed(index):", "if False:"),
    # Around them
    Mistake("throttling", CONNECTION, "uses_fast_paths = self._throttling is None", "uses_fast_paths = True"),
    Mistake("a topic named like the marks", TEMPLATES, "rsplit(MARKED, 1)", "split(MARKED)"),
    Mistake("the audit log", AUTHORIZATION, "return not self.audit.has_all and topic in", "return topic in"),
    Mistake(
        "the audit log of groups", AUTHORIZATION, "return not self.audit.has_all and self.allows", "return self.allows"
    ),
)


@contextmanager
def made(mistake: Mistake) -> Iterator[None]:
    """Makes the mistake as long as this lasts."""
    module = importlib.import_module(mistake.module)
    assert module.__file__ is not None
    source = Path(module.__file__).read_text()
    if source.count(mistake.right) != 1:
        raise LookupError(
            f"{mistake.name}: {mistake.right!r} is {source.count(mistake.right)} times in {mistake.module}"
        )
    wrong = {
        code.co_qualname: code
        for code in _codes(compile(source.replace(mistake.right, mistake.wrong), module.__file__, "exec"))
    }
    changed: list[tuple[FunctionType, CodeType]] = []
    for function in _functions(module):
        code = wrong.get(function.__qualname__)
        if code is not None and code != function.__code__:
            changed.append((function, function.__code__))
            function.__code__ = code
    if not changed:
        raise LookupError(f"{mistake.name}: no function of {mistake.module} has changed")
    try:
        yield
    finally:
        for function, code in changed:
            function.__code__ = code


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType) and "<locals>" not in constant.co_qualname:
            yield from _codes(constant)


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    for found in vars(module).values():
        if getattr(found, "__module__", None) != module.__name__:
            continue
        if isinstance(found, FunctionType):
            yield found
        elif inspect.isclass(found):
            for attribute in vars(found).values():
                function = attribute.fget if isinstance(attribute, property) else attribute
                if isinstance(function, FunctionType):
                    yield function
