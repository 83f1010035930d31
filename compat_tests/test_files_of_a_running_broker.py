"""Kafka's own DumpLogSegments looks into the log dir of a broker that runs."""

from __future__ import annotations

import re
from pathlib import Path

from testkit.basics.waiting import eventually
from testkit.clients.confluent import producing
from testkit.java.dumps import dump
from testkit.java.java_host import JavaHost
from testkit.raw import topics
from testkit.servers.brokers import RestartableBroker


def _files(folder: Path, ending: str) -> list[Path]:
    found = sorted(folder.glob(f"*{ending}"))
    assert found, f"no *{ending} in {folder}"
    return found


def test_indexes_of_a_running_broker_are_read(restartable_broker: RestartableBroker, java: JavaHost) -> None:
    """The indexes of the active segment, which is appended to."""
    bootstrap = restartable_broker.bootstrap
    folder = restartable_broker.data_dir / "appended-to-0"
    topics.create(bootstrap, "appended-to")
    with producing(bootstrap) as producer:
        for number in range(40):
            producer.produce("appended-to", b"%04d" % number * 2_000)
            producer.flush(20)
    [index], [time_index] = _files(folder, "0.index"), _files(folder, ".timeindex")
    for file, option in ((index, "--index-sanity-check"), (index, "--verify-index-only")):
        dump(java, [file], option)
    dump(java, [time_index], "--verify-index-only")
    positions = re.findall(r"^offset: (\d+) position: \d+$", dump(java, [index]), re.MULTILINE)
    times = re.findall(r"^timestamp: \d+ offset: (\d+)$", dump(java, [time_index]), re.MULTILINE)
    assert len(positions) >= 30
    assert times  # fewer: several batches may be of the same millisecond
    assert set(map(int, positions + times)) <= set(range(40))


def test_the_abort_of_a_transaction_is_in_its_index_while_the_broker_runs(
    restartable_broker: RestartableBroker, java: JavaHost
) -> None:
    bootstrap = restartable_broker.bootstrap
    topics.create(bootstrap, "aborted-in")
    with producing(bootstrap, **{"transactional.id": "aborted-in"}) as producer:
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce("aborted-in", b"in a transaction")
        producer.flush(20)
        producer.abort_transaction(20)
    folder = restartable_broker.data_dir / "aborted-in-0"
    # The coordinator writes the marker after its answer.
    eventually(lambda: any(file.stat().st_size for file in folder.glob("*.txnindex")), "the abort is in the index")
    output = dump(java, _files(folder, ".txnindex"))
    assert re.search(r"producerId: \d+ firstOffset: 0 lastOffset: 1 lastStableOffset: 2", output)
