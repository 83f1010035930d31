"""Faults under load, and the judgement in the end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import attrs

from kwire.client.cluster import TopicPartition
from kwire.client.errors import ClientError
from testkit.java.dumps import assert_kafka_is_content
from testkit.java.java_host import JavaHost
from testkit.kills.cluster_faults.forms import Form, form_of
from testkit.kills.cluster_faults.kinds import ALL, ROLLING, Fault, Suffer, faults
from testkit.kills.cluster_faults.load import GROUP, TOPICS, Load, by_spot, read_all
from testkit.kills.cluster_faults.nodes import ClusterOfProcesses
from testkit.kills.judging import check_logs

GOES_ON_WITHIN_S: Final = 120.0
"""What a client may take after a fault, on a busy machine."""
FAULTS_IN_LAP: Final = 20
"""Then all is judged, and a new cluster begins: DumpLogSegments prints each record, into memory."""


@attrs.define
class Account:
    """What a run has come to."""

    form: str
    kills: Counter[str] = attrs.field(factory=Counter)
    """How often each kind of fault happened."""
    records: int = 0
    transactions: int = 0
    unknown: int = 0
    """Transactions of which a client could not tell what became of them."""
    errors: int = 0
    """That reached transactional clients, none of them in a rolling restart."""
    files: int = 0
    """Judged by DumpLogSegments."""
    ended_by_themselves: int = 0
    longest_wait_s: dict[str, float] = attrs.field(factory=dict)
    """Of a write while a kind of fault happened."""

    @property
    def progress(self) -> str:
        return f"{self.records:,} records and {self.transactions:,} transactions acknowledged"

    def __str__(self) -> str:
        longest = max(self.longest_wait_s.items(), key=lambda it: it[1], default=("nothing", 0.0))
        ended = f"; {self.ended_by_themselves} nodes ended with their sessions" if self.ended_by_themselves else ""
        rolling = self.longest_wait_s.get(ROLLING)
        waited = "" if rolling is None else f"; in rolling restarts a write waited for {rolling:.1f} s at most"
        return (
            f"{self.kills.total()} faults ({self.form}); {self.records:,} records acknowledged and "
            f"{self.transactions:,} transactions committed by confluent-kafka and Java: none lost, none twice, "
            f"none out of order; "
            f"{self.errors} errors reached transactional clients, who could not tell of {self.unknown} transactions"
            f"{ended}{waited}; the longest wait was {longest[1]:.1f} s ({longest[0]}); replicas are the same bytes; "
            f"{self.files:,} files read by DumpLogSegments"
        )


def run(
    form: str,
    *,
    folder: Path,
    java: JavaHost,
    count: int,
    seed: int,
    kinds: Mapping[str, Suffer] | None = None,
    longest_s: float = 5.0,
    pause_s: float = 0.05,
    mistake: str | None = None,
    on_fault: Callable[[Account], None] = lambda account: None,
) -> Account:
    """So many faults in all: a pause or cut lasts up to `longest_s`, and a producer waits for `pause_s` between writes.

    AssertionError tells what is wrong, and the seed; the nodes' folders stay. `mistake` is one of the simulation's, for
    all nodes to make, and then something should be wrong.
    """
    account, kinds = Account(form), kinds or ALL[form]
    for lap, first in enumerate(range(0, count, FAULTS_IN_LAP)):
        here = folder / str(lap)
        here.mkdir()
        plan = list(faults(seed + lap, min(FAULTS_IN_LAP, count - first), kinds, longest_s=longest_s))
        it = Lap(form_of(form, here), here, java, plan, kinds, account, on_fault, pause_s, mistake)
        try:
            it.run()
        except (AssertionError, ClientError) as problem:
            raise AssertionError(
                f"{form}, seed {seed}, lap {lap}, fault {account.kills.total() + 1} ({it.fault}): {problem}\n"
                f"The folders of the nodes are in {here}"
            ) from problem
    return account


@attrs.define(eq=False)
class Lap:
    form: Form
    folder: Path
    java: JavaHost
    plan: list[Fault]
    kinds: Mapping[str, Suffer]
    account: Account
    on_fault: Callable[[Account], None]
    pause_s: float
    mistake: str | None
    fault: Fault | None = None
    """The one that is suffered; None before the first and after the last."""

    def run(self) -> None:
        account, before = self.account, attrs.evolve(self.account)
        with ClusterOfProcesses(self.folder, self.form, mistake=self.mistake) as cluster:
            with Load(cluster.bootstrap_servers, pause_s=self.pause_s) as load:
                self._until_clients_go_on(cluster, load)
                for fault in self.plan:
                    self.fault = fault
                    self._suffer(cluster, load, fault)
                    account.kills[fault.kind] += 1
                    self._count(load, before)
                    self.on_fault(account)
                self.fault = None
                load.finish_writing()
                cluster.wait_until_whole()
                found = read_all(cluster.bootstrap_servers)
                cluster.until(lambda: not load.group.is_behind(by_spot(found)), "the group has read everything")
                load.check_commits()
                complaints = [
                    f"{topic}: {it}" for topic in TOPICS for it in load.ledgers[topic].complaints(found[topic])
                ]
                complaints += [f"{GROUP}: {it}" for it in load.group.complaints(by_spot(found))]
                assert not complaints, "\n".join(["", *complaints])
            self._count(load, before)
            replicas = cluster.replicas()
            cluster.stop_all()
            self._judge_disks(cluster, replicas)
            account.ended_by_themselves += len(cluster.ended_by_themselves)

    def _suffer(self, cluster: ClusterOfProcesses, load: Load, fault: Fault) -> None:
        """Returns when the cluster is whole, and each client has gone on."""
        errors = load.errors()
        load.take_longest_wait_s()
        self.kinds[fault.kind](cluster, fault)
        cluster.wait_until_whole()
        self._until_clients_go_on(cluster, load)
        load.check_commits()
        if fault.kind == ROLLING and (new := load.errors()[len(errors) :]):
            raise AssertionError(f"errors reached clients in a rolling restart: {new}")
        longest_s = self.account.longest_wait_s
        longest_s[fault.kind] = max(longest_s.get(fault.kind, 0.0), load.take_longest_wait_s())

    def _until_clients_go_on(self, cluster: ClusterOfProcesses, load: Load) -> None:
        before = load.counts()

        def go_on() -> bool:
            return all(count > before[client] for client, count in load.counts().items())

        began_s = time.monotonic()
        try:
            cluster.until(go_on, "all clients go on", within_s=GOES_ON_WITHIN_S)
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

    def _judge_disks(self, cluster: ClusterOfProcesses, replicas: Mapping[TopicPartition, list[int]]) -> None:
        complaints = cluster.differences(replicas)
        for data_dir in cluster.data_dirs():
            assert check_logs([data_dir], complaints.append) > 0
        complaints += cluster.bugs()
        assert not complaints, "\n".join(["", *complaints])
        # Coordinators' topics are compacted.
        with_gaps = {at.topic for at in replicas if at.topic.startswith("__")}
        for data_dir in cluster.data_dirs():
            self.account.files += assert_kafka_is_content(self.java, data_dir, with_gaps=with_gaps)
