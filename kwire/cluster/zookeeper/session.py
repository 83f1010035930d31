"""A session with ZooKeeper: the `Keeper` on top of the library kazoo, which no other module uses.

kazoo has threads of its own: one for the connection, which it makes again whenever it is lost, and two for callbacks.
Their calls here set a flag, wake up the threads that wait for it, and call `on_news`, which must not block.

kazoo begins a new session when the old one has ended. This node must not continue as if nothing had happened, so the
first end of a session is the end of this object: all operations raise SessionEndedError from then on.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable, Iterator
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Self

from kwire.client.transport import connect_plain_text
from kwire.cluster.zookeeper.keeper import (
    AccessRefusedError,
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    Found,
    NodeExistsError,
    NoNodeError,
    Operation,
    RefusedError,
    SessionEndedError,
    SetData,
    Stat,
    TimedOutError,
    ZooKeeperError,
)
from kwire.config.zookeeper import ZooKeeperConfig
from kwire.runtime.callbacks import ignore

if TYPE_CHECKING:
    from kazoo.client import KazooClient


class _LastWarning(logging.Filter):
    """Stores the last warning of kazoo, and passes only errors on: it warns once in each attempt to connect."""

    text = ""

    def filter(self, record: logging.LogRecord) -> bool:
        self.text = record.getMessage()
        for what in ("Connection dropped: ", "Connection time-out: ", "socket connection error: "):
            self.text = self.text.removeprefix(what)
        return record.levelno >= logging.ERROR


_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
# With debug messages kazoo would log every request, and the password is in one of them.
_kazoo_log.setLevel(logging.WARNING)
_last_warning = _LastWarning()
_kazoo_log.addFilter(_last_warning)

FIRST_DELAY_S: Final = 0.1
MOST_DELAY_S: Final = 1.0
"""The longest time between two attempts to connect; kazoo may wait for an hour."""
_LEAST_HANDSHAKES: Final = 3
"""The minimum number of handshakes that fit into the time of a session, even with few servers. kazoo gives each
server in its list an equal part of that time to respond. A single one that accepts a connection and does not respond,
as one that starts may do, would take all of it, and the session would end."""
_METADATA: Final = "/kwire/"


class Session:
    """Create it with `open`, and `close` it: then its ephemeral nodes end at once.

    `on_news` is called in a thread of kazoo when something that was read with `watch` has changed, and when the
    connection is lost, made again, or the session has ended. It must not block.
    """

    def __init__(self, client: KazooClient, config: ZooKeeperConfig, monotonic_ms: Callable[[], int]) -> None:
        from kazoo.security import make_acl, make_digest_acl

        self.on_news: Callable[[], object] = ignore
        self.connection_changes = 0
        """The number of times that the connection was made or lost."""
        self.config = config
        self.timeout_ms = config.session_timeout_ms
        self._client = client
        self._root = config.chroot
        self._monotonic_ms = monotonic_ms
        self._changed = threading.Condition()
        self._ended: str | None = None
        self._acl: list[Any] | None = None
        self._public_acl: list[Any] | None = None
        if config.set_acl:
            assert config.digest is not None, "the configuration sees to that"
            user, _, password = config.digest.partition(":")
            # As in Kafka: all clients may read the live brokers, and only nodes of the cluster the metadata.
            self._acl = [make_digest_acl(user, password, all=True)]
            self._public_acl = [*self._acl, make_acl("world", "anyone", read=True)]

    @classmethod
    def open(cls, config: ZooKeeperConfig, monotonic_ms: Callable[[], int]) -> Self:
        """Connects, and creates the chroot. Blocks. Raises ZooKeeperError."""
        client = _client(config)
        session = cls(client, config, monotonic_ms)
        client.add_listener(session._connection_changed)
        _last_warning.text = ""
        try:
            if not client.start_async().wait(config.connection_timeout_ms / 1000):
                raise TimedOutError(
                    f"cannot reach ZooKeeper at {','.join(config.servers)} within {config.connection_timeout_ms} ms: "
                    f"timed out ({_last_warning.text or 'no answer'})"
                )
            session._create_root()
        except BaseException:
            session.close()
            raise
        return session

    @property
    def session_id(self) -> int:
        client_id = self._client.client_id
        if client_id is None:
            raise ConnectionLostError
        session_id: int = client_id[0]
        return session_id

    @property
    def is_connected(self) -> bool:
        return self._ended is None and bool(self._client.connected)

    @property
    def ended(self) -> str | None:
        """The reason why the session has ended; None while it may continue."""
        return self._ended

    def close(self) -> None:
        """Ends the session, at once if there is a connection. Blocks."""
        self._end("it was closed")
        self._client.stop()
        self._client.close()

    # -- the Keeper

    def attempts(self) -> Iterator[None]:
        deadline_ms = self._monotonic_ms() + self.timeout_ms
        while True:
            with self._changed:
                while not self.is_connected:
                    self._check_not_ended()
                    left_ms = deadline_ms - self._monotonic_ms()
                    if left_ms <= 0:
                        raise self._timed_out()
                    self._changed.wait(left_ms / 1000)
            if self._monotonic_ms() > deadline_ms:
                raise self._timed_out()
            yield

    def get(self, path: str, *, watch: bool = False) -> Found:
        data, stat = self._answer(self._client.get_async(self._root + path, watch=self._watcher(watch)), path)
        return Found(data, Stat(stat.version, stat.ephemeralOwner, stat.czxid))

    def exists(self, path: str, *, watch: bool = False) -> Stat | None:
        stat = self._answer(self._client.exists_async(self._root + path, watch=self._watcher(watch)), path)
        return None if stat is None else Stat(stat.version, stat.ephemeralOwner, stat.czxid)

    def children(self, path: str, *, watch: bool = False) -> list[str]:
        names = self._answer(self._client.get_children_async(self._root + path, watch=self._watcher(watch)), path)
        return list(names)

    def commit(self, *operations: Operation) -> None:
        self._check_not_ended()
        request = self._client.transaction()
        for it in operations:
            match it:
                case Create():
                    request.create(self._root + it.path, it.data, acl=self._acl_of(it.path), ephemeral=it.is_ephemeral)
                case Check():
                    request.check(self._root + it.path, it.version)
                case SetData():
                    request.set_data(self._root + it.path, it.data, it.version)
                case Delete():
                    request.delete(self._root + it.path)
        results = self._answer(request.commit_async(), operations[0].path)
        for it, result in zip(operations, results, strict=True):
            if isinstance(result, Exception) and not _is_of_another(result):
                raise _translated(result, it.path)

    def wait_for_end(self, path: str) -> bool:
        # A server checks sessions once in a tick, so one may last a little longer than its timeout.
        deadline_ms = self._monotonic_ms() + self.timeout_ms * 5 // 4
        while True:
            changed = threading.Event()
            try:
                stat = self._answer(
                    self._client.exists_async(self._root + path, watch=lambda _, event=changed: event.set()), path
                )
            except ConnectionLostError:
                next(self.attempts())
                continue
            left_ms = deadline_ms - self._monotonic_ms()
            if stat is None or left_ms <= 0:
                return stat is None
            changed.wait(left_ms / 1000)

    # -- in kazoo's threads

    def _connection_changed(self, state: str) -> None:
        from kazoo.protocol.states import KazooState, KeeperState

        if state == KazooState.LOST:
            refused = self._client.client_state == KeeperState.AUTH_FAILED
            self._end("ZooKeeper refuses its credentials" if refused else "it has timed out")
        with self._changed:
            self.connection_changes += 1
            self._changed.notify_all()
        self.on_news()

    def _node_changed(self, _event: object) -> None:
        self.on_news()

    # --

    def _watcher(self, watch: bool) -> Callable[[object], None] | None:
        self._check_not_ended()
        return self._node_changed if watch else None

    def _end(self, why: str) -> None:
        with self._changed:
            self._ended = self._ended or why
            self._changed.notify_all()

    def _check_not_ended(self) -> None:
        if self._ended is not None:
            raise SessionEndedError(f"this node's session with ZooKeeper is over: {self._ended}")

    def _timed_out(self) -> TimedOutError:
        return TimedOutError(f"ZooKeeper has not answered for {self.timeout_ms} ms: timed out")

    def _answer(self, pending: Any, path: str) -> Any:
        from kazoo.exceptions import KazooException

        try:
            return pending.get(timeout=self.timeout_ms / 1000)
        except (KazooException, self._client.handler.timeout_exception) as error:
            self._check_not_ended()
            raise _translated(error, path) from error

    def _acl_of(self, path: str) -> list[Any] | None:
        return self._acl if f"{path}/".startswith(_METADATA) else self._public_acl

    def _create_root(self) -> None:
        """The chroot and the folders above it."""
        root, self._root = self._root, ""
        try:
            names = root.split("/")[1:]
            for end in range(1, len(names) + 1):
                path = "/" + "/".join(names[:end])
                for _ in self.attempts():
                    try:
                        if self.exists(path) is None:
                            self.commit(Create(path))
                        break
                    except NodeExistsError:
                        break
                    except ConnectionLostError:
                        continue
        finally:
            self._root = root


def _client(config: ZooKeeperConfig) -> KazooClient:
    """Returns a client that is not started yet. Raises ZooKeeperError."""
    try:
        from kazoo.client import KazooClient
        from kazoo.handlers.threading import SequentialThreadingHandler
        from kazoo.retry import KazooRetry
    except ImportError as error:
        raise ZooKeeperError("kazoo not found: zookeeper.connect needs pip install 'kwire[zookeeper]'") from error
    handler = SequentialThreadingHandler()
    if config.ssl_client_enable:
        _tls_context(config)  # kazoo would retry unreadable files again and again.
        handler.create_connection = partial(_connect_with_tls, config)
    return KazooClient(
        hosts=",".join(config.servers * ceil(_LEAST_HANDSHAKES / len(config.servers))),
        timeout=config.session_timeout_ms / 1000,
        handler=handler,
        auth_data=[("digest", config.digest)] if config.digest is not None else None,
        connection_retry=KazooRetry(
            max_tries=-1, delay=FIRST_DELAY_S, max_delay=MOST_DELAY_S, sleep_func=handler.sleep_func
        ),
        logger=_kazoo_log,
        use_ssl=config.ssl_client_enable,
    )


def _connect_with_tls(
    config: ZooKeeperConfig, address: tuple[str, int], hostname: str, timeout: float, **_of_kazoo: object
) -> ssl.SSLSocket:
    """Replaces kazoo's function, which leaves its socket open on failure, and trusts more authorities than the given
    ones.

    It reads the files for each connection, so that a new certificate needs no restart. Raises OSError.
    """
    try:
        context = _tls_context(config)
    except ZooKeeperError as error:
        raise OSError(str(error)) from error
    connection = connect_plain_text(address, timeout)
    try:
        return context.wrap_socket(connection, server_hostname=hostname)
    finally:
        connection.close()  # does nothing if the TLS socket has taken it over


def _tls_context(config: ZooKeeperConfig) -> ssl.SSLContext:
    """Raises ZooKeeperError, if a file cannot be read."""
    name = "zookeeper.ssl.truststore.location"
    try:
        context = ssl.create_default_context(cafile=config.ssl_truststore_location)
        context.check_hostname = config.ssl_checks_host_name
        if config.ssl_keystore_location is not None:
            name = "zookeeper.ssl.keystore.location"
            # With an encrypted key and no password, OpenSSL would prompt for it at the terminal.
            context.load_cert_chain(config.ssl_keystore_location, password=config.ssl_keystore_password or "")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ZooKeeperError(f"{name} is not a PEM file that can be used: {reason}") from error
    return context


def _is_of_another(error: Exception) -> bool:
    """True if an operation only failed because another one of the same request did."""
    from kazoo.exceptions import RolledBackError, RuntimeInconsistency

    return isinstance(error, RolledBackError | RuntimeInconsistency)


def _translated(error: Exception, path: str) -> Exception:
    from kazoo import exceptions

    match error:
        case exceptions.NoNodeError():
            return NoNodeError(path)
        case exceptions.NodeExistsError():
            return NodeExistsError(path)
        case exceptions.BadVersionError():
            return BadVersionError(path)
        case exceptions.NotEmptyError():
            return RefusedError(path)
        case exceptions.NoAuthError() | exceptions.AuthFailedError():
            return AccessRefusedError(
                f"ZooKeeper refuses access to {path}: "
                "kwire.zookeeper.digest must be the user and password of the cluster"
            )
        case exceptions.SessionExpiredError():
            return SessionEndedError("this node's session with ZooKeeper is over")
        case (
            exceptions.ConnectionLoss()
            | exceptions.OperationTimeoutError()
            | exceptions.RequestTimeoutError()
            | exceptions.SessionMovedError()
            | exceptions.ThrottledOpError()
        ):
            return ConnectionLostError(type(error).__name__)
        case exceptions.KazooException():
            return ZooKeeperError(f"ZooKeeper refuses a request for {path}: {type(error).__name__}")
        case _:
            return ConnectionLostError("there was no answer in time")
