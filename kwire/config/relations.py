"""The relations between configurations, which Apache Kafka checks when it starts, and at every change.

    violations(texts)                of a broker
    group_violations(own, broker)    of a group, whose own settings override the broker's
    topic_violations(values)         of a topic

All are pure. They return all violations, so that the caller may refuse the values (at the start, and at a change), or
leave them out (`kwire.config.resolution`: no record of the metadata log may stop a broker).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import attrs

from kwire.config.definition import Value, invalid, shown
from kwire.config.tables.broker import HONOURED_CONFIGS, broker_config
from kwire.config.tables.resource import GROUP_CONFIGS
from kwire.config.tables.topic import HOURS_TO_MS, MINUTES_TO_MS
from kwire.config.validators import counts_of_hosts

Values = Callable[[str], Value]
"""Returns the value in force of a known name."""


@attrs.frozen
class Violation:
    """Settings that contradict each other; the message has all of their names."""

    names: tuple[str, ...]
    message: str


@attrs.frozen
class Relation:
    """A relation between settings. `why` returns the error message if it does not hold, else None.

    `only_if_set` is one of the names, whose default does not count. `stops_no_start`: a broker still starts, like
    Apache Kafka; only a change of one of the settings is refused.
    """

    names: tuple[str, ...]
    why: Callable[[Values], str | None]
    only_if_set: str | None = None
    stops_no_start: bool = False

    def concerns(self, texts: Mapping[str, str]) -> bool:
        names = self.names if self.only_if_set is None else (self.only_if_set,)
        return any(name in texts for name in names)

    def violation(self, values: Values) -> Violation | None:
        message = self.why(values)
        return None if message is None else Violation(self.names, message)


_COMPARE: Final[Mapping[str, tuple[Callable[[int, int], bool], str]]] = {
    "<": (operator.lt, "less than"),
    "<=": (operator.le, "less than or equal to"),
    ">": (operator.gt, "greater than"),
    ">=": (operator.ge, "greater than or equal to"),
}


def _compared(name: str, sign: str, other: str, consequence: str = "") -> Relation:
    holds, words = _COMPARE[sign]

    def why(values: Values) -> str | None:
        value, bound = values(name), values(other)
        assert isinstance(value, int)
        assert isinstance(bound, int)
        return None if holds(value, bound) else _words(name, words, other, bound, value) + consequence

    return Relation((name, other), why)


def _words(name: str, words: str, other: str, bound: Value, value: Value) -> str:
    return f"{name} must be {words} {other}, which is {bound}; it is {value}"


_WITHOUT_KAFKAS_DEFAULT: Final = "group.consumer.assignment.interval.ms"
"""Kafka's default is 1000, and kwire's is 0: settings that Kafka accepts must not be refused because only a higher
minimum is set. In that case the minimum is in force (`ConfigResolver.of_group`)."""


def _bounded(name: str, lowest: str | None, highest: str | None) -> Iterator[Relation]:
    if lowest is not None and highest is not None:
        yield _compared(highest, ">=", lowest)
    if lowest is not None:
        least = _compared(name, ">=", lowest)
        yield attrs.evolve(least, only_if_set=name) if name == _WITHOUT_KAFKAS_DEFAULT else least
    if highest is not None:
        yield _compared(name, "<=", highest)


def _of_groups() -> Iterator[Relation]:
    for kind in ("consumer", "share", "streams"):
        for what in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
            yield from _bounded(f"group.{kind}.{what}", f"group.{kind}.min.{what}", f"group.{kind}.max.{what}")
        yield _compared(f"group.{kind}.heartbeat.interval.ms", "<", f"group.{kind}.session.timeout.ms")
    for what in ("delivery.count.limit", "partition.max.record.locks", "record.lock.duration.ms"):
        yield from _bounded(f"group.share.{what}", f"group.share.min.{what}", f"group.share.max.{what}")
    yield _compared("group.share.max.share.sessions", ">=", "group.share.max.size")
    for what in ("standby.replicas", "warmup.replicas"):
        yield from _bounded(f"group.streams.num.{what}", None, f"group.streams.max.{what}")
    yield from _bounded("group.streams.task.offset.interval.ms", "group.streams.min.task.offset.interval.ms", None)
    yield _compared(
        "group.min.session.timeout.ms", "<=", "group.max.session.timeout.ms", ": no member could join a classic group"
    )


def _waiting_fetches() -> Iterator[Relation]:
    yield _compared(
        "replica.socket.timeout.ms", ">=", "replica.fetch.wait.max.ms", ": waiting fetches would time out all the time"
    )
    yield _compared(
        "replica.fetch.wait.max.ms",
        "<=",
        "replica.lag.time.max.ms",
        ": followers would leave the ISR while they wait for records",
    )


def _queued_bytes(values: Values) -> str | None:
    queued, largest = values("queued.max.request.bytes"), values("socket.request.max.bytes")
    assert isinstance(queued, int)
    assert isinstance(largest, int)
    if 0 < queued < largest:
        words = "larger or equal to"
        return _words("queued.max.request.bytes", words, "socket.request.max.bytes", largest, queued)
    return None


def _cleaner_memory(values: Values) -> str | None:
    size, threads = values("log.cleaner.dedupe.buffer.size"), values("log.cleaner.threads")
    assert isinstance(size, int)
    assert isinstance(threads, int)
    if size // threads <= 1 << 20:
        return (
            f"log.cleaner.dedupe.buffer.size is {size}, and log.cleaner.threads is {threads}: "
            "it must be more than 1 MiB for each of them"
        )
    return None


def _connections_of_hosts(values: Values) -> str | None:
    overrides = values("max.connections.per.ip.overrides")
    assert isinstance(overrides, str)
    if values("max.connections.per.ip") == 0 and not counts_of_hosts(overrides):
        return (
            "max.connections.per.ip can be zero only if max.connections.per.ip.overrides is set, "
            "or else nobody could connect"
        )
    return None


def _failed_logins(values: Values) -> str | None:
    delay_ms, idle_ms = values("connection.failed.authentication.delay.ms"), values("connections.max.idle.ms")
    assert isinstance(delay_ms, int)
    assert isinstance(idle_ms, int)
    if 0 <= idle_ms <= delay_ms:
        words = "less than"
        name, other = "connection.failed.authentication.delay.ms", "connections.max.idle.ms"
        return _words(name, words, other, idle_ms, delay_ms) + ": failures would never be answered"
    return None


def _cordoned_folders(values: Values) -> str | None:
    cordoned = values("cordoned.log.dirs")
    folders = values("log.dirs") or values("log.dir")
    assert isinstance(cordoned, tuple)
    assert isinstance(folders, tuple)
    if "*" in cordoned:
        if len(cordoned) > 1:
            return "cordoned.log.dirs is * for all folders of log.dirs, or lists some of them: it cannot do both"
        return None
    missing = [folder for folder in cordoned if folder not in folders]
    if missing:
        return f"cordoned.log.dirs has what is not in log.dirs or log.dir: {', '.join(map(shown, missing))}"
    return None


def _classic_groups(values: Values) -> str | None:
    protocols = values("group.coordinator.rebalance.protocols")
    assert isinstance(protocols, tuple)
    if "classic" not in protocols:
        return "group.coordinator.rebalance.protocols must have classic: such groups are always served"
    return None


def _early_listeners(values: Values) -> str | None:
    early, listeners = values("early.start.listeners"), values("listeners")
    controllers = values("controller.listener.names")
    assert isinstance(listeners, tuple)
    assert isinstance(controllers, tuple)
    names = {*controllers, *(it.partition(":")[0] for it in listeners)}
    missing = [name for name in early if name not in names] if isinstance(early, tuple) else []
    if missing:
        missed = ", ".join(map(shown, missing))
        return f"early.start.listeners has what is not in listeners or controller.listener.names: {missed}"
    return None


def _retention_ms(values: Values) -> int:
    for name, factor in (("log.retention.ms", 1), ("log.retention.minutes", MINUTES_TO_MS)):
        value = values(name)
        if isinstance(value, int):
            return value * factor
    hours = values("log.retention.hours")
    assert isinstance(hours, int)
    return hours * HOURS_TO_MS


def _retention_bytes(values: Values) -> int:
    value = values("log.retention.bytes")
    assert isinstance(value, int)
    return value


def _local_retention(name: str, other: str, whole_of: Callable[[Values], int]) -> Callable[[Values], str | None]:
    def why(values: Values) -> str | None:
        local, whole = values(name), whole_of(values)
        assert isinstance(local, int)
        if whole >= 0 and local != -2:
            if local == -1:
                return str(invalid(name, local, f"Value must not be -1 as {other} is {whole}"))
            if local > whole:
                return str(invalid(name, local, f"Value must not be more than {other}, which is {whole}"))
        return None

    return why


def _only_known_reporters(values: Values) -> str | None:
    definition = broker_config("metric.reporters")
    reporters = values("metric.reporters")
    assert definition is not None
    assert isinstance(definition.default, tuple)
    assert isinstance(reporters, tuple)
    others = [reporter for reporter in reporters if reporter not in definition.default]
    if others:
        why = "kwire loads no classes of Java, and serves its metrics at kwire.metrics.listen"
        return str(invalid("metric.reporters", others[0], why))
    return None


_RETENTION: Final = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")

BROKER_RELATIONS: Final = (
    *_of_groups(),
    *_waiting_fetches(),
    Relation(("queued.max.request.bytes", "socket.request.max.bytes"), _queued_bytes, "queued.max.request.bytes"),
    Relation(("log.cleaner.dedupe.buffer.size", "log.cleaner.threads"), _cleaner_memory),
    Relation(("max.connections.per.ip", "max.connections.per.ip.overrides"), _connections_of_hosts),
    Relation(("connection.failed.authentication.delay.ms", "connections.max.idle.ms"), _failed_logins),
    Relation(("group.coordinator.rebalance.protocols",), _classic_groups),
    Relation(
        ("early.start.listeners", "listeners", "controller.listener.names"), _early_listeners, "early.start.listeners"
    ),
    Relation(("cordoned.log.dirs", "log.dirs", "log.dir"), _cordoned_folders, "cordoned.log.dirs"),
    Relation(
        ("log.local.retention.ms", *_RETENTION),
        _local_retention("log.local.retention.ms", "log.retention.ms", _retention_ms),
        stops_no_start=True,
    ),
    Relation(
        ("log.local.retention.bytes", "log.retention.bytes"),
        _local_retention("log.local.retention.bytes", "log.retention.bytes", _retention_bytes),
        stops_no_start=True,
    ),
    Relation(("metric.reporters",), _only_known_reporters, stops_no_start=True),
)


def violations(texts: Mapping[str, str], *, at_a_change: bool = False) -> list[Violation]:
    """Returns the violations of a broker's configuration. `texts` are its texts by name; each is valid on its own.

    Defaults have no violations, so relations without a configured name are skipped, and their tables are not loaded.
    """

    def value(name: str) -> Value:
        definition = broker_config(name)
        assert definition is not None, name
        text = texts.get(name)
        return definition.default if text is None else definition.parse(text)

    found = []
    for relation in BROKER_RELATIONS:
        if (at_a_change or not relation.stops_no_start) and relation.concerns(texts):
            violation = relation.violation(value)
            if violation is not None:
                found.append(violation)
    return found


def _bounds_of(name: str) -> tuple[str | None, str | None]:
    # consumer.session.timeout.ms: group.consumer.min.session.timeout.ms and group.consumer.max.session.timeout.ms
    # streams.num.standby.replicas: group.streams.max.standby.replicas
    kind, _, rest = name.partition(".")
    found = []
    for bound in ("min", "max"):
        names = (f"group.{kind}.{bound}.{rest}", f"group.{kind}.{bound}.{rest.removeprefix('num.')}")
        found.append(next((it for it in names if it in HONOURED_CONFIGS), None))
    return found[0], found[1]


GROUP_BOUNDS: Final = {name: _bounds_of(name) for name in GROUP_CONFIGS}
"""The broker configurations with the minimum and the maximum of each group configuration; None: there is no bound."""


def group_violations(own: Mapping[str, Value], broker: Values) -> list[Violation]:
    """Returns the violations of a group's configuration. `own` are the values that the group sets itself."""
    found = []
    for name, value in own.items():
        for other, (holds, words) in zip(GROUP_BOUNDS[name], (_COMPARE[">="], _COMPARE["<="]), strict=True):
            bound = None if other is None else broker(other)
            if other is not None and isinstance(bound, int) and isinstance(value, int) and not holds(value, bound):
                found.append(Violation((name,), _words(name, words, other, bound, value)))
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = names = (f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms")
        if session in own or heartbeat in own:
            timeout_ms, interval_ms = (own[it] if it in own else broker(f"group.{it}") for it in names)
            assert isinstance(timeout_ms, int)
            assert isinstance(interval_ms, int)
            if timeout_ms <= interval_ms:
                found.append(Violation(names, _words(session, "greater than", heartbeat, interval_ms, timeout_ms)))
    return found


def topic_violations(values: Mapping[str, Value]) -> list[Violation]:
    """Returns the violations of a topic's configuration. `values` has the values of all names."""
    found = []
    names = "min.compaction.lag.ms", "max.compaction.lag.ms"
    lowest, highest = (values[name] for name in names)
    assert isinstance(lowest, int)
    assert isinstance(highest, int)
    if lowest > highest:
        conflict = f"{names[0]} ({lowest}) > {names[1]} ({highest})"
        found.append(Violation(names, f"conflict topic config setting {conflict}"))
    if values["remote.storage.enable"]:
        why = "Tiered Storage functionality is disabled, kwire does not have it yet"
        found.append(Violation(("remote.storage.enable",), f"remote.storage.enable must be false: {why}"))
    return found
