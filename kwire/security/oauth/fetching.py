"""Fetches a set of keys, from a file or over HTTP: blocking calls, for a worker thread or before the event loop starts.

An HTTP response is bounded in size and in time for any server, and `KeyFetch.cut_off` ends it at once.
Redirects are not followed: the keys decide which clients are authenticated, so they come only from the configured URL.

Kafka reads only URLs that its system property org.apache.kafka.sasl.oauthbearer.allowed.urls lists, because some of its
configurations come over the network (those of connectors). This one cannot be altered in a running broker, so only the
author of the broker's own configuration chooses it, and there is no such list.
"""

from __future__ import annotations

import http.client
import io
import os
import socket
import ssl
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from kwire.security.oauth.keys import MAX_SET_BYTES, KeySet, UnusableKeys
from kwire.security.tls.contexts import client_context
from kwire.security.tls.settings import TlsError, TlsSettings

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

FETCH_S: Final = 10.0
"""The timeout in seconds of a whole fetch, including the connection."""


class KeysUnavailable(Exception):
    """The keys could not be fetched. The message has the reason and the URL."""


class KeyFetch:
    """Fetches from one URL, again and again: file:///path, http://host/path or https://host/path.

    `fetch` runs in one thread at a time. `cut_off` may be called in another.
    """

    def __init__(self, url: str, tls: TlsSettings | None = None) -> None:
        """`tls` are the settings for https. If it is None, the system's certificate authorities are trusted."""
        self.url = url
        self._tls = tls or TlsSettings()
        self._seen: tuple[int, int, int] | None = None
        self._sock: socket.socket | None = None
        self._is_cut_off = False

    @property
    def is_file(self) -> bool:
        return self.url.lower().startswith("file:")

    def check(self) -> None:
        """Checks that everything needed on this machine exists. Raises KeysUnavailable."""
        if self.url.lower().startswith("https:"):
            self._context()

    def _context(self) -> ssl.SSLContext:
        try:
            return client_context(self._tls)
        except TlsError as error:
            raise KeysUnavailable(f"{self.url} cannot be read: {error}") from None

    def fetch(self) -> KeySet | None:
        """Returns the keys, or None if the file has not changed since it was read last. Raises KeysUnavailable."""
        try:
            if self.is_file:
                return self._read_file(unquote(urlsplit(self.url).path))
            return KeySet.parse(self._get())
        except UnusableKeys as error:
            raise KeysUnavailable(f"{self.url} is of no use: {error}") from None
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            text = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise KeysUnavailable(f"{self.url} cannot be read: {text}") from None

    def cut_off(self) -> None:
        """Ends a fetch that runs in another thread, and all later ones."""
        self._is_cut_off = True
        sock = self._sock
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _read_file(self, path: str) -> KeySet | None:
        with open(path, "rb", opener=_open_without_waiting) as file:
            stat = os.fstat(file.fileno())
            seen = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if seen == self._seen:
                return None
            keys = KeySet.parse(file.read(MAX_SET_BYTES + 1))
        self._seen = seen
        return keys

    def _get(self) -> bytes:
        url = urlsplit(self.url)
        deadline = time.monotonic() + FETCH_S
        is_encrypted = url.scheme.lower() == "https"
        host, port = url.hostname or "", url.port or (443 if is_encrypted else 80)
        with ExitStack() as open_sockets:
            sock = open_sockets.enter_context(socket.create_connection((host, port), timeout=FETCH_S))
            if is_encrypted:
                context = self._context()
                sock.settimeout(_left(deadline))
                sock = open_sockets.enter_context(
                    context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
                )
            self._sock = sock
            try:
                if self._is_cut_off:
                    raise TimeoutError("the broker stops")
                if isinstance(sock, ssl.SSLSocket):
                    sock.do_handshake()
                return _answer(_Bounded(sock, deadline), url.netloc.rpartition("@")[2], _target(url.path, url.query))
            finally:
                self._sock = None


def _target(path: str, query: str) -> str:
    return (path or "/") + (f"?{query}" if query else "")


def _answer(sock: _Bounded, host: str, target: str) -> bytes:
    connection = http.client.HTTPConnection(host)
    connection.sock = sock
    headers = {"Host": host, "Accept": "application/json", "Connection": "close", "User-Agent": "kwire"}
    connection.putrequest("GET", target, skip_host=True, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    if response.status != 200:
        raise http.client.HTTPException(f"it answers with the status {response.status}, not 200")
    return response.read(MAX_SET_BYTES + 1)


def _left(deadline: float) -> float:
    """Returns the seconds until the deadline. Raises TimeoutError if it is over."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError(f"no whole answer within {FETCH_S:.0f} s")
    return left


class _Bounded:
    """A socket for http.client, all of whose calls together end at the deadline."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def sendall(self, data: ReadableBuffer) -> None:
        self._sock.settimeout(_left(self._deadline))
        self._sock.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        assert mode == "rb"
        return io.BufferedReader(_Received(self._sock, self._deadline))

    def close(self) -> None:
        """Does nothing: the caller that connected the socket closes it."""


class _Received(io.RawIOBase):
    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        self._sock.settimeout(_left(self._deadline))
        try:
            return self._sock.recv_into(buffer)
        except TimeoutError:
            raise TimeoutError(f"no whole answer within {FETCH_S:.0f} s") from None


def _open_without_waiting(path: str, flags: int) -> int:
    """Opens a file without blocking: a pipe in its place must not make the caller wait for a writer."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
