"""A walk over every answer: each API in each version, requested and refused in every way that can be enumerated.

* requested: the usual request, and each that differs from it in one field;
* denied: the same, of a client that has no permissions;
* one right lacking: the usual request, of a client that lacks one of the permissions that the handler has checked;
* failed: the usual request, while a function that it has called, and that can raise KafkaError, does so.

So a new API, a new version, a new check or a new error is covered without a change here.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Final, Self

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import UnsupportedField

import kwire
from kwire.handlers.apis import Api
from testkit.basics.error_codes import error_codes
from testkit.messages.catalogue import Entry
from testkit.scenes.answers.requests import RESPONSES, unusual, usual
from testkit.scenes.answers.requests import Path as FieldPath
from testkit.scenes.answers.scene import Refuser, Scene, opened

NOT_REFUSED: Final = {
    "api_versions": "asked before anybody has said who they are",
    "sasl_handshake": "asked to learn who somebody is",
    "sasl_authenticate": "asked to learn who somebody is",
    "describe_cluster": "where the brokers are, and nothing of what may be done to them",
    "create_delegation_token": "everybody may have tokens",
    "renew_delegation_token": "whoever is a renewer of the token may do it",
    "expire_delegation_token": "whoever is a renewer of the token may do it",
    "describe_delegation_token": "everybody may see their own tokens",
}
"""APIs for everybody."""

NOTHING_SAYS_SO: Final = {
    "describe_log_dirs": (1, 2),  # Kafka leaves the error out where there is no field; no folder is listed
    "list_groups": range(6),
    "list_transactions": range(3),
}
"""Versions in which an answer to a client without permissions is empty, and has no error: Kafka's is the same."""

NOT_SET: Final[dict[str, dict[FieldPath, str]]] = {
    "fetch": {
        ("responses", "partitions", "diverging_epoch"): "for a reader that says which epoch it has read, since v12",
        ("responses", "partitions", "preferred_read_replica"): "for a reader that says in which rack it is, since v11",
        ("responses", "partitions", "snapshot_id"): "of a quorum, which kwire does not have",
    },
    "join_group": {("skip_assignment",): "for a static member that returns as the leader; the group asks the version"},
    "init_producer_id": {
        ("ongoing_txn_producer_id",): "for keep_prepared_txn, which is not supported",
        ("ongoing_txn_producer_epoch",): "for keep_prepared_txn, which is not supported",
    },
    "describe_quorum": {
        ("topics", "partitions", "current_voters", "replica_directory_id"): "no directory has a part in it",
        ("topics", "partitions", "observers", "replica_directory_id"): "no directory has a part in it",
    },
    "describe_cluster": {("endpoint_type",): "it is always that of brokers, the default"},
    "streams_group_heartbeat": {("acceptable_recovery_lag_legacy",): "of v0, in which no task warms up"},
    "streams_group_describe": {
        ("groups", "topology_description"): "for include_topology_description, since v1",
        ("groups", "topology_description_status"): "for include_topology_description, since v1",
    },
}
"""Fields that cannot be written in some versions, and that the walk never saw in others, with the reason. If kwire sets
one of them, the walk must cover it.

Whoever lets kwire set one of them has to let the walk see it.
"""

INJECTED: Final = ErrorCode.UNKNOWN_SERVER_ERROR
Function = tuple[str, int]
"""A function: its file, and its first line."""


@attrs.define
class Walk:
    """The results of the walk. `answers` counts them by kind."""

    api: Api
    answers: Counter[str] = attrs.field(factory=Counter)
    unwritten: list[str] = attrs.field(factory=list)
    """The messages that could not be written."""
    silent: set[int] = attrs.field(factory=set)
    """Versions in which a client without permissions gets no error."""
    seen: set[FieldPath] = attrs.field(factory=set)
    """Fields of answers that had another value than the default."""

    def go(self) -> Self:
        for version in self.api.versions:
            self._version(version)
        return self

    def _version(self, version: int) -> None:
        checked: set[Any] = set()
        with opened() as scene:
            for request in self._requests(scene, version):
                scene.broker.authorization.authorizer = refuser = Refuser()
                self._send(scene, version, request, "asked")
                checked |= refuser.checked
        with opened() as scene:
            scene.broker.authorization.authorizer = Refuser(None)
            answers = [self._send(scene, version, request, "denied") for request in self._requests(scene, version)]
            if not error_codes(answers[0]) - {ErrorCode.NONE}:
                self.silent.add(version)
            for right in sorted(checked):
                scene.broker.authorization.authorizer = Refuser(frozenset({right}))
                self._send(scene, version, usual(self.api, version, scene.named), "one right lacking")
            scene.broker.authorization.authorizer = Refuser()
            for function in sorted(self._called(scene, version)):
                self._fail(scene, version, function)

    def _requests(self, scene: Scene, version: int) -> Iterator[Any]:
        yield usual(self.api, version, scene.named)
        for _, request in unusual(self.api, version, scene.named):
            yield request

    def _send(self, scene: Scene, version: int, request: Any, kind: str) -> Any:
        try:
            answer = scene.send(self.api, version, request)
        except UnsupportedField as error:
            self.unwritten.append(f"v{version}, {kind}: {error}: {request!r:.200}")
            return None
        if answer is not None:
            self.answers[kind] += 1
            self.seen |= set(_filled(RESPONSES[self.api.key], answer))
        return answer

    def _called(self, scene: Scene, version: int) -> set[Function]:
        """The functions that can raise KafkaError and that the usual request calls."""
        called: set[Function] = set()

        def note(frame: FrameType, event: str, _: object) -> None:
            if event == "call" and (function := _function_of(frame)) in raisers():
                called.add(function)

        _profiled(note, lambda: scene.send(self.api, version, usual(self.api, version, scene.named)))
        return called

    def _fail(self, scene: Scene, version: int, function: Function) -> None:
        def fail(frame: FrameType, event: str, _: object) -> None:
            if event == "call" and _function_of(frame) == function:
                sys.setprofile(None)
                raise KafkaError(INJECTED)

        request = usual(self.api, version, scene.named)
        with suppress(KafkaError):  # a function that catches its own errors, and has no caller that does
            _profiled(fail, lambda: self._send(scene, version, request, "failed"))


def _profiled(function: Callable[[FrameType, str, Any], None], do: Callable[[], object]) -> None:
    before = sys.getprofile()
    sys.setprofile(function)
    try:
        do()
    finally:
        sys.setprofile(before)


def _function_of(frame: FrameType) -> Function:
    code = frame.f_code
    return code.co_filename, code.co_firstlineno


# Fields that not every version has


def limited_fields(api: Api) -> set[FieldPath]:
    """Fields of the answer that some version lacks, and cannot carry: they have to be left alone there."""
    entry = RESPONSES[api.key]

    def found(struct: str, versions: list[int], above: FieldPath) -> Iterator[FieldPath]:
        for field in entry.fields(struct):
            path, here = (*above, field.attribute), [it for it in versions if it in field.versions]
            if not field.ignorable and here != versions:
                yield path
            if field.is_struct:
                yield from found(field.element, here, path)

    return set(found(entry.name, list(api.versions), ()))


def _filled(entry: Entry, answer: Any, above: FieldPath = (), struct: str = "") -> Iterator[FieldPath]:
    struct = struct or entry.name
    empty = entry.classes[struct]()
    for field in entry.fields(struct):
        value, path = getattr(answer, field.attribute), (*above, field.attribute)
        if value != getattr(empty, field.attribute):
            yield path
        if field.is_struct and value is not None:
            for part in value if field.is_array else [value]:
                yield from _filled(entry, part, path, field.element)


# Functions that can raise KafkaError


@cache
def raisers() -> frozenset[Function]:
    """Returns the functions of the broker's code that raise KafkaError."""
    root = Path(kwire.__file__).parent
    found: set[Function] = set()
    for path in root.rglob("*.py"):
        if "tests" not in path.relative_to(root).parts:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _raises(node):
                    first = min([node.lineno, *(it.lineno for it in node.decorator_list)])
                    found.add((str(path), first))
    return frozenset(found)


def _raises(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(node, ast.Raise) and "KafkaError(" in ast.unparse(node) for node in _own_nodes(function))


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Without those of functions inside it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node
            yield from _own_nodes(node)
