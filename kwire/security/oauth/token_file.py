"""The client's side of OAUTHBEARER with a token from a file, which another program keeps fresh.

It corresponds to Kafka's FileJwtRetriever: sasl.oauthbearer.token.endpoint.url with a URL file:///path. The file is
read for each login.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kwire.security.sasl.oauthbearer import OAUTHBEARER, FirstMessage, OAuthBearerClient

MAX_TOKEN_BYTES: Final = 64 * 1024


class TokenFileClient:
    """See `kwire.security.sasl.client`."""

    mechanism: str = OAUTHBEARER

    def __init__(self, path: str) -> None:
        self._path = path
        self._client: OAuthBearerClient | None = None

    def respond(self, challenge: bytes | None) -> bytes | None:
        """Raises ValueError if there is no token, or the peer is not a broker."""
        if self._client is None:
            self._client = OAuthBearerClient(FirstMessage(self._read()))
        return self._client.respond(challenge)

    def _read(self) -> str:
        try:
            with Path(self._path).open("rb") as file:
                data = file.read(MAX_TOKEN_BYTES + 1)
        except OSError as error:
            raise ValueError(f"the token in {self._path} cannot be read: {error.strerror}") from None
        token = data.strip()
        if not token or len(data) > MAX_TOKEN_BYTES or not token.isascii():
            raise ValueError(f"{self._path} has no token: a line of text of at most {MAX_TOKEN_BYTES} bytes is needed")
        return token.decode()
