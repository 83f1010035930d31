"""A broker with an authorizer, users with exactly the permissions of their ACLs, and the state that a denied request
must not change.

A super user prepares and checks. A case has a number, and with it a user of its own and resources that no other case
has. All ACLs are created at once, so a test waits for none.

The requests are those with which the handlers are tested (REQUESTS), with the names of the case instead.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cached_property, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kwire_protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from kwire_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.describe_acls import DescribeAclsRequest
from kwire_protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from kwire_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kwire_protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from kwire_protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kwire_protocol.messages.describe_transactions import DescribeTransactionsRequest
from kwire_protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.incremental_alter_configs import AlterableConfig as IncrementallyAlterable
from kwire_protocol.messages.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from kwire_protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kwire_protocol.messages.init_producer_id import InitProducerIdRequest
from kwire_protocol.messages.list_groups import ListGroupsRequest
from kwire_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kwire_protocol.messages.sasl_handshake import SaslHandshakeRequest
from kwire_protocol.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from kwire_protocol.wire import ApiMessage, GeneratedMessage, Uuid

from devtools.apache_kafka import ApacheKafka
from kwire.handlers.apis import APIS
from kwire.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from testkit.basics.waiting import eventually
from testkit.raw import groups
from testkit.raw.client import RawClient, decoded_reply, request_frame
from testkit.security import requests as handlers
from testkit.security.permissions import MORE, Permission
from testkit.security.secured import PLAIN, started
from testkit.servers import brokers

ALL, LITERAL, DENY, ALLOW = 2, 3, 2, 3
NEW, CHANGELOG, RENEWER, OWNER = "new", "changelog", "mallory", "alice"
NAMES: Final = (handlers.TOPIC, handlers.GROUP, handlers.ID, NEW, CHANGELOG, RENEWER, OWNER)
"""The names in the requests that are replaced in each case."""
ANY: Final = ("WRITE", "TOPIC")
"""The permission that InitProducerId checks for all topics at once."""
_ADMIN: Final = "admin"
"""The super user. It logs in as the others do, because tokens are not issued at a plaintext listener."""
_SOME: Final = 24
"""Enough names that each partition of a coordinators' topic has some."""
_TIMEOUT_MS: Final = 30_000
_BROKER, _TOPIC, _GROUP = 4, 2, 32
"""The numbers of ConfigResource.Type."""
_CONFIGS: Final = {
    _TOPIC: (handlers.TOPIC, "retention.ms", "12345678"),
    _BROKER: ("1", "message.max.bytes", "1234567"),
    _GROUP: (handlers.GROUP, "consumer.session.timeout.ms", "46000"),
}
_VALUES: Final = {value for _, _, value in _CONFIGS.values()}
"""Other ones in each case: all change the same broker."""

Request = tuple[Callable[[Any], Any], int | None]
"""A function that makes a request, and the version of the request; None for the latest one."""


_OWN: Final[dict[str, list[ApiMessage]]] = {
    # Each changes one resource: a refused one may not hide behind what is done to others.
    "alter_configs": [
        AlterConfigsRequest([AlterConfigsResource(kind, name, [AlterableConfig(config, value)])])
        for kind, (name, config, value) in _CONFIGS.items()
    ],
    "incremental_alter_configs": [
        IncrementalAlterConfigsRequest([IncrementalResource(kind, name, [IncrementallyAlterable(config, 0, value)])])
        for kind, (name, config, value) in _CONFIGS.items()
    ],
    # With the number of partitions alone, which can be done.
    "create_partitions": [CreatePartitionsRequest([CreatePartitionsTopic(handlers.TOPIC, 3, None)])],
}
"""Requests that replace those in REQUESTS, which change nothing."""

_MORE: Final = (
    "produce",
    "init_producer_id",
    "add_partitions_to_txn",
    "metadata",
    "describe_share_group_offsets",
)
"""The requests of MORE that do without a broker's insides."""


def requests_of(api: str) -> list[Request]:
    own = _OWN.get(api)
    if own is not None:
        return [(partial(_copied, it), None) for it in own]
    return [(make, None) for make in handlers.REQUESTS[api]] + (MORE[api] if api in _MORE else [])


def _copied(request: ApiMessage, _: Any) -> ApiMessage:
    return copy.deepcopy(request)


def name_in(number: int, name: str) -> str:
    """Returns the name in a request of the case for one of NAMES."""
    return f"{name}-{number}-"


def user_of(number: int) -> str:
    return f"u{number}"


def resources(permission: Permission, number: int, api: str) -> list[str]:
    """Returns the resources of the case that the request is about."""
    if api == "init_producer_id" and permission == ANY:
        return ["*"]
    names = {
        "TOPIC": [name_in(number, it) for it in (handlers.TOPIC, NEW, CHANGELOG)],
        "GROUP": [name_in(number, handlers.GROUP)],
        "CLUSTER": [CLUSTER_NAME],
        "TRANSACTIONAL_ID": [name_in(number, handlers.ID)],
        "DELEGATION_TOKEN": ["*"],
        "USER": [f"User:{name_in(number, OWNER)}"],
    }
    return names[permission[1]]


def acls(number: int, api: str, permissions: Iterable[Permission], *, deny: bool) -> list[AclCreation]:
    """The user may do these and nothing else, or, with `deny`, everything but these."""
    user = f"User:{user_of(number)}"
    made = [
        AclCreation(ResourceType[it[1]], name, LITERAL, user, "*", Operation[it[0]], DENY if deny else ALLOW)
        for it in permissions
        for name in resources(it, number, api)
    ]
    if deny:
        made += [
            AclCreation(kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else "*", LITERAL, user, "*", ALL, ALLOW)
            for kind in ResourceType
        ]
    return made


def rename(value: Any, other: Callable[[str], str], numbers: dict[str, int]) -> Any:
    """A request with other names, and with the values of `numbers` in the fields of those names."""
    if isinstance(value, str):
        return other(value)
    if isinstance(value, list):
        return [rename(it, other, numbers) for it in value]
    if isinstance(value, GeneratedMessage):
        for name in value.__slots__:
            given, part = numbers.get(name), getattr(value, name)
            if getattr(value, "v3_and_below_transactional_id", ""):
                given = numbers.get(name.removeprefix("v3_and_below_"))
            setattr(value, name, rename(part, other, numbers) if given is None else given)
    return value


def key_of(api: str) -> int:
    return next(it.key for it in APIS.values() if it.name == api)


@attrs.define(eq=False)
class Scene:
    """The running broker."""

    admin: RawClient
    versions: dict[int, int]
    """The latest that it serves, by the APIs' keys."""
    _address: str

    def version(self, api: str, wanted: int | None = None) -> int:
        """Returns the version of an API's requests: the latest one that both sides have, or the wanted one."""
        return min(handlers.latest(api) if wanted is None else wanted, self.versions[key_of(api)])

    def call(self, request: ApiMessage, version: int | None = None) -> Any:
        """Sends a request as the super user."""
        return self.admin.call(request, self.newest(request) if version is None else version)

    def newest(self, request: ApiMessage) -> int:
        """Its version."""
        return self.version(APIS[type(request).api_key].name)

    def connection_of(self, number: int) -> AbstractContextManager[RawClient]:
        """Opens a connection of the case's user."""
        return logged_in(self._address, user_of(number))

    def send(self, client: RawClient, request: ApiMessage, version: int) -> tuple[bytes, bytes, Any]:
        """The bytes of the request, those of the answer, and the answer."""
        sent = request_frame(request, version)
        client.send(sent)
        answer = bytes(client.read_frame())
        return sent, answer, decoded_reply(answer, type(request).api_key, version)[1]

    def wait_for_transactions(self) -> None:
        """Waits until there is a coordinator for each id: Apache Kafka creates the topic at the first request."""
        some = [f"some-id-{number}" for number in range(_SOME)]

        def known() -> bool:
            self.call(FindCoordinatorRequest(key_type=1, coordinator_keys=some))
            states = self.call(DescribeTransactionsRequest(some)).transaction_states
            return {it.error_code for it in states} == {ErrorCode.TRANSACTIONAL_ID_NOT_FOUND}

        eventually(known, "transactions have coordinators")

    def create_topics(self, numbers: Iterable[int]) -> None:
        names = [name_in(it, handlers.TOPIC) for it in numbers]
        created = self.call(CreateTopicsRequest([CreatableTopic(it, 1, 1) for it in names], 60_000))
        assert {it.error_code for it in created.topics} == {0}

    def create_acls(self, made: list[AclCreation]) -> None:
        assert {it.error_code for it in self.call(CreateAclsRequest(made)).results} == {0}

        def denied_count() -> int:
            answer = self.call(DescribeAclsRequest(1, None, 1, None, None, 1, 1))
            return sum(len(it.acls) for it in answer.resources)

        expected = len(made)
        eventually(lambda: denied_count() >= expected, "the broker goes by the ACLs")


@attrs.define(eq=False, slots=False)
class Case:
    """The requests of one user, and its resources. The super user prepares and checks it."""

    scene: Scene
    number: int
    numbers: dict[str, int] = attrs.field(factory=dict)
    """The identity of the producer whose transaction is prepared."""

    def name(self, name: str) -> str:
        return name_in(self.number, name)

    def renamed(self, text: str) -> str:
        if text in _VALUES:
            return str(int(text) + self.number)
        for name in NAMES:
            if text in (name, f"User:{name}") or (name.startswith("secret-") and text.startswith(name)):
                return text.replace(name, self.name(name), 1)
        return text

    def request(self, make: Callable[[Any], Any]) -> Any:
        topics = {handlers.TOPIC: SimpleNamespace(topic_id=self.topic_id)}
        broker = SimpleNamespace(
            metadata=SimpleNamespace(image=SimpleNamespace(topics=topics)),
            sharing=SimpleNamespace(sessions=SimpleNamespace(begin=self._begin_share_session)),
        )
        return rename(make(broker), self.renamed, {"timeout_ms": _TIMEOUT_MS, **self.numbers})

    @cached_property
    def topic_id(self) -> Uuid:
        [topic] = self.scene.call(MetadataRequest([MetadataRequestTopic(name=self.name(handlers.TOPIC))], False)).topics
        assert topic.error_code == 0
        return Uuid(topic.topic_id)

    def prepare(self, api: str) -> Any:
        """Prepares as the super user: sends the first request of that API, with the case's names."""
        make, version = requests_of(api)[0]
        return self.scene.call(self.request(make), self.scene.version(api, version))

    def _begin_share_session(self, _group: str, member_id: str, *_: object, **_more: object) -> None:
        topic = FetchTopic(self.topic_id, [FetchPartition(0)])
        request = ShareFetchRequest(
            self.name(handlers.GROUP), member_id, 0, max_wait_ms=0, max_records=1, batch_size=1, topics=[topic]
        )
        assert self.scene.call(request).error_code == 0

    # -- what is there before the request

    def begin_producer(self) -> None:
        request = InitProducerIdRequest(self.name(handlers.ID), 60_000)
        made = eventually(lambda: _succeeded(self.scene.call(request, 4)), "the transactional id has a producer")
        self.numbers = {"producer_id": made.producer_id, "producer_epoch": made.producer_epoch}

    def begin_transaction(self) -> None:
        self.begin_producer()
        make, version = MORE["add_partitions_to_txn"][0]
        added = self.scene.call(self.request(make), version)
        assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0

    def create_token(self) -> None:
        assert self.scene.call(CreateDelegationTokenRequest("User", self.name(OWNER))).error_code == 0
        eventually(lambda: self.seen()["tokens"].tokens, "the token is known")

    def create_acl(self) -> None:
        assert self.prepare("create_acls").results[0].error_code == 0
        eventually(lambda: self.seen()["ACLs"].resources, "the ACL is known")

    def commit_offset(self) -> None:
        def code() -> int:
            return int(self.prepare("offset_commit").topics[0].partitions[0].error_code)

        eventually(lambda: code() == 0, "an offset is committed")

    def produce(self) -> None:
        def code() -> int:
            return int(self.prepare("produce").responses[0].partition_responses[0].error_code)

        eventually(lambda: code() == 0, "a record is written")

    def join(self, kind: str) -> None:
        """A member of a group of that kind has the topic."""
        eventually(lambda: self._has_joined(kind), f"a member of the {kind} group has the topic")

    def _has_joined(self, kind: str) -> bool:
        if self.prepare(f"{kind}_group_heartbeat").error_code:
            return False
        [group] = self.prepare(f"{kind}_group_describe").groups
        seen = self.seen()
        if kind == "streams":
            # Its internal topic is being created.
            known = [it.name for it in seen["topics"].topics if not it.error_code]
            return group.topology is not None and self.name(CHANGELOG) in known
        has = [it.topic_name for member in group.members for it in member.assignment.topic_partitions]
        offsets = seen["share offsets"].groups[0].topics
        return bool(has) and (kind != "share" or bool(offsets))

    def leave_a_share_group(self) -> None:
        """There is one, without members."""
        eventually(lambda: self.prepare("share_group_heartbeat").error_code == 0, "the member has joined")
        make, _ = requests_of("share_group_heartbeat")[0]
        left = self.request(make).replace(member_epoch=-1)
        assert self.scene.call(left).error_code == 0

    # -- what is there after it

    def seen(self) -> dict[str, Any]:
        """All that a request may have changed."""
        topic, group = self.name(handlers.TOPIC), self.name(handlers.GROUP)
        users = [self.name(RENEWER), self.name(OWNER)]
        first, last = (
            ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, at)])]) for at in (-2, -1)
        )
        requests: dict[str, ApiMessage] = {
            "topics": MetadataRequest(
                [MetadataRequestTopic(name=self.name(it)) for it in (handlers.TOPIC, NEW, CHANGELOG)], False
            ),
            "first offset": first,
            "last offset": last,
            "offsets": self.request(handlers.REQUESTS["offset_fetch"][0]),
            "share offsets": DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group, None)]),
            "groups": ListGroupsRequest(),
            "configs": DescribeConfigsRequest(
                [
                    DescribeConfigsResource(kind, self.renamed(name), [config])
                    for kind, (name, config, _) in _CONFIGS.items()
                ]
            ),
            "ACLs": DescribeAclsRequest(1, topic, 1, None, None, 1, 1),
            "quotas": DescribeClientQuotasRequest([ComponentData("user", 0, users[0])]),
            "users": DescribeUserScramCredentialsRequest([UserName(it) for it in users]),
            "tokens": DescribeDelegationTokenRequest([DescribeDelegationTokenOwner("User", users[1])]),
            "transaction": DescribeTransactionsRequest([self.name(handlers.ID)]),
            "features": ApiVersionsRequest("tests", "1"),
        }
        self.scene.admin.send_requests(*((it, self.scene.newest(it)) for it in requests.values()))
        seen = {name: self.scene.admin.answer() for name in requests}
        seen["groups"] = [it for it in seen["groups"].groups if it.group_id == group]
        seen["features"] = seen["features"].finalized_features
        return seen

    def changed(self, before: dict[str, Any]) -> set[str]:
        """Returns the parts of the state that have changed since then."""
        return {name for name, it in self.seen().items() if it != before[name]}


def _succeeded(answer: Any) -> Any:
    return None if answer.error_code else answer


@contextmanager
def denying_broker(users: int) -> Iterator[Scene]:
    """There are users for the cases 0 to `users`."""
    with ExitStack() as ended:
        folder = Path(tempfile.mkdtemp(prefix="kwire-denials-"))
        ended.callback(shutil.rmtree, folder)
        passwords = " ".join(f'user_{it}="{it}"' for it in [*map(user_of, range(users)), _ADMIN])
        settings = {
            **brokers.SETTINGS_OF_ONE,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:ANONYMOUS;User:{_ADMIN}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
            "sasl.enabled.mechanisms": PLAIN,
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                f"org.apache.kafka.common.security.plain.PlainLoginModule required {passwords};"
            ),
            "delegation.token.secret.key": "of-all-brokers",
            # The InitProducerId request of v6 enables two-phase commit.
            "transaction.two.phase.commit.enable": "true",
            "unstable.api.versions.enable": "true",
        }
        kafka = ApacheKafka(
            brokers.KAFKA_VERSION, settings, more_listeners=["SASL_PLAINTEXT"], folder=folder / "broker"
        )
        ended.enter_context(started(kafka))
        groups.wait_until_served(kafka.bootstrap)
        with RawClient(kafka.bootstrap) as client:
            served = client.call(ApiVersionsRequest("tests", "1"), 3).api_keys
        at = kafka.address("SASL_PLAINTEXT")
        admin = ended.enter_context(logged_in(at, _ADMIN))
        scene = Scene(admin, {it.api_key: it.max_version for it in served}, at)
        scene.wait_for_transactions()
        yield scene


@contextmanager
def logged_in(address: str, user: str) -> Iterator[RawClient]:
    with RawClient(address) as client:
        assert client.call(SaslHandshakeRequest(PLAIN), 1).error_code == 0
        assert client.call(SaslAuthenticateRequest(f"\0{user}\0{user}".encode()), 2).error_code == 0
        yield client
