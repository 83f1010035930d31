"""Every API that kwire serves: its versions and its handler, in one table.

ApiVersions answers from this table and the connection dispatches by it. A test checks that docs/not-yet.md lists every
other API that Kafka offers to clients. A handler's module and its messages are imported at the API's first request, so
a broker that only serves producers never loads the group messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from importlib import import_module
from inspect import signature
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
from kwire_protocol.messages import APIS as MESSAGES
from kwire_protocol.wire import Reader

if TYPE_CHECKING:
    from kwire.handlers.context import Answer, Handler
    from kwire.handlers.shapes import Shape

API_VERSIONS = 18

T = TypeVar("T")

Read = Callable[[Reader, int], Any]
FastPath = Callable[["Shape"], "Answer | None"]
"""Returns the function that answers the requests of a shape; None if the handler answers them all."""


class UnsupportedRequest(Exception):
    """An API or a version that kwire does not serve: like Kafka, the connection closes."""

    def __init__(self, key: int, version: int) -> None:
        known = MESSAGES.get(key)
        name = known.name if known else f"API key {key}"
        super().__init__(f"{name} version {version} is not served")


@attrs.define(eq=False)
class Api:
    """One API. `versions` are those that kwire serves, which may be fewer than kwire_protocol can decode.

    `node` has the services that the handler uses; see `bound`.

    `repeats`: clients send the same request again and again (Produce with other records), so the decoded request is
    cached (`kwire.network.decoding`). Its handler must not change the request.

    `has_fast_path`: the usual request is answered by a module of `kwire.handlers.fast`, if it can be.
    """

    key: int
    name: str
    versions: range
    repeats: bool = False
    has_fast_path: bool = False
    node: object = None
    functions: tuple[Read, Handler] | None = attrs.field(default=None, init=False)
    fast_path: FastPath | None = attrs.field(default=None, init=False)

    def load(self) -> tuple[Read, Handler]:
        """Imports the messages, the handler and the fast path; called before the first request is decoded."""
        self.functions = MESSAGES[self.key].request_class.read, self.handler(self.node)
        if self.has_fast_path:
            module = import_module(f"kwire.handlers.fast.{self.name}")
            self.fast_path = bound(module.answer_to, self.node, arguments=1)
        return self.functions

    def handler(self, node: object) -> Handler:
        """Imports the handler, and binds it to the services of that node."""
        return bound(import_module(f"kwire.handlers.{self.name}").handle, node)


def bound(handle: Callable[..., T], node: object, *, arguments: int = 2) -> Callable[..., T]:
    """Binds a handler to the services that it uses.

    Its parameters before the request and the context, its last arguments, are services: attributes of the node, by
    their names.
    """
    services = [*signature(handle).parameters][:-arguments]
    return partial(handle, *[getattr(node, name) for name in services])


def _api(
    key: int, name: str, first: int, last: int, *, repeats: bool = False, has_fast_path: bool = False
) -> tuple[int, Api]:
    return key, Api(key, name, range(first, last + 1), repeats, has_fast_path)


APIS: dict[int, Api] = dict(
    (
        _api(0, "produce", 3, 13, repeats=True, has_fast_path=True),
        _api(1, "fetch", 4, 18, repeats=True, has_fast_path=True),
        _api(2, "list_offsets", 1, 11, repeats=True),  # consumers and Spark send it after every poll
        _api(3, "metadata", 0, 13),
        _api(8, "offset_commit", 2, 10),
        _api(9, "offset_fetch", 1, 10),
        _api(10, "find_coordinator", 0, 6),
        _api(11, "join_group", 0, 9),
        _api(12, "heartbeat", 0, 4, repeats=True),
        _api(13, "leave_group", 0, 5),
        _api(14, "sync_group", 0, 5),
        _api(15, "describe_groups", 0, 6),
        _api(16, "list_groups", 0, 5),
        _api(17, "sasl_handshake", 0, 1),
        _api(18, "api_versions", 0, 5),
        _api(19, "create_topics", 2, 7),
        _api(20, "delete_topics", 1, 6),
        _api(21, "delete_records", 0, 2),
        _api(22, "init_producer_id", 0, 6),
        _api(23, "offset_for_leader_epoch", 2, 4),
        _api(24, "add_partitions_to_txn", 0, 5),
        _api(25, "add_offsets_to_txn", 0, 4),
        _api(26, "end_txn", 0, 5),
        _api(27, "write_txn_markers", 1, 2),
        _api(28, "txn_offset_commit", 0, 6),
        _api(29, "describe_acls", 1, 3),
        _api(30, "create_acls", 1, 3),
        _api(31, "delete_acls", 1, 3),
        _api(32, "describe_configs", 1, 4),
        _api(33, "alter_configs", 0, 2),
        _api(34, "alter_replica_log_dirs", 1, 2),
        _api(35, "describe_log_dirs", 1, 5),
        _api(36, "sasl_authenticate", 0, 2),
        _api(37, "create_partitions", 0, 3),
        _api(38, "create_delegation_token", 1, 3),
        _api(39, "renew_delegation_token", 1, 2),
        _api(40, "expire_delegation_token", 1, 2),
        _api(41, "describe_delegation_token", 1, 3),
        _api(42, "delete_groups", 0, 3),
        _api(43, "elect_leaders", 0, 2),
        _api(44, "incremental_alter_configs", 0, 1),
        _api(45, "alter_partition_reassignments", 0, 1),
        _api(46, "list_partition_reassignments", 0, 0),
        _api(47, "offset_delete", 0, 0),
        _api(48, "describe_client_quotas", 0, 1),
        _api(49, "alter_client_quotas", 0, 1),
        _api(50, "describe_user_scram_credentials", 0, 0),
        _api(51, "alter_user_scram_credentials", 0, 0),
        _api(55, "describe_quorum", 0, 2),
        _api(56, "alter_partition", 2, 3),
        _api(57, "update_features", 0, 2),
        _api(60, "describe_cluster", 0, 2),
        _api(61, "describe_producers", 0, 0),
        _api(64, "unregister_broker", 0, 0),
        _api(65, "describe_transactions", 0, 0),
        _api(66, "list_transactions", 0, 2),
        _api(68, "consumer_group_heartbeat", 0, 1, repeats=True, has_fast_path=True),
        _api(69, "consumer_group_describe", 0, 1),
        _api(75, "describe_topic_partitions", 0, 0),
        _api(76, "share_group_heartbeat", 1, 1, repeats=True),
        _api(77, "share_group_describe", 1, 1),
        _api(78, "share_fetch", 1, 2),
        _api(79, "share_acknowledge", 1, 2),
        _api(83, "initialize_share_group_state", 0, 0),
        _api(84, "read_share_group_state", 0, 0),
        _api(85, "write_share_group_state", 0, 1),
        _api(86, "delete_share_group_state", 0, 0),
        _api(87, "read_share_group_state_summary", 0, 1),
        _api(88, "streams_group_heartbeat", 0, 1, repeats=True),
        _api(89, "streams_group_describe", 0, 1),
        _api(90, "describe_share_group_offsets", 0, 1),
        _api(91, "alter_share_group_offsets", 0, 0),
        _api(92, "delete_share_group_offsets", 0, 0),
        _api(93, "streams_group_topology_description_update", 0, 0),
    )
)


@lru_cache
def served_apis(*, unstable: bool) -> dict[int, Api]:
    """Returns the table. Versions that Kafka serves only with unstable.api.versions.enable are in it if `unstable`."""
    return dict(APIS) if unstable else {key: _stable(api) for key, api in APIS.items()}


def bound_apis(node: object, *, unstable: bool, fast_paths: bool = True) -> dict[int, Api]:
    """Returns the same table with handlers that use this node's services, with or without their fast paths."""
    return {
        key: attrs.evolve(api, node=node, has_fast_path=api.has_fast_path and fast_paths)
        for key, api in served_apis(unstable=unstable).items()
    }


@lru_cache
def served_versions(*, unstable: bool) -> Mapping[int, range]:
    """Returns the versions in the response of ApiVersions, by API key."""
    return MappingProxyType({key: api.versions for key, api in served_apis(unstable=unstable).items()})


def _stable(api: Api) -> Api:
    message = MESSAGES[api.key]
    if not message.latest_version_unstable:
        return api
    return attrs.evolve(api, versions=range(api.versions.start, min(api.versions.stop, message.max_version)))
