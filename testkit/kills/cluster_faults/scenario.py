"""Faults under load, and the judgement in the end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Final

import attrs

from kwire.client.cluster import TopicPartition
from kwire.client.errors import ClientError
from testkit.java.dumps import assert_kafka_is_content
from testkit.java.java_host import JavaHost
from testkit.kills import harness
from testkit.kills.cluster_faults.forms import form_of
from testkit.kills.cluster_faults.kinds import ALL, ROLLING, Fault, Suffer, faults
from testkit.kills.cluster_faults.load import GROUP, TOPICS, Load, by_spot, read_all
from testkit.kills.cluster_faults.nodes import ClusterOfProcesses
from testkit.kills.complaints import Complaints
from testkit.kills.harness import Lap, Scenario
from testkit.kills.judging import check_logs

PROGRESS_WITHIN_S: Final = 120.0
"""The maximum time for a client to continue after a fault, on a busy machine."""


@attrs.define
class Account(harness.Account):
    what = "faults"
    columns = ("fault", "times", "longest wait of a write")
    records: int = 0
    transactions: int = 0
    unknown: int = 0
    """The number of transactions whose outcome a client did not get."""
    errors: int = 0
    """The number of errors of transactional clients, which must be 0 in a rolling restart."""
    files: int = 0
    """Judged by DumpLogSegments."""
    ended_by_themselves: int = 0
    longest_wait_s: dict[str, float] = attrs.field(factory=dict)
    """The longest wait of a write, by kind of fault."""

    @property
    def progress(self) -> str:
        return f"{self.records:,} records and {self.transactions:,} transactions acknowledged"

    def row(self, way: str) -> tuple[str, ...]:
        return *super().row(way), f"{self.longest_wait_s[way]:.1f} s"

    @property
    def outcome(self) -> str:
        longest = max(self.longest_wait_s.items(), key=lambda it: it[1], default=("nothing", 0.0))
        ended = f"; {self.ended_by_themselves} nodes ended with their sessions" if self.ended_by_themselves else ""
        rolling = self.longest_wait_s.get(ROLLING)
        waited = "" if rolling is None else f"; in rolling restarts a write waited for {rolling:.1f} s at most"
        return (
            f"{self.records:,} records acknowledged and "
            f"{self.transactions:,} transactions committed by confluent-kafka and Java: none lost, none twice, "
            f"none out of order; "
            f"{self.errors} errors reached transactional clients, who could not tell of {self.unknown} transactions"
            f"{ended}{waited}; the longest wait was {longest[1]:.1f} s ({longest[0]}); replicas are the same bytes; "
            f"{self.files:,} files read by DumpLogSegments"
        )


@attrs.define(eq=False)
class Faults(Scenario[Account]):
    """A pause or cut lasts up to `longest_s`, and a producer waits for `pause_s` between writes.

    `mistake` is one of the simulation's, for all nodes to make, and then something should be wrong. A lap has a cluster
    of its own in `folder`, whose nodes' folders stay; it is short, as DumpLogSegments prints each record, into memory.
    """

    form: str
    folder: Path
    java: JavaHost
    kinds: Mapping[str, Suffer] = attrs.field(factory=dict)
    """All of the form's by default."""
    longest_s: float = 5.0
    pause_s: float = 0.05
    mistake: str | None = None
    account: Account = attrs.field(factory=Account)
    kills_in_lap = 20
    _fault: Fault | None = None
    """The one that is suffered; None before the first and after the last."""
    _here: Path | None = None

    def __attrs_post_init__(self) -> None:
        self.kinds = self.kinds or ALL[self.form]

    def run_lap(self, lap: Lap) -> None:
        account, before, self._fault = self.account, attrs.evolve(self.account), None
        here = self._here = self.folder / str(lap.number)
        here.mkdir()
        try:
            with ClusterOfProcesses(here, form_of(self.form, here), mistake=self.mistake) as cluster:
                with Load(cluster.bootstrap_servers, pause_s=self.pause_s) as load:
                    self._until_clients_progress(cluster, load)
                    plan = faults(lap.chance, self.kinds, longest_s=self.longest_s)
                    for self._fault in lap.kills(plan, way=attrgetter("kind")):
                        self._suffer(cluster, load, self._fault)
                        self._count(load, before)
                    self._fault = None
                    self._judge_records(cluster, load, lap.complaints)
                self._count(load, before)
                replicas = cluster.replicas()
                cluster.stop_all()
                self._judge_disks(cluster, replicas, lap.complaints)
                account.ended_by_themselves += len(cluster.ended_by_themselves)
        except ClientError as problem:
            raise AssertionError(repr(problem)) from problem

    def state(self) -> str:
        suffered = "" if self._fault is None else f"{self._fault}\n"
        return f"{suffered}The folders of the nodes ({self.form}) are in {self._here}"

    def _suffer(self, cluster: ClusterOfProcesses, load: Load, fault: Fault) -> None:
        """Returns when the cluster is whole, and each client has gone on."""
        errors = load.errors()
        load.take_longest_wait_s()
        self.kinds[fault.kind](cluster, fault)
        cluster.wait_until_whole()
        self._until_clients_progress(cluster, load)
        load.check_commits()
        if fault.kind == ROLLING and (new := load.errors()[len(errors) :]):
            raise AssertionError(f"errors reached clients in a rolling restart: {new}")
        longest_s = self.account.longest_wait_s
        longest_s[fault.kind] = max(longest_s.get(fault.kind, 0.0), load.take_longest_wait_s())

    def _until_clients_progress(self, cluster: ClusterOfProcesses, load: Load) -> None:
        before = load.counts()

        def all_progressed() -> bool:
            return all(count > before[client] for client, count in load.counts().items())

        began_s = time.monotonic()
        try:
            cluster.until(all_progressed, "all clients make progress", within_s=PROGRESS_WITHIN_S)
        except AssertionError as problem:
            stuck = [client for client, count in load.counts().items() if count <= before[client]]
            waited_s = time.monotonic() - began_s
            raise AssertionError(f"{problem}: not {stuck} for {waited_s:.0f} s; errors: {load.errors()[-5:]}") from None

    def _count(self, load: Load, before: Account) -> None:
        account, decided = self.account, load.decided.values()
        account.records = before.records + sum(it.count for it in load.acknowledged.values())
        account.transactions = before.transactions + sum(it.count for it in decided)
        account.unknown = before.unknown + sum(len(it.unknown) for it in decided)
        account.errors = before.errors + sum(len(it.errors) for it in decided)

    def _judge_records(self, cluster: ClusterOfProcesses, load: Load, complaints: Complaints) -> None:
        load.finish_writing()
        cluster.wait_until_whole()
        found = read_all(cluster.bootstrap_servers)
        cluster.until(lambda: not load.group.is_behind(by_spot(found)), "the group has read everything")
        load.check_commits()
        for topic in TOPICS:
            complaints.add_all(f"{topic}: {it}" for it in load.ledgers[topic].complaints(found[topic]))
        complaints.add_all(f"{GROUP}: {it}" for it in load.group.complaints(by_spot(found)))
        complaints.check()

    def _judge_disks(
        self, cluster: ClusterOfProcesses, replicas: Mapping[TopicPartition, list[int]], complaints: Complaints
    ) -> None:
        complaints.add_all(cluster.differences(replicas))
        for data_dir in cluster.data_dirs():
            assert check_logs([data_dir], complaints.add) > 0
        complaints.add_all(cluster.bugs())
        complaints.check()
        # Coordinators' topics are compacted.
        with_gaps = {at.topic for at in replicas if at.topic.startswith("__")}
        for data_dir in cluster.data_dirs():
            self.account.files += assert_kafka_is_content(self.java, data_dir, with_gaps=with_gaps)
