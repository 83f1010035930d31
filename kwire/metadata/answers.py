"""A cache of encoded responses about the cluster: the same request gets the same bytes until the image changes.

An idle Spark query sends the same Metadata, DescribeCluster and DescribeTopicPartitions about a hundred times a second.
The key has everything that the response depends on besides the image: the API's version, the address that the client
dialled (the response contains it), and the request itself.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Protocol

import attrs
from kwire_protocol.wire import Writer

from kwire.metadata.image import MetadataImage

MAX_CACHED_BYTES: Final = 16 << 20
"""The size above which the cache is emptied: its responses may never be requested again."""

ENTRY_OVERHEAD_BYTES: Final = 512
"""The size assumed for a key and its entry in the cache, so that many small requests are bounded too."""


class Response(Protocol):
    def write(self, w: Writer, version: int) -> None: ...


@attrs.frozen
class EncodedResponse:
    """A response that is already encoded, in the requested version."""

    body: bytes

    def write(self, w: Writer, version: int) -> None:  # noqa: ARG002 - the shape of every response
        w.buf += self.body


@attrs.define(eq=False)
class AnswerCache:
    image: MetadataImage
    _answers: dict[Hashable, EncodedResponse] = attrs.field(factory=dict)
    _epoch: int = -1
    _bytes: int = 0

    def get(self, key: Hashable) -> EncodedResponse | None:
        if self._epoch != self.image.epoch:
            self._forget()
            return None
        return self._answers.get(key)

    def put(self, key: Hashable, response: Response, version: int) -> EncodedResponse:
        """Encodes and stores the response. Call `get` first, without a change of the image in between."""
        writer = Writer()
        response.write(writer, version)
        encoded = EncodedResponse(writer.getvalue())
        self._bytes += len(encoded.body) + ENTRY_OVERHEAD_BYTES
        if self._epoch != self.image.epoch or self._bytes > MAX_CACHED_BYTES:
            self._forget()
            self._bytes = len(encoded.body) + ENTRY_OVERHEAD_BYTES
        self._answers[key] = encoded
        return encoded

    def _forget(self) -> None:
        self._answers.clear()
        self._epoch = self.image.epoch
        self._bytes = 0
