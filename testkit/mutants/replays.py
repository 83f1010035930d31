"""Mistakes of a restart that two tests must find: the power cuts, and the machine of exactly once."""

from __future__ import annotations

from testkit.mutants.changes import always, instead

REPLAY = "kwire.coordinators.internal_topic:InternalTopic.replay"
RESUME = "kwire.transactions.completion:Transactions.resume"

PENDING_OFFSETS_COUNT = instead(
    "kwire.groups.shard:GroupShard.apply",
    lambda apply: lambda shard, key, value, _producer_id, *, offset: apply(shard, key, value, offset=offset),
    seen_by="kwire.coordinators.loading:Load._replay_batch",
)
MARKERS_ABORT = instead("kwire_storage.producers.states:EndTxnMarker.committed", always(False), seen_by=REPLAY)
