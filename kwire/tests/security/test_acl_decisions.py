"""The standard authorizer's decisions: the rules one by one, and against a slow and obvious authorizer."""

from __future__ import annotations

import random
from collections.abc import Iterable

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools.suite.tiers import examples, small_and_full
from kwire.security.acls import standard_authorizer
from kwire.security.acls.acl import ALL, Acl, PatternType, Permission
from kwire.security.acls.filters import AclFilter
from kwire.security.acls.index import canonical_host
from kwire.security.acls.standard_authorizer import Rule, StandardAuthorizer
from kwire.security.authorizer import SUPPORTED, Operation, ResourceType
from kwire.security.principal import Principal, Requester, parse_principals

ALLOW, DENY = Permission.ALLOW, Permission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
ALICE = Requester(Principal("User", "alice"), "10.0.0.1")
BOB = Requester(Principal("User", "bob"), "10.0.0.2")
ADMIN = Requester(Principal("User", "admin"), "10.0.0.3")


def acl(
    permission: Permission = ALLOW,
    operation: int = READ,
    name: str = "t",
    pattern: PatternType = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    resource_type: ResourceType = TOPIC,
) -> Acl:
    return Acl(resource_type, name, pattern, principal, host, operation, permission)


def authorizer(*acls: Acl, allows_if_no_acl: bool = False) -> StandardAuthorizer:
    made = StandardAuthorizer(frozenset({"User:admin"}), allows_if_no_acl)
    made.change(acls, ())
    return made


def test_nobody_but_a_super_user_may_do_anything_without_acls() -> None:
    it = authorizer()
    assert not it.allows(ALICE, READ, TOPIC, "t")
    assert not it.allows_any(ALICE, READ, TOPIC)
    assert it.allows(ADMIN, READ, TOPIC, "t")
    assert it.allows_any(ADMIN, READ, TOPIC)


def test_everybody_may_do_everything_to_what_has_no_acls_if_that_is_configured() -> None:
    it = authorizer(acl(name="t"), allows_if_no_acl=True)
    assert it.allows(BOB, WRITE, TOPIC, "other")
    assert not it.allows(BOB, WRITE, TOPIC, "t"), "there is an ACL, if not for him"
    assert it.allows(BOB, WRITE, GROUP, "t"), "that ACL is of a topic"


@pytest.mark.parametrize("name", ["t", "tt", "*"])
def test_a_wildcard_is_of_every_name(name: str) -> None:
    it = authorizer(acl(name="*"))
    assert it.allows(ALICE, READ, TOPIC, name)
    assert not it.allows(ALICE, READ, GROUP, name)


def test_a_prefix_is_of_the_names_that_begin_with_it() -> None:
    it = authorizer(acl(name="orders-", pattern=PREFIXED))
    assert it.allows(ALICE, READ, TOPIC, "orders-")
    assert it.allows(ALICE, READ, TOPIC, "orders-eu")
    assert not it.allows(ALICE, READ, TOPIC, "orders")
    assert not it.allows(ALICE, READ, TOPIC, "an-orders-")


def test_a_prefix_of_one_asterisk_is_no_wildcard() -> None:
    it = authorizer(acl(name="*", pattern=PREFIXED))
    assert not it.allows(ALICE, READ, TOPIC, "t")
    assert it.allows(ALICE, READ, TOPIC, "*t")


@pytest.mark.parametrize(
    "deny",
    [
        acl(DENY),
        acl(DENY, ALL),
        acl(DENY, name="*"),
        acl(DENY, pattern=PREFIXED),
        acl(DENY, principal="User:*"),
        acl(DENY, host="10.0.0.1"),
    ],
)
@pytest.mark.parametrize("allow", [acl(), acl(operation=ALL), acl(name="*"), acl(principal="User:*")])
def test_a_denial_is_stronger_than_a_permission(deny: Acl, allow: Acl) -> None:
    it = authorizer(allow, deny)
    assert not it.allows(ALICE, READ, TOPIC, "t")
    assert it.explain(ALICE, READ, TOPIC, "t").acl == deny
    assert it.allows(ADMIN, READ, TOPIC, "t"), "nothing is denied to super users"


def test_who_may_change_or_read_something_may_describe_it() -> None:
    for operation in Operation:
        it = authorizer(acl(operation=operation))
        implied = {each for each in Operation if it.allows(ALICE, each, TOPIC, "t")} - {operation}
        if operation in (READ, WRITE, Operation.DELETE, Operation.ALTER):
            assert implied == {DESCRIBE}
        elif operation is Operation.ALTER_CONFIGS:
            assert implied == {Operation.DESCRIBE_CONFIGS}
        else:
            assert implied == set()


def test_who_is_denied_something_is_not_denied_what_it_would_imply() -> None:
    it = authorizer(acl(DENY, READ), acl(ALLOW, WRITE))
    assert not it.allows(ALICE, READ, TOPIC, "t")
    assert it.allows(ALICE, DESCRIBE, TOPIC, "t")


def test_an_acl_is_for_a_host() -> None:
    it = authorizer(acl(host="10.0.0.1"), acl(host="10.0.0.2", principal="User:*"))
    assert it.allows(ALICE, READ, TOPIC, "t")
    assert it.allows(Requester(ALICE.principal, "10.0.0.2"), READ, TOPIC, "t")
    assert not it.allows(Requester(ALICE.principal, "10.0.0.3"), READ, TOPIC, "t")
    assert it.allows(BOB, READ, TOPIC, "t")


@pytest.mark.parametrize("host", ["0:0:0:0:0:0:0:1", "::1"])
def test_an_address_may_be_spelled_as_java_does_or_as_people_do(host: str) -> None:
    it = authorizer(acl(host=host))
    assert it.allows(Requester(ALICE.principal, "::1"), READ, TOPIC, "t")
    assert not it.allows(Requester(ALICE.principal, "::2"), READ, TOPIC, "t")


@pytest.mark.parametrize("hosts", [("::1", "0:0:0:0:0:0:0:1"), ("0:0:0:0:0:0:0:1", "::1")])
def test_a_denial_stays_when_one_with_another_spelling_of_its_address_goes(hosts: tuple[str, str]) -> None:
    one, other = (acl(DENY, host=host) for host in hosts)
    it = authorizer(acl(name="*"), one, other)
    question = (Requester(ALICE.principal, "::1"), READ, TOPIC, "t")
    it.change((), [one])
    assert not it.allows(*question)
    assert it.explain(*question).acl == other
    it.change((), [other])
    assert it.allows(*question)


def test_hosts_have_one_spelling() -> None:
    assert canonical_host("::ffff:10.0.0.1") == "10.0.0.1"
    assert canonical_host("FE80:0:0:0:0:0:0:1%eth0") == "fe80::1%eth0"
    assert canonical_host("no:address") == "no:address"
    assert canonical_host("localhost") == "localhost"


def test_an_acl_is_for_a_principal_of_its_type() -> None:
    it = authorizer(acl(principal="Group:alice"))
    assert not it.allows(ALICE, READ, TOPIC, "t")
    assert it.allows(Requester(Principal("Group", "alice"), "h"), READ, TOPIC, "t")
    assert not authorizer(acl(principal="Group:*")).allows(Requester(Principal("Group", "a"), "h"), READ, TOPIC, "t")


def test_a_token_gives_the_permissions_of_its_owner() -> None:
    by_token = Requester(Principal("User", "alice", token_authenticated=True), "10.0.0.1")
    assert authorizer(acl()).allows(by_token, READ, TOPIC, "t")


def test_an_answer_changes_with_the_acls() -> None:
    it = authorizer()
    for _ in range(2):
        assert not it.allows(ALICE, READ, TOPIC, "t")
        it.change([acl()], ())
        assert it.allows(ALICE, READ, TOPIC, "t")
        assert it.allows_any(ALICE, READ, TOPIC)
        it.change((), [acl()])
        assert not it.allows_any(ALICE, READ, TOPIC)
    assert len(it) == 0


def test_an_acl_that_is_there_twice_goes_with_the_second_one() -> None:
    it = authorizer(acl(), acl())
    it.change((), [acl()])
    assert it.allows(ALICE, READ, TOPIC, "t")
    it.change((), [acl()])
    assert not it.allows(ALICE, READ, TOPIC, "t")
    with pytest.raises(KeyError):
        it.change((), [acl()])


def test_granted_topics_are_forgotten_by_those_who_hold_them_too() -> None:
    it = authorizer(acl())
    held = it.granted(ALICE, READ)
    it.grant(ALICE, READ, "t")
    assert held == {"t"}
    assert it.granted(ALICE, READ) is held
    assert it.granted(ALICE, WRITE) == it.granted(BOB, READ) == set()
    it.change((), [acl()])
    assert held == set()
    it.grant(ALICE, READ, "late")
    assert held == set(), "a request that waited would not notice the next change"


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standard_authorizer, "MAX_REMEMBERED", 50)
    it = authorizer(acl(name="*", principal="User:*"))
    for number in range(200):
        requester = Requester(Principal("User", f"u{number}"), "h")
        assert it.allows(requester, READ, TOPIC, f"t{number}")
        it.grant(requester, READ, f"t{number}")
        memories = it._memories.values()
        assert len(memories) <= 50
        assert sum(len(each.decisions) + sum(map(len, each.granted.values())) for each in memories) <= 50
    assert it.allows(ALICE, READ, GROUP, "g" * 1000) is False
    assert all(len(name or "") < 1000 for each in it._memories.values() for _, _, name in each.decisions)


def test_it_explains_its_decisions() -> None:
    it = authorizer(acl(), acl(DENY, WRITE, principal="User:*", pattern=PREFIXED))
    assert str(it.explain(ALICE, READ, TOPIC, "t")) == "allowed: ALLOW READ on TOPIC t (LITERAL) to User:alice from *"
    assert str(it.explain(ALICE, WRITE, TOPIC, "t")) == "denied: DENY WRITE on TOPIC t (PREFIXED) to User:* from *"
    assert it.explain(ADMIN, READ, TOPIC, "t").rule is Rule.SUPER_USER
    assert it.explain(BOB, READ, TOPIC, "t").rule is Rule.NO_MATCH
    nothing = it.explain(BOB, READ, GROUP, "t")
    assert (nothing.rule, nothing.allowed) == (Rule.NO_ACL, False)
    assert str(nothing) == "denied: the resource has no ACL"


def test_some_topic_is_allowed_if_a_pattern_is_that_no_denial_covers() -> None:
    any_topic = [
        ([acl(name="a")], True),
        ([acl(name="a"), acl(DENY, name="a")], False),
        ([acl(name="abc"), acl(DENY, name="ab", pattern=PREFIXED)], False),
        ([acl(name="abc"), acl(DENY, name="abcd", pattern=PREFIXED)], True),
        ([acl(name="abc", pattern=PREFIXED), acl(DENY, name="abc")], True),
        ([acl(name="abc", pattern=PREFIXED), acl(DENY, name="abc", pattern=PREFIXED)], False),
        ([acl(name="abc", pattern=PREFIXED), acl(DENY, name="*")], False),
        ([acl(name="*"), acl(DENY, name="a", pattern=PREFIXED)], True),
        ([acl(name="*"), acl(DENY, name="*", pattern=PREFIXED), acl(DENY, name="hardcode")], True),
        ([acl(name="a"), acl(DENY, WRITE, name="*")], True),
        ([acl(name="a", operation=ALL)], True),
        ([acl(name="a", host="10.0.0.9")], False),
        ([acl(name="a", principal="User:bob")], False),
    ]
    for acls, expected in any_topic:
        assert authorizer(*acls).allows_any(ALICE, READ, TOPIC) is expected, acls


def test_what_is_implied_does_not_count_when_any_topic_will_do() -> None:
    it = authorizer(acl(operation=WRITE, name="a"))
    assert not it.allows_any(ALICE, DESCRIBE, TOPIC)
    assert authorizer(acl(operation=WRITE, name="*")).allows_any(ALICE, DESCRIBE, TOPIC), "for it holds for every name"


def test_super_users_are_separated_by_semicolons() -> None:
    assert parse_principals(" User:a;; User:CN=b,O=c ;") == {"User:a", "User:CN=b,O=c"}
    assert parse_principals("") == frozenset()
    with pytest.raises(ValueError, match="expected a string in format principalType:principalName but got alice"):
        parse_principals("User:a;alice")


# -- against a slow and obvious authorizer

NAMES = ["a", "ab", "abc", "b", "ba", "*"]
HOSTS = ["h1", "h2"]
PRINCIPALS = [Principal("User", "p"), Principal("User", "q"), Principal("Group", "p")]
OPERATIONS = [READ, WRITE, DESCRIBE, Operation.DELETE, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS]

acls = st.builds(
    Acl,
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from(NAMES),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(["User:p", "User:q", "Group:p", "User:*"]),
    st.sampled_from([*HOSTS, "*"]),
    st.sampled_from([ALL, *OPERATIONS]),
    st.sampled_from([ALLOW, ALLOW, DENY]),
)
requesters = st.builds(Requester, st.sampled_from(PRINCIPALS), st.sampled_from(HOSTS))


class Obvious:
    """An authorizer that looks at every ACL for every question."""

    def __init__(self, acls: Iterable[Acl], super_users: Iterable[str], *, allows_if_no_acl: bool) -> None:
        self.acls = list(acls)
        self.super_users = set(super_users)
        self.allows_if_no_acl = allows_if_no_acl

    def allows(self, who: Requester, operation: Operation, kind: ResourceType, name: str) -> bool:
        if str(who.principal) in self.super_users:
            return True
        concerning = [
            it
            for it in self.acls
            if it.resource_type == kind
            and (
                (name.startswith(it.resource_name)) if it.pattern_type == PREFIXED else it.resource_name in (name, "*")
            )
        ]
        if not concerning:
            return self.allows_if_no_acl
        mine = [it for it in concerning if self._is_for(it, who)]
        if any(it.permission == DENY and it.operation in (ALL, operation) for it in mine):
            return False
        enough = {ALL, operation}
        if operation is DESCRIBE:
            enough |= {READ, WRITE, Operation.DELETE, Operation.ALTER}
        if operation is Operation.DESCRIBE_CONFIGS:
            enough |= {Operation.ALTER_CONFIGS}
        return any(it.permission == ALLOW and it.operation in enough for it in mine)

    def allows_any(self, who: Requester, operation: Operation, kind: ResourceType) -> bool:
        """Follows Kafka's Authorizer.authorizeByResourceType, step by step."""
        if self.allows(who, operation, kind, "hardcode"):
            return True
        mine = [
            it
            for it in self.acls
            if it.resource_type == kind and self._is_for(it, who) and it.operation in (ALL, operation)
        ]
        denied = {(it.pattern_type, it.resource_name) for it in mine if it.permission == DENY}
        allowed = {(it.pattern_type, it.resource_name) for it in mine if it.permission == ALLOW}
        if (LITERAL, "*") in denied:
            return False
        if (LITERAL, "*") in allowed:
            return True
        for pattern, name in allowed:
            if pattern == LITERAL and (LITERAL, name) in denied:
                continue
            if not any((PREFIXED, name[: length + 1]) in denied for length in range(len(name))):
                return True
        return False

    @staticmethod
    def _is_for(it: Acl, who: Requester) -> bool:
        return it.principal in (str(who.principal), "User:*") and it.host in (who.host, "*")


def check_all(it: StandardAuthorizer, obvious: Obvious, requests: Iterable[tuple[Requester, Operation]]) -> None:
    for who, operation in requests:
        for kind in (TOPIC, GROUP):
            for name in [*NAMES, "abcd", "c"]:
                expected = obvious.allows(who, operation, kind, name)
                question = (who, operation, kind, name)
                verdict = it.explain(*question)
                assert it.allows(*question) == it.allows(*question) == verdict.allowed == expected, question
                if verdict.acl is not None:
                    assert (verdict.acl.permission == ALLOW) is expected
                    assert verdict.acl in obvious.acls
            assert it.allows_any(who, operation, kind) == obvious.allows_any(who, operation, kind), (who, operation)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(acls, max_size=12),
    st.data(),
    st.booleans(),
    st.lists(st.tuples(requesters, st.sampled_from(OPERATIONS)), min_size=1, max_size=3),
)
def test_it_decides_as_a_slow_and_obvious_one(
    some: list[Acl], data: st.DataObject, allows_if_no_acl: bool, requests: list[tuple[Requester, Operation]]
) -> None:
    supers = data.draw(st.sampled_from([(), ("User:q",)]))
    it = StandardAuthorizer(frozenset(supers), allows_if_no_acl)
    it.change(some, ())
    check_all(it, Obvious(some, supers, allows_if_no_acl=allows_if_no_acl), requests)
    gone = data.draw(st.lists(st.sampled_from(sorted(some, key=str)), unique_by=id)) if some else []
    left = list(some)
    for each in gone:
        left.remove(each)
    it.change((), gone)
    check_all(it, Obvious(left, supers, allows_if_no_acl=allows_if_no_acl), requests)


@small_and_full
def test_it_decides_as_a_slow_and_obvious_one_with_many_acls_that_come_and_go(*, full: bool) -> None:
    rng = random.Random(20)
    questions = 100_000 if full else 2_000
    it = StandardAuthorizer(frozenset({"User:q"}))
    present: list[Acl] = []

    def some_name() -> str:
        return "".join(rng.choices("ab", k=rng.randint(1, 6)))

    for number in range(questions):
        if number % 20 == 0:
            new = Acl(
                rng.choice([TOPIC, GROUP]),
                rng.choice([some_name(), some_name(), "*"]),
                rng.choice([LITERAL, PREFIXED]),
                rng.choice(["User:p", "User:p", "Group:p", "User:*"]),
                rng.choice([*HOSTS, "*"]),
                rng.choice([ALL, *OPERATIONS]),
                rng.choice([ALLOW, ALLOW, DENY]),
            )
            present.append(new)
            it.change([new], ())
            if len(present) > 60:
                gone = present.pop(rng.randrange(len(present)))
                it.change((), [gone])
        obvious = Obvious(present, {"User:q"}, allows_if_no_acl=False)
        who = Requester(rng.choice(PRINCIPALS), rng.choice(HOSTS))
        operation, kind, name = rng.choice(OPERATIONS), rng.choice([TOPIC, GROUP]), some_name()
        assert it.allows(who, operation, kind, name) == obvious.allows(who, operation, kind, name)
        if number % 10 == 0:
            assert it.allows_any(who, operation, kind) == obvious.allows_any(who, operation, kind)


def test_emptied_it_keeps_nothing() -> None:
    it = authorizer()
    some = [acl(name=name, pattern=pattern) for name in NAMES for pattern in (LITERAL, PREFIXED)]
    it.change(some, ())
    it.change((), some)
    index = it._acls
    assert (index._counts, index._patterns, index._kinds) == ({}, {}, {})
    assert not any(index._lengths.values())


# -- filters


def test_a_filter_of_everything_matches_everything() -> None:
    assert all(AclFilter().matches(acl(name=name)) for name in NAMES)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (1, {("ab", LITERAL), ("ab", PREFIXED)}),
        (PatternType.MATCH, {("ab", LITERAL), ("ab", PREFIXED), ("a", PREFIXED), ("*", LITERAL)}),
        (LITERAL, {("ab", LITERAL)}),
        (PREFIXED, {("ab", PREFIXED)}),
    ],
)
def test_a_filter_names_resources_by_its_type_of_pattern(pattern: int, expected: set[tuple[str, int]]) -> None:
    some = [acl(name=name, pattern=each) for name in NAMES for each in (LITERAL, PREFIXED)]
    found = {(it.resource_name, it.pattern_type) for it in some if AclFilter(TOPIC, "ab", pattern).matches(it)}
    assert found == expected


@pytest.mark.parametrize(
    "unlike",
    [
        AclFilter(resource_type=GROUP),
        AclFilter(name="other"),
        AclFilter(pattern_type=PREFIXED),
        AclFilter(principal="User:bob"),
        AclFilter(host="h"),
        AclFilter(operation=WRITE),
        AclFilter(operation=ALL),
        AclFilter(permission=DENY),
    ],
)
def test_a_filter_matches_what_is_like_it_in_everything(unlike: AclFilter) -> None:
    assert not unlike.matches(acl())
    assert AclFilter(TOPIC, "t", LITERAL, "User:alice", "*", READ, ALLOW).matches(acl())


def test_a_filter_with_a_number_that_means_nothing_is_known_as_such() -> None:
    assert not AclFilter().has_unknown_pattern
    assert not AclFilter(pattern_type=PatternType.MATCH).has_unknown_pattern
    assert AclFilter(resource_type=99).has_unknown_pattern
    assert AclFilter(pattern_type=99).has_unknown_pattern
    assert AclFilter(operation=99).has_unknown_entry
    assert AclFilter(permission=99).has_unknown_entry


def test_an_acl_with_numbers_that_mean_nothing_can_be_shown() -> None:
    shown = str(attrs.evolve(acl(), operation=99, resource_type=98))
    assert shown == "ALLOW UNKNOWN on UNKNOWN t (LITERAL) to User:alice from *"


def test_every_type_of_resource_has_its_operations() -> None:
    assert set(SUPPORTED) == set(ResourceType)
