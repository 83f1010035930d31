"""Random lives of streams groups, checked against a model."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages import streams_group_heartbeat as wire
from kwire_protocol.messages.streams_group_describe import TopologyDescription as DescribedTopology
from kwire_protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from kwire_protocol.messages.streams_group_topology_description_update import TopologyDescription
from kwire_protocol.wire import Reader, Writer

from kwire.coordinators.internal_topic import LoggedRecord
from kwire.groups.config import GroupConfig, StreamsGroupSettings, WarmupSettings
from kwire.groups.shard import GroupShard
from kwire.groups.streams.descriptions import MAX_DESCRIPTION_BYTES, PAUSES_MS
from kwire.groups.streams.group import StreamsGroup
from kwire.groups.streams.member import NOTHING, CurrentTasks, MemberState
from kwire.groups.streams.tasks import task_ids_of
from kwire.groups.streams.topology import StatusCode
from kwire.groups.topology_descriptions import DescriptionStore
from testkit.groups.shard_driver import GROUP, ShardDriver
from testkit.groups.streams.clients import (
    END,
    JOINING,
    NO_ENDPOINTS,
    REBALANCE_TIMEOUT_MS,
    STATEFUL,
    Client,
    Disk,
    Task,
    description,
    heartbeat,
    topology,
)
from testkit.groups.topics import FakeTopics

PROCESS_OF = {"a1": "a", "a2": "a", "b1": "b", "c1": "c"}


WITH_ENDPOINT = ("a1", "b1")


SILENT = "c1"
"""The member that does not report the offsets of its tasks."""


LAG = 10_000


SESSION_MS = 45_000


READ_BY = {"0": "t", "1": "r"}


names = st.sampled_from(list(PROCESS_OF))


def stored(group: StreamsGroup) -> dict[str, Any]:
    """The state of a group in the log, and what follows from it."""
    return {
        name: getattr(group, name)
        for name in (
            "epoch",
            "metadata_hash",
            "validated_topology_epoch",
            "assignment_configs",
            "stored_description_topology_epoch",
            "failed_description_topology_epoch",
            "assignment_epoch",
            "assignment_timestamp_ms",
            "topology",
            "members",
            "current",
            "targets",
            "active_holders",
            "replica_holders",
            "state",
        )
    }


def streams_groups(shard: GroupShard) -> dict[str, dict[str, Any]]:
    return {name: stored(group) for name, group in shard.groups.items() if isinstance(group, StreamsGroup)}


def described(sent: TopologyDescription) -> DescribedTopology:
    w = Writer()
    sent.write(w, 0)
    return DescribedTopology.read(Reader(w.getvalue()), 1)


def compacted(log: list[Any]) -> list[Any]:
    """The last record of each key, where it stood."""
    last = {record.key: number for number, record in enumerate(log) if isinstance(record, LoggedRecord)}
    return [record for number, record in enumerate(log) if last.get(record.key) == number]


def active_of(current: CurrentTasks) -> set[Task]:
    """Returns the tasks that a member runs, or may still run."""
    return {
        (name, partition)
        for held in (current.assigned, current.pending_revocation)
        for name, partitions in held.active.items()
        for partition in partitions
    }


def standby_of(current: CurrentTasks) -> set[Task]:
    return {it for held in (current.assigned, current.pending_revocation) for it in held.replicas()}


class StreamsLives(RuleBasedStateMachine):
    @initialize(
        interval_ms=st.sampled_from([0, 10_000]),
        delay_ms=st.sampled_from([0, 3_000]),
        standbys=st.sampled_from([0, 1]),
        warmups=st.sampled_from([0, 1, 2]),
        max_size=st.sampled_from([2, 100]),
        is_complete=st.booleans(),
        partitions=st.sampled_from([2, 4]),
        first=st.sets(names),
    )
    def start(
        self,
        interval_ms: int,
        delay_ms: int,
        standbys: int,
        warmups: int,
        max_size: int,
        is_complete: bool,
        partitions: int,
        first: set[str],
    ) -> None:
        """Starts a life. `first` are the members that have been there for long."""
        self.partitions = dict.fromkeys("trc" if is_complete else "t", partitions)
        """The largest number of partitions that each topic has had."""
        self.topics = FakeTopics(**self.partitions)
        self.driver = ShardDriver(GroupConfig(streams_max_size=max_size), self.topics)
        self.driver.streams_settings = StreamsGroupSettings(
            SESSION_MS, 5_000, interval_ms, standbys, delay_ms, WarmupSettings(warmups, LAG)
        )
        self.disks = {process: Disk() for process in PROCESS_OF.values()}
        self.driver.wall_ahead_ms = 1_700_000_000_000
        self.driver.descriptions = DescriptionStore()
        self.driver.restart()
        self.clients = {
            name: Client(
                self.driver,
                name,
                process,
                endpoint=wire.StreamsGroupHeartbeatRequestEndpoint(name, 80) if name in WITH_ENDPOINT else None,
                disk=self.disks[process],
                reports_progress=name != SILENT,
            )
            for name, process in PROCESS_OF.items()
        }
        self.epochs: tuple[int, int, dict[str, int]] = (0, 0, {})
        self.held: dict[str, dict[int, tuple[set[Task], set[Task]]]] = {}
        """Member -> epoch -> the active tasks that it had all the time in that epoch, and at its end."""
        self.ends_for: str | None = None
        """The member that has requested the shutdown."""
        self.endpoints_may_be_old = False
        self.have_moved = False
        """A member that comes to a process with its tasks may find some of them there, until all have settled."""
        self.described: DescribedTopology | None = None
        self.is_refused = False
        """A description was too large."""
        self.solicit_after_ms = 0
        """The time before which no member may be requested to describe the topology."""
        self._heartbeats_for_long([self.clients[name] for name in sorted(first)])

    @property
    def group(self) -> StreamsGroup | None:
        group = self.driver.shard.groups.get(GROUP)
        assert group is None or isinstance(group, StreamsGroup)
        return group

    def members(self) -> list[Client]:
        group = self.group
        if group is None:
            return []
        return [it for it in self.clients.values() if it.is_in and it.member_id in group.members]

    # What clients do

    @rule(name=names, is_lost=st.booleans(), ends=st.sampled_from([False] * 9 + [True]))
    def a_client_heartbeats(self, name: str, is_lost: bool, ends: bool) -> None:
        client, group = self.clients[name], self.group
        joins, epoch, reports = client.epoch == JOINING, client.epoch, client.reports
        size = 0 if group is None else len(group.members)
        had = None if group is None else group.current.get(client.member_id)
        known = group is not None and client.member_id in group.members
        ended_by = self._shutdown_requested_by()
        error = self._heartbeat(client, is_lost=is_lost, shutdown_application=ends)
        self._check_solicitation(client)
        if self.driver.append_error:
            assert not error or self._shutdown_requested_by() == ended_by
            self.ends_for = self._shutdown_requested_by()
            return
        if ends and self.group is not None and client.member_id in self.group.members and self.ends_for is None:
            self.ends_for = self.group.shutdown_requested_by
            assert self.ends_for in (client.member_id, None)
        if is_lost:
            return
        if not known and not joins:
            assert error in (
                ErrorCode.GROUP_ID_NOT_FOUND,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.GROUP_MAX_SIZE_REACHED,
            )
        elif not known and size >= self.driver.config.streams_max_size:
            assert error is ErrorCode.GROUP_MAX_SIZE_REACHED
        elif joins or (had is not None and epoch == had.epoch):
            assert error is ErrorCode.NONE
            self._check_answer(client)
            if not size and self.driver.streams_settings.initial_rebalance_delay_ms:
                assert not client.active, "the first member waits for others"
        elif had is not None and epoch == had.previous_epoch and reports:
            # Its last answer was lost. Whether all that it has is still its own depends on what it gave up meanwhile.
            assert error in (ErrorCode.NONE, ErrorCode.FENCED_MEMBER_EPOCH)
        else:
            assert error is ErrorCode.FENCED_MEMBER_EPOCH

    def _heartbeat(self, client: Client, **how: Any) -> ErrorCode:
        """Sends a heartbeat. A task with state leaves its member only for one that is nearly up to date, or never
        reports that it is."""
        before = self._active_tasks_of(client.member_id)
        error = client.heartbeat(**how)
        group = self.group
        if group is not None:
            self._note_held(group)
        if group is None or group.refined is None or not group.refined.settings.num_warmup_replicas or self.have_moved:
            return error
        for task in before - self._active_tasks_of(client.member_id):
            for name, target in group.targets.items():
                new, is_stateful = self.clients[name], task[0] == STATEFUL
                if is_stateful and task[1] in target.active.get(STATEFUL, ()) and new.process != client.process:
                    is_ready = new.disk.reported.get(task, 0) >= END - LAG
                    assert is_ready or new.process == self.clients[SILENT].process, "it has warmed up"
        return error

    def _active_tasks_of(self, member_id: str) -> set[Task]:
        group = self.group
        if group is None or member_id not in group.members:
            return set()
        return self._active_tasks_in(group.assignment_of(member_id))

    def _active_tasks_in(self, current: CurrentTasks) -> set[Task]:
        return {(name, it) for name, of in current.assigned.active.items() for it in of}

    def _shutdown_requested_by(self) -> str | None:
        return None if self.group is None else self.group.shutdown_requested_by

    def _check_solicitation(self, client: Client) -> None:
        """Checks that only one member at a time is solicited, and only for a wanted description."""
        if client.is_solicited:
            client.is_solicited = False
            assert self.described is None
            assert not self.is_refused
            assert self.driver.now_ms >= self.solicit_after_ms
            self.solicit_after_ms = self.driver.now_ms + PAUSES_MS.first

    @rule(name=names, source=st.sampled_from(["t", "t2"]), is_large=st.sampled_from([False] * 3 + [True]))
    def a_client_describes_its_topology(self, name: str, source: str, is_large: bool) -> None:
        """Sends a description, solicited or not."""
        group = self.group
        sent = description(source, MAX_DESCRIPTION_BYTES if is_large else 0)
        error = self.clients[name].describe(sent)
        if group is None:
            assert error is ErrorCode.GROUP_ID_NOT_FOUND
        elif name not in group.members:
            assert error is ErrorCode.UNKNOWN_MEMBER_ID
        elif is_large:
            if error is ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED:
                self.is_refused, self.solicit_after_ms = True, 0
            else:
                assert self.driver.append_error
        elif error is ErrorCode.NONE:
            self.described, self.solicit_after_ms = described(sent), 0
        else:
            assert self.driver.append_error

    def _forget_shutdown_if_empty(self) -> None:
        if self.group is None or not self.group.members:
            self.ends_for = None

    def _expected_status(self) -> StatusCode | None:
        counts = {name: topic.spec.partition_count for name in "trc" if (topic := self.topics.find(name)) is not None}
        if "t" not in counts:
            return StatusCode.MISSING_SOURCE_TOPICS
        if any(counts.get(name, counts["t"]) != counts["t"] for name in "rc"):
            return StatusCode.INCORRECTLY_PARTITIONED_TOPICS
        return StatusCode.MISSING_INTERNAL_TOPICS if len(counts) < 3 else None

    def _check_answer(self, client: Client) -> None:
        group = self.group
        assert group is not None
        expected = self._expected_status()
        of_topics = client.statuses.keys() & {
            StatusCode.MISSING_SOURCE_TOPICS,
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            StatusCode.MISSING_INTERNAL_TOPICS,
        }
        assert of_topics == ({expected} if expected is not None else set())
        assert (StatusCode.SHUTDOWN_APPLICATION in client.statuses) == (self.ends_for is not None)
        assert (StatusCode.ASSIGNMENT_DELAYED in client.statuses) == (group.epoch > group.assignment_epoch)
        assert (group.state.value == "NotReady") == (expected is not None)

    @rule(name=names, epoch=st.sampled_from([1, 2, 5, 1000]), member_id=st.sampled_from([None, "stranger"]))
    def a_stranger_heartbeats(self, name: str, epoch: int, member_id: str | None) -> None:
        """Sends a heartbeat in any epoch, perhaps with a member's id, that reports all tasks."""
        group = self.group
        before = None if group is None else stored(group)
        has = None if group is None else group.current.get(member_id or name)
        source = self.topics.find("t")
        partitions = [*range(4 if source is None else source.spec.partition_count)]
        tasks = [wire.StreamsGroupHeartbeatRequestTaskIds(it, partitions) for it in "01"]
        request = StreamsGroupHeartbeatRequest(
            GROUP, member_id or name, epoch, active_tasks=tasks, standby_tasks=tasks, warmup_tasks=tasks
        )
        response = heartbeat(self.driver, request).response
        self.clients[name].reports = True  # The member did not get the response that the stranger got.
        if has is None or epoch not in (has.epoch, has.previous_epoch):
            assert response.error_code != ErrorCode.NONE
            assert (self.group is None) if before is None else (group is not None and stored(group) == before)

    @rule(name=names)
    def a_client_comes_with_another_topology(self, name: str) -> None:
        group = self.group
        if group is None or group.topology is None:
            return
        before = stored(group)
        changed = topology()
        changed.subtopologies[0].source_topics = ["t", "t2"]
        request = self.clients[name].request(topology=changed)
        if request.member_epoch == JOINING:
            request.topology = changed
            response = heartbeat(self.driver, request).response
            if response.error_code != ErrorCode.GROUP_MAX_SIZE_REACHED:
                assert response.error_code == ErrorCode.INVALID_REQUEST
            assert stored(group) == before

    @rule(name=names, at_once=st.booleans())
    def a_client_is_slow_to_give_up(self, name: str, at_once: bool) -> None:
        self.clients[name].revokes = False
        if at_once:
            self.a_client_heartbeats(name, is_lost=False, ends=False)

    @rule(name=names)
    def a_client_gives_up(self, name: str) -> None:
        client, group = self.clients[name], self.group
        client.revokes = True
        if client in self.members():
            assert group is not None
            assigned = group.assignment_of(name).assigned
            client.give_up(
                {(sub, it) for sub, of in assigned.active.items() for it in of},
                {(sub, it) for sub, of in assigned.standby.items() for it in of},
                {(sub, it) for sub, of in assigned.warmup.items() for it in of},
            )

    @rule(name=names)
    def a_client_follows_changelogs(self, name: str) -> None:
        self.clients[name].follow_changelogs()

    @rule(name=names, ends=st.sampled_from([False] * 4 + [True]))
    def a_client_leaves(self, name: str, ends: bool) -> None:
        group = self.group
        known = group is not None and self.clients[name].member_id in group.members
        error = self.clients[name].leave(shutdown_application=ends)
        if group is not None and group.members:
            self.ends_for = group.shutdown_requested_by
        if not self.driver.append_error:
            assert (error is ErrorCode.NONE) == known
            assert self.group is None or name not in self.group.members
        self._forget_shutdown_if_empty()

    @rule(name=names, order=st.permutations(sorted(PROCESS_OF)))
    def a_client_leaves_and_the_others_heartbeat(self, name: str, order: list[str]) -> None:
        self.a_client_leaves(name, ends=False)
        for other in order:
            if other != name:
                self.a_client_heartbeats(other, is_lost=False, ends=False)

    @rule(name=names)
    def a_client_moves_to_another_process(self, name: str) -> None:
        client = self.clients[name]
        client.be_out()
        self.have_moved = True
        client.process = {"a": "b", "b": "c", "c": "a"}[client.process]
        client.disk = self.disks[client.process]

    @rule(name=names, back=st.integers(0, 3), partition=st.integers(0, 2))
    def a_client_commits(self, name: str, back: int, partition: int) -> None:
        """Commits in its epoch, a later one, or an earlier one: then only for tasks that it has had since."""
        group = self.group
        if group is None or name not in self.held or name not in group.members or self.driver.append_error:
            return
        current = group.assignment_of(name).epoch
        epochs = sorted(self.held[name])
        if back == 0:
            assert self._commit(name, current + 1, partition) is ErrorCode.STALE_MEMBER_EPOCH
        epoch = epochs[max(len(epochs) - 1 - back, 0)]
        task = ("0", partition)
        has_it = task in self.held[name][epoch][1] and all(
            task in always for of, (always, _) in self.held[name].items() if of > epoch
        )
        expected = ErrorCode.NONE if epoch == current or has_it else ErrorCode.STALE_MEMBER_EPOCH
        assert self._commit(name, epoch, partition) is expected

    def _commit(self, name: str, epoch: int, partition: int) -> ErrorCode:
        (error,) = self.driver.commit({("t", partition): 1}, member_id=name, generation=epoch)
        return error

    @precondition(lambda self: self.driver.append_error is ErrorCode.NONE)
    @rule()
    def everybody_is_heard_from_for_a_minute(self) -> None:
        members = [it for it in self.members() if it.revokes]
        for _ in range(3):
            for client in members:
                self._heartbeat(client)
                self._check_solicitation(client)
            self.driver.advance(20_000)
        assert set(members) <= set(self.members()), "a member that sends heartbeats stays"

    @rule()
    def the_group_is_deleted(self) -> None:
        group = self.group
        (error,) = self.driver.delete_groups(GROUP)
        if self.driver.append_error is ErrorCode.NONE:
            if group is None:
                assert error in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NONE)
            elif group.members:
                assert error is ErrorCode.NON_EMPTY_GROUP
                assert self.group is group
            else:
                assert error is ErrorCode.NONE
                assert self.group is None

    # What happens around them

    @rule(topic=st.sampled_from("trc"), partitions=st.integers(1, 4))
    def a_topic_comes_or_grows(self, topic: str, partitions: int) -> None:
        """A new one is not smaller than one of that name before."""
        partitions = self.partitions[topic] = max(partitions, self.partitions.get(topic, 0))
        known = self.topics.find(topic)
        if known is None or known.spec.partition_count < partitions:
            self.topics.create(topic, partitions)

    @rule()
    def the_broker_creates_what_is_missing(self) -> None:
        group = self.group
        if group is not None and group.configured is not None:
            for topic in group.configured.to_create:
                if self.topics.find(topic.name) is None:
                    self.topics.create(topic.name, topic.partitions)

    @rule(topic=st.sampled_from("trc"))
    def a_topic_goes(self, topic: str) -> None:
        if self.topics.find(topic) is not None:
            self.topics.delete(topic)

    @rule(standbys=st.sampled_from([0, 1]))
    def the_number_of_standbys_changes(self, standbys: int) -> None:
        self.driver.streams_settings = attrs.evolve(self.driver.streams_settings, num_standby_replicas=standbys)

    @rule(warmups=st.sampled_from([0, 1, 2]))
    def the_number_of_warmups_changes(self, warmups: int) -> None:
        settings = WarmupSettings(warmups, LAG)
        self.driver.streams_settings = attrs.evolve(self.driver.streams_settings, warmups=settings)

    @rule(by_ms=st.sampled_from([1, 999, 3_000, 10_000, SESSION_MS]))
    def time_passes(self, by_ms: int) -> None:
        self.driver.advance(by_ms)

    @rule(error=st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]))
    def appends_fail_or_succeed_again(self, error: ErrorCode) -> None:
        self.driver.append_error = error

    @rule()
    def the_coordinator_changes(self) -> None:
        self.driver.restart()
        for client in self.clients.values():
            client.meet_another_coordinator()
        self.ends_for, self.endpoints_may_be_old = None, True
        self.described, self.solicit_after_ms = None, 0

    @rule()
    def the_log_is_compacted(self) -> None:
        self.driver.log = compacted(self.driver.log)

    # What holds at the end

    @precondition(lambda self: self.driver.append_error is ErrorCode.NONE)
    @rule()
    def everybody_settles(self) -> None:
        """Settles all clients, with enough time for every interval and for every task to be given up."""
        for client in self.clients.values():
            client.revokes = True
        clients = [client for client in self.clients.values() if self._may_join(client)]
        self._heartbeats_for_long(clients)
        if self.endpoints_may_be_old:
            # As in Apache Kafka, another coordinator counts from the start again, and may come to the same number.
            for client in clients:
                client.endpoints_epoch = NO_ENDPOINTS
            self.endpoints_may_be_old = False
        for _ in range(2):
            for client in clients:
                self._heartbeat(client)
                self._check_solicitation(client)
        self._forget_shutdown_if_empty()
        group, members = self.group, self.members()
        if group is None or group.members.keys() != {client.member_id for client in members}:
            return  # the sessions of those who are gone have to end first
        if members:
            self._check_settled(group, members)
            self.have_moved = False

    def _forget_the_group(self) -> None:
        self.epochs, self.held, self.ends_for = (0, 0, {}), {}, None
        self.described, self.is_refused, self.solicit_after_ms = None, False, 0

    def _heartbeats_for_long(self, clients: list[Client]) -> None:
        """Sends heartbeats until no task has to be revoked, and none waits for a warm-up."""
        for round_number in range(60):
            for client in clients:
                self._heartbeat(client)
                self._check_solicitation(client)
                self.a_client_gives_up(client.member_id)
                client.follow_changelogs()
            self.driver.advance(11_000)
            group = self.group
            if group is None:  # It was empty for long enough.
                self._forget_the_group()
            if round_number >= 7 and (
                group is None or group.is_empty or group.refined is None or not group.refined.parts
            ):
                break

    def _may_join(self, client: Client) -> bool:
        group = self.group
        return client.is_in or group is None or len(group.members) < self.driver.config.streams_max_size

    def _check_settled(self, group: StreamsGroup, members: list[Client]) -> None:
        expected = self._expected_status()
        assert group.state.value == ("Stable" if expected is None else "NotReady")
        source = self.topics.find("t")
        tasks = [] if expected is not None or source is None else range(source.spec.partition_count)
        for client in members:
            assert client.epoch == group.epoch == group.assignment_epoch, "everybody is up to date"
            assert client.active == active_of(group.assignment_of(client.member_id))
            assert client.standby == standby_of(group.assignment_of(client.member_id))
            assert client.warmup == set(), "every task has arrived"
        active = Counter(task for client in members for task in client.active)
        assert active == dict.fromkeys(((name, it) for name in "01" for it in tasks), 1), "every task is active once"
        loads = [len(client.active) for client in members]
        assert max(loads) - min(loads) <= 1
        processes = {group.members[client.member_id].process_id for client in members}
        standbys = min(self.driver.streams_settings.num_standby_replicas, len(processes) - 1)
        standby = Counter(task for client in members for task in client.standby)
        assert standby == (dict.fromkeys((("1", it) for it in tasks), standbys) if standbys else {})
        self._check_endpoints(group, members)
        assert self.described or self.is_refused or self.solicit_after_ms, "the topology was requested from a member"

    def _check_endpoints(self, group: StreamsGroup, members: list[Client]) -> None:
        for other in members:
            if other.endpoint is None:
                continue
            active = {READ_BY[name]: sorted(it for of, it in other.active if of == name) for name, _ in other.active}
            standby = {READ_BY[name]: sorted(it for of, it in other.standby if of == name) for name, _ in other.standby}
            for client in members:
                assert client.endpoints_epoch == group.endpoints_epoch
                reported = client.endpoints[other.endpoint.host, other.endpoint.port]
                assert {it.topic: it.partitions for it in reported.active_partitions} == active
                assert {it.topic: it.partitions for it in reported.standby_partitions} == standby

    def teardown(self) -> None:
        if hasattr(self, "driver"):
            self.driver.append_error = ErrorCode.NONE
            self.everybody_settles()

    # What always holds

    @invariant()
    def a_task_is_active_once_and_in_one_role_in_a_process(self) -> None:
        group = self.group if hasattr(self, "driver") else None
        if group is None:
            return
        active = Counter(task for current in group.current.values() for task in active_of(current))
        assert all(count == 1 for count in active.values()), "a task is active once"
        assert group.active_holders.keys() == active.keys()
        for client in self.members():
            current = group.assignment_of(client.member_id)
            assert client.active <= active_of(current), "nobody runs what it was not given"
            # Its role may have changed, and the answer with the new role was lost.
            assert client.standby | client.warmup <= active_of(current) | standby_of(current)
        if not self.have_moved:
            assigned_in = [
                (group.members[member_id].process_id, task)
                for member_id, current in group.current.items()
                for task in active_of(current) | standby_of(current)
            ]
            assert len(assigned_in) == len(set(assigned_in)), "a process has a task in one member"
            for current in group.current.values():
                roles = [*self._active_tasks_in(current), *current.assigned.replicas()]
                assert len(roles) == len(set(roles)), "and in one role"

    @invariant()
    def what_was_revoked_is_not_assigned(self) -> None:
        group = self.group if hasattr(self, "driver") else None
        if group is None:
            return
        for member_id, current in group.current.items():
            assert not active_of(attrs.evolve(current, assigned=NOTHING)) & self._active_tasks_in(current)
            assert current.pending_revocation.is_empty or current.state is MemberState.UNREVOKED_TASKS
            if (
                group.assignment_of(member_id).is_reconciled_to(group.assignment_epoch)
                and member_id in group.targets
                and group.refined is not None
                and not group.has_news
            ):
                part = group.part_of(member_id)
                assert {name: frozenset(of) for name, of in current.assigned.active.items()} == part.active
                assert (current.assigned.standby, current.assigned.warmup) == (part.standby, part.warmup)

    @invariant()
    def few_tasks_warm_up_at_a_time(self) -> None:
        group = self.group if hasattr(self, "driver") else None
        if group is not None and group.refined is not None:
            warmups = [it for part in group.refined.parts.values() for it in task_ids_of(part.warmup)]
            assert len(warmups) <= group.refined.settings.num_warmup_replicas

    @invariant()
    def epochs_never_go_back(self) -> None:
        group = self.group if hasattr(self, "driver") else None
        if group is None:
            if hasattr(self, "driver"):
                self._forget_the_group()
            return
        self._forget_shutdown_if_empty()
        members = {member_id: has.epoch for member_id, has in group.current.items()}
        epoch, assignment_epoch, before = self.epochs
        assert group.epoch >= epoch
        assert group.assignment_epoch >= assignment_epoch
        assert group.epoch >= group.assignment_epoch
        for member_id, member_epoch in members.items():
            assert member_epoch >= before.get(member_id, 0)
            assert member_epoch <= group.assignment_epoch
        assert group.current.keys() <= group.members.keys()
        assert group.targets.keys() <= group.members.keys()
        self.epochs = (group.epoch, group.assignment_epoch, members)
        self._note_held(group)

    def _note_held(self, group: StreamsGroup) -> None:
        """Notes the tasks of all members in their epochs. A rule with several heartbeats gives tasks in between."""
        self.held = {member_id: held for member_id, held in self.held.items() if member_id in group.current}
        for member_id, current in group.current.items():
            held = self.held.setdefault(member_id, {})
            active = active_of(current)
            held[current.epoch] = held.get(current.epoch, (active, active))[0] & active, active

    @invariant()
    def every_member_can_fall_silent(self) -> None:
        group = self.group if hasattr(self, "driver") else None
        if group is not None:
            assert group.timers.keys() == group.members.keys()
            assert all(timers.session.deadline_ms is not None for timers in group.timers.values())
            for member_id, current in group.current.items():
                timer = group.timers[member_id].rebalance
                assert (timer.deadline_ms is not None) == bool(current.state.name == "UNREVOKED_TASKS")
                if timer.deadline_ms is not None:
                    assert timer.deadline_ms <= self.driver.now_ms + REBALANCE_TIMEOUT_MS

    @invariant()
    def what_was_described_is_there(self) -> None:
        if not hasattr(self, "driver"):
            return
        assert self.driver.descriptions is not None
        assert len(self.driver.descriptions) == (self.described is not None)
        if self.group is not None:
            found = self.driver.shard.describe_streams(GROUP, with_description=True)
            assert found.topology_description == self.described

    @invariant()
    def a_replay_is_the_same_group(self) -> None:
        if not hasattr(self, "driver"):
            return
        live = streams_groups(self.driver.shard)
        assert streams_groups(self.driver.replayed()) == live
        assert streams_groups(self.driver.replayed(compacted(self.driver.log))) == live
