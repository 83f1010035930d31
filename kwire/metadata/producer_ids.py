"""The producer ids that this broker assigns: allocated in blocks, the next block before it is needed.

Kafka's `RPCProducerIdManager` and KIP-730. A block is recorded (ProducerIdsRecord) before its first id is used, and the
rest of a block is lost when the broker ends. The next block is requested when half of the current one is used, so that
a machine that needs an id does not wait. If there is none, it gets COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

from kwire.metadata.controller.producer_id_blocks import allocate_producer_ids
from kwire.metadata.service import MetadataService
from kwire.runtime.futures import Future, drive

NO_IDS = range(0)


@attrs.define(eq=False)
class ProducerIds:
    """The ids of one broker."""

    metadata: MetadataService
    _block: range = NO_IDS
    """The rest of the current block."""
    _next_block: range = NO_IDS
    _fetch_at: int = 0
    """The number of remaining ids at which the next block is fetched."""
    _is_fetching: bool = False
    _waiting: list[Future[KafkaError | None]] = attrs.field(factory=list)

    def take(self) -> int:
        """Returns an id that was never used before and will not be returned again.

        Raises KafkaError(COORDINATOR_LOAD_IN_PROGRESS) if a block must be allocated first; see `ready`.
        """
        if not self._block:
            self._begin_next_block()
        if not self._block:
            self._fetch_ahead()
        if not self._block:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the next block of producer ids is on its way")
        producer_id, self._block = self._block[0], self._block[1:]
        if len(self._block) <= self._fetch_at:
            self._fetch_ahead()
        return producer_id

    async def ready(self) -> None:
        """Returns when there are ids; another caller may take them first. Raises KafkaError."""
        if self._block or self._next_block:
            return
        future: Future[KafkaError | None] = Future()
        self._waiting.append(future)
        self._fetch_ahead()
        error = await future
        if error is not None:
            raise error

    async def draw(self) -> int:
        """Does the same as `take`, but waits for a block if necessary. Raises KafkaError."""
        while not (self._block or self._next_block):
            await self.ready()
        return self.take()

    def _begin_next_block(self) -> None:
        self._block, self._next_block = self._next_block, NO_IDS
        self._fetch_at = len(self._block) // 2

    def _fetch_ahead(self) -> None:
        if not self._next_block and not self._is_fetching:
            self._is_fetching = True
            drive(self._fetch())

    async def _fetch(self) -> None:
        failed: KafkaError | None = None
        try:
            self._next_block = await self.metadata.change(allocate_producer_ids)
            if not self._block:
                self._begin_next_block()
        except KafkaError as error:
            failed = error
        self._is_fetching = False
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            future.set(failed)
