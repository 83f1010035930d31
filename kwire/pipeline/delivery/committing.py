"""Commits each batch exactly once: the ledger records the decision, and the parts are committed after it.

After a crash, the next run completes a decided batch. Tasks write their parts in transactions, which they leave open.
When all are written, the driver

    1. takes the writer's entry in the ledger
    2. reads the last decision
    3. writes the decision: this batch, these transactions
    4. commits each of them
    5. aborts all other open transactions of this writer

and then its caller notes that the batch is done. After a crash before that note the batch runs again under the same
number, with new tasks and new transactions. What a crash leaves, and what the next run does:

| crash after | left behind | the next run of the batch |
|---|---|---|
| a part was written | undecided open transactions | writes again; 5 aborts them, as would their time-out |
| 1, 2 | the same; and the entry in the ledger, which any run may take | the same |
| the decision's record, without its end | an open transaction in the ledger | 1 aborts it: nothing was decided |
| 3 | a decision; all of its transactions open | reads it in 2, commits them, and aborts its own |
| some of 4 | a decision; some of its transactions open | the same; the committed ones return the same result again |
| 4, 5 | a decision; nothing open | the same: it finds all committed, and aborts its own |
| the caller's note | nothing | there is none: the next batch has another number |

If two runs are active at once, because one was believed dead, step 1 lets only one of them decide at a time. The other
fails there, or finds the decision in step 2 and completes it.

A decided transaction may be lost before it is committed: if the writer is down for longer than the transaction's
time-out, or if an abandoned task of the same run and partition resumes between 3 and 4. Then the next run finds some of
the decided parts committed and others lost. If its own parts of the same tasks have the same records, by count and
checksum, they replace the lost ones, in a new decision. If not, the batch cannot be completed as it was decided:
BatchTorn names the missing parts. To make this unlikely, a batch whose transactions have used half of their time is not
decided: PartsTooOld.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from urllib.parse import quote

import attrs

from kwire.client.cluster import Cluster
from kwire.client.errors import ClientError
from kwire.pipeline.delivery.ledger import DEFAULT_TOPIC, Decision, Ledger
from kwire.pipeline.delivery.parts import Part, abort_orphans, end_all
from kwire.runtime.callbacks import ignore


class BatchTorn(ClientError):
    """A decided batch is committed in part. The rest is lost and cannot be written again."""


class PartsTooOld(ClientError):
    """The transactions might time out before they are committed."""


class PartsLost(ClientError):
    """Decided transactions were lost before they were committed. Running the batch again repairs it."""


class Committed(Enum):
    NOW = auto()
    """The batch was committed by this call."""
    BEFORE = auto()
    """The batch was committed by an earlier run, or by this call after its decision. This run's parts were aborted."""


@attrs.frozen(kw_only=True)
class Committer:
    """Commits the batches of one writer.

    writer: a unique name that the writer keeps across restarts.
    timeout_ms: the time-out of the parts' transactions.
    now_ms: the time since the epoch.
    step: called with the name of each next step; tests stop there.
    """

    cluster: Cluster
    writer: str
    timeout_ms: int
    now_ms: Callable[[], int]
    ledger_topic: str = DEFAULT_TOPIC
    step: Callable[[str], None] = ignore

    @property
    def prefix(self) -> str:
        """The prefix of the transactional ids of all its parts."""
        return f"kwire-part/{quote(self.writer, safe='')}/"  # unique: no other writer's prefix begins with it

    def commit(self, batch: int, parts: Sequence[Part]) -> Committed:
        """Commits a batch. Batch numbers ascend. Raises BatchTorn, PartsTooOld, PartsLost and other ClientErrors."""
        ledger = self._ledger()
        self.step("read")
        last = ledger.last()
        if last is not None and last.batch >= batch:
            decided = last.parts if last.batch == batch else ()
            lost = self._end(decided)
            if not lost:
                end_all(self.cluster, parts, committed=False)
                self._sweep()
                return Committed.BEFORE
            parts = self._mended(batch, decided, lost, parts)
        self._check_age(parts)
        self.step("decide")
        ledger.decide(Decision(batch, tuple(parts)))
        if lost := self._end(parts):
            raise PartsLost(
                f"batch {batch} was decided, and {_tasks_text(lost)} of it cannot be committed any more. Run again, "
                "the batch is completed"
            )
        self._sweep()
        return Committed.NOW

    def abort(self, parts: Sequence[Part]) -> None:
        """Aborts undecided parts. Decided ones stay open for the batch's next run. Raises ClientError."""
        last = self._ledger().last()
        decided = {it.transaction for it in last.parts} if last is not None else set()
        end_all(self.cluster, [it for it in parts if it.transaction not in decided], committed=False)

    def _ledger(self) -> Ledger:
        self.step("take")
        return Ledger(self.cluster, self.writer, self.now_ms, self.ledger_topic)

    def _end(self, parts: Sequence[Part]) -> list[Part]:
        lost = []
        for number, part in enumerate(parts):
            self.step(f"commit {number}")
            lost += end_all(self.cluster, [part], committed=True)
        self.step("sweep")
        return lost

    def _mended(self, batch: int, decided: Sequence[Part], lost: Sequence[Part], ours: Sequence[Part]) -> list[Part]:
        """Returns the new decision in place of one that has lost some of its parts. Raises BatchTorn."""
        with_records = [it for it in decided if it.transaction is not None]
        if len(lost) == len(with_records):
            return list(ours)  # no reader sees any of it, so the new parts may have other records
        by_task = {it.task: it for it in ours}
        torn = [it for it in lost if it.task not in by_task or not it.is_alike(by_task[it.task])]
        if torn:
            end_all(self.cluster, ours, committed=False)
            raise BatchTorn(
                f"batch {batch} of {self.writer} is committed in part: {_tasks_text(torn)} took longer than "
                f"{self.timeout_ms} ms to be committed and are lost, and they have other records now that the batch is "
                "run again. What is missing has to be written by hand"
            )
        replaced = {it.task for it in lost}
        end_all(self.cluster, [it for it in ours if it.task not in replaced], committed=False)
        return [by_task[it.task] if it.task in replaced else it for it in decided]

    def _check_age(self, parts: Sequence[Part]) -> None:
        begun_ms = min((it.begun_ms for it in parts if it.transaction is not None), default=None)
        if begun_ms is None:
            return
        age_ms = self.now_ms() - begun_ms
        if age_ms > self.timeout_ms // 2:
            end_all(self.cluster, parts, committed=False)
            raise PartsTooOld(
                f"the batch took {age_ms} ms to be written, more than half of its transactions' timeout, "
                f"{self.timeout_ms} ms: nothing of it is committed. Make it smaller, or the timeout longer"
            )

    def _sweep(self) -> None:
        abort_orphans(self.cluster, self.prefix)


def _tasks_text(parts: Sequence[Part]) -> str:
    return f"the parts of tasks {', '.join(str(it.task) for it in parts[:10])}"
