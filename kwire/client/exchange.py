"""The common part of both kinds of connection: a conversation with a broker, and errors for its failures. No I/O.

`connection.py` drives it for a thread that blocks, `async_connection.py` for tasks of trio.
"""

from __future__ import annotations

from typing import Final

from kwire_protocol.conversation import DEFAULT_MAX_REPLY_BYTES, Conversation, NotServed, Reply, Ticket
from kwire_protocol.wire import ApiMessage, Buffer, ProtocolError

import kwire
from kwire.client.errors import ClientError, ConnectionFailed, NotABroker, TlsFailed, VersionNotServed
from kwire.client.transport import Address
from kwire.security.tls.settings import TlsError

DEFAULT_TIMEOUT_S: Final = 30.0
DEFAULT_CLIENT_ID: Final = "kwire"
MAX_REPLY_BYTES: Final = DEFAULT_MAX_REPLY_BYTES
_JOINED_BYTES: Final = 64 * 1024  # up to here a copy costs less than another system call


class Exchange:
    """The conversation with the broker at `address`. After `end` nothing more is sent or read."""

    def __init__(self, address: Address, *, client_id: str, max_reply_bytes: int) -> None:
        self.name = f"{address[0]}:{address[1]}"
        self.conversation = Conversation(
            client_id=client_id, software_version=kwire.__version__, max_reply_bytes=max_reply_bytes
        )
        self._failure: ClientError | None = None

    @property
    def is_over(self) -> bool:
        return self._failure is not None

    def end(self, failure: ClientError) -> bool:
        """Ends the conversation; `check` raises `failure` from now on. Returns False if it had already ended."""
        if self._failure is not None:
            return False
        self._failure = failure
        return True

    def check(self) -> None:
        """Raises the error that has ended the conversation."""
        if self._failure is not None:
            # A new exception each time: an exception that was raised already has a traceback.
            raise type(self._failure)(self._failure.message)

    def version_for(self, api_key: int, *, at_least: int = 0, at_most: int | None = None) -> int:
        """Returns an API's newest version that both sides support, within these bounds. Raises VersionNotServed."""
        try:
            return self.conversation.version_for(api_key, at_least=at_least, at_most=at_most)
        except NotServed as error:
            raise VersionNotServed(
                f"the broker at {self.name} does not serve {error}: it is too old, or too new, for this"
            ) from None

    def send(self, request: ApiMessage, version: int) -> Ticket:
        """Queues a request for `to_send`. Raises the errors of `check` and `Conversation.send`."""
        self.check()
        return self.conversation.send(request, version)

    def to_send(self) -> list[Buffer]:
        """Returns the bytes to send now, in few pieces."""
        pieces = self.conversation.data_to_send()
        if len(pieces) > 1 and sum(map(len, pieces)) <= _JOINED_BYTES:
            return [b"".join(pieces)]
        return pieces

    def received(self, count: int) -> None:
        """Notes the number of received bytes. Raises ConnectionResetError for 0: the broker closed the connection."""
        if not count:
            raise hung_up()
        self.conversation.received(count)

    def next_reply(self) -> Reply | None:
        """The next reply, or None until more is received. Raises NotABroker; the caller then calls `end` with it."""
        try:
            return self.conversation.next_reply()
        except ProtocolError as error:
            raise NotABroker(f"what answers at {self.name} is no Kafka broker in plain text: {error}") from None

    def unreached(self, error: OSError | ProtocolError | TlsError) -> ConnectionFailed:
        """Returns the error to raise for one of a `Connect`."""
        match error:
            case OSError():
                return ConnectionFailed(f"cannot reach {self.name}: {reason_of(error)}")
            case ProtocolError():
                return TlsFailed(f"no TLS with {self.name}: {error}")
            case _:
                return TlsFailed(str(error))

    def unanswered(self, api: str, error: OSError) -> ConnectionFailed:
        return ConnectionFailed(f"the broker at {self.name} did not answer {api}: {reason_of(error)}")

    def closed(self) -> ConnectionFailed:
        return ConnectionFailed(f"the connection to {self.name} is closed")


def hung_up() -> ConnectionResetError:
    """Returns the error for a broker that has closed its side of the connection."""
    return ConnectionResetError(0, "it closed the connection")


def reason_of(error: OSError) -> str:
    return "it timed out" if isinstance(error, TimeoutError) else error.strerror or str(error)
