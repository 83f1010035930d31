"""A client whose token is in a file: the bytes that it sends, and files without a token."""

from __future__ import annotations

from pathlib import Path

import pytest

from kwire.security.oauth.token_file import MAX_TOKEN_BYTES, TokenFileClient


def test_the_token_of_the_file_is_read_for_each_login(tmp_path: Path) -> None:
    file = tmp_path / "token"
    for text, first in (("a.b.c\n", b"n,,\x01auth=Bearer a.b.c\x01\x01"), (" d ", b"n,,\x01auth=Bearer d\x01\x01")):
        file.write_text(text)
        assert TokenFileClient(str(file)).respond(None) == first


@pytest.mark.parametrize("data", [b"", b" \n", "é".encode(), b"\xff", b"a" * (MAX_TOKEN_BYTES + 1)])
def test_a_file_that_has_no_token_is_named(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(data)
    with pytest.raises(ValueError, match=f"{file} has no token: a line of text of at most 65536 bytes is needed"):
        TokenFileClient(str(file)).respond(None)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"the token in {tmp_path}/none cannot be read: No such file or directory"):
        TokenFileClient(f"{tmp_path}/none").respond(None)
