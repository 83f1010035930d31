"""The modules with checks, the tests that have to notice when one is broken, and checks that no test can notice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

import attrs

from devtools.places import REPOSITORY
from testkit.security.checks.finding import Check, checks_of

TESTS: Final = "kwire/tests"


@attrs.frozen
class Room:
    """`path`: a file, or a folder with all below it. `tests` are files and folders."""

    path: str
    tests: tuple[str, ...]

    def files(self) -> Iterator[Path]:
        path = REPOSITORY / self.path
        yield from [path] if path.is_file() else sorted(path.rglob("*.py"))

    def own_tests(self, check: Check) -> list[str]:
        """Returns the files named after the check's module: they are quick, and most likely to notice."""
        pattern = f"test_*{PurePosixPath(check.path).stem}*.py"
        paths = [REPOSITORY / it for it in self.tests]
        files = [file for it in paths for file in ([it] if it.is_file() else sorted(it.rglob("test_*.py")))]
        return [file.relative_to(REPOSITORY).as_posix() for file in files if file.match(pattern)]


ROOMS: Final = (
    Room(
        "kwire/security/sasl",
        (
            f"{TESTS}/security/sasl",
            f"{TESTS}/security/test_oauthbearer.py",
            f"{TESTS}/client/test_login.py",
            f"{TESTS}/network/test_sasl.py",
            f"{TESTS}/security/test_known_holes.py",
        ),
    ),
    Room(
        "kwire/security/oauth",
        (f"{TESTS}/security/oauth", f"{TESTS}/network/test_jwks.py", f"{TESTS}/network/test_token_bearers.py"),
    ),
    Room("kwire/security/tls", (f"{TESTS}/security/tls", f"{TESTS}/network/test_tls.py")),
    Room("kwire/security/acls", (f"{TESTS}/security/test_acl_decisions.py", f"{TESTS}/security/test_acl_requests.py")),
    Room(
        "kwire/metadata/controller/access",
        (
            f"{TESTS}/security/test_acl_requests.py",
            f"{TESTS}/metadata/test_client_quotas.py",
            f"{TESTS}/metadata/test_delegation_tokens.py",
            f"{TESTS}/metadata/test_scram_users.py",
        ),
    ),
    Room("kwire/network/authentication.py", (f"{TESTS}/network/test_sasl.py",)),
    Room(
        "kwire/network/sasl_mechanisms.py",
        (f"{TESTS}/network/test_sasl.py", f"{TESTS}/network/test_token_bearers.py", f"{TESTS}/network/test_jwks.py"),
    ),
    Room("kwire/network/jwks.py", (f"{TESTS}/network/test_jwks.py",)),
    Room(
        "kwire/network/listener_security.py",
        (f"{TESTS}/network/test_changing_tls.py", f"{TESTS}/network/test_tls.py"),
    ),
    Room(
        "kwire/network/connection.py",
        (f"{TESTS}/network/test_sasl.py", f"{TESTS}/network/test_tls.py", f"{TESTS}/network/test_connection.py"),
    ),
    Room("kwire/network/throttling.py", (f"{TESTS}/network/test_throttling.py",)),
    Room("kwire/config/sasl.py", (f"{TESTS}/config/test_sasl_config.py",)),
    Room("kwire/config/oauth.py", (f"{TESTS}/config/test_oauth_config.py",)),
    Room("kwire/config/client_security.py", (f"{TESTS}/config/test_client_security.py",)),
    Room("kwire/client/login.py", (f"{TESTS}/client/test_login.py",)),
    Room("kwire/quotas", (f"{TESTS}/quotas", f"{TESTS}/network/test_throttling.py")),
    Room("kwire/handlers/sasl_handshake.py", (f"{TESTS}/network/test_sasl.py",)),
    Room("kwire/handlers/sasl_authenticate.py", (f"{TESTS}/network/test_sasl.py",)),
    Room(
        "kwire/handlers/fetch.py",
        (f"{TESTS}/security/test_authorization.py", f"{TESTS}/replication/test_resting_sessions.py"),
    ),
    Room(
        "kwire/handlers",
        (f"{TESTS}/security/test_authorization.py", f"{TESTS}/security/test_authorization_page.py"),
    ),
)

UNSEEN: Final = {
    "kwire/network/throttling.py Throttling._charge_answer: fetched.find(self._client, self._now_ms()) is None": (
        "without a quota of bytes nothing is charged either: it saves writing the answer twice"
    ),
    "kwire/security/acls/index.py canonical_host: ':' not in text": (
        "it saves work: what has no colon is no IPv6 address, and is returned as it is"
    ),
    "kwire/security/acls/standard_authorizer.py StandardAuthorizer.allows: decided is not None": (
        "it saves work: what is not remembered is decided again, by the same ACLs"
    ),
}
"""The reason why no test fails without the check, by its name."""


def all_checks() -> Iterator[tuple[Room, Check]]:
    """A file is in the first room that has it."""
    seen: set[Path] = set()
    for room in ROOMS:
        for file in room.files():
            if file in seen:
                continue
            seen.add(file)
            path = file.relative_to(REPOSITORY).as_posix()
            for check in checks_of(path, file.read_text(encoding="utf-8")):
                yield room, check
