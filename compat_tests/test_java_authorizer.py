"""Our authorizer beside Kafka's own class, with the same ACLs."""

from __future__ import annotations

import random
from collections.abc import Iterator

import attrs

from devtools.suite.tiers import small_and_full
from kwire.security.acls.acl import ALL, Acl, PatternType, Permission
from kwire.security.acls.standard_authorizer import StandardAuthorizer
from kwire.security.authorizer import Operation, ResourceType
from kwire.security.principal import Principal, Requester, parse_principals
from testkit.java.java_host import JavaHost

ORACLE = "AuthorizerOracle"
SMALL, FULL = 20, 600
QUESTIONS = 350
"""The number of questions to each authorizer."""

TYPES = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
PRINCIPALS = (Principal("User", "p"), Principal("User", "p"), Principal("User", "q"), Principal("Group", "p"))
HOSTS = ("10.0.0.1", "10.0.0.2", "::1")


@attrs.define
class World:
    """An authorizer, some questions to it, and what it answers."""

    rng: random.Random
    lines: list[str] = attrs.field(factory=list)
    """The authorizer, its ACLs and the questions, as the oracle reads them."""
    answers: list[bool] = attrs.field(factory=list)

    def fill(self) -> None:
        rng = self.rng
        super_users, allows = rng.choice(["", "User:q"]), rng.random() < 0.3
        self._add_line("authorizer", super_users, str(allows).lower())
        operations = rng.sample(list(Operation), 4)
        authorizer = StandardAuthorizer(parse_principals(super_users), allows)
        acls = {self._acl([ALL, *operations]) for _ in range(rng.randint(0, 40))}
        authorizer.change(acls, ())
        for it in acls:
            self._add_line("acl", *attrs.astuple(it))
        operations += [Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS]
        for _ in range(QUESTIONS):
            who = Requester(rng.choice(PRINCIPALS), rng.choice(HOSTS))
            operation, resource_type = rng.choice(operations), rng.choice(TYPES)
            fields = (who.principal.type, who.principal.name, who.host, operation, resource_type)
            if rng.random() < 0.15:
                self._add_line("asks", *fields)
                self.answers.append(authorizer.allows_any(who, operation, resource_type))
            else:
                name = self._name()
                self._add_line("asks", *fields, name)
                self.answers.append(authorizer.allows(who, operation, resource_type, name))

    def _add_line(self, *fields: str | int) -> None:
        self.lines.append("\t".join(it if isinstance(it, str) else str(int(it)) for it in fields))

    def _name(self) -> str:
        if self.rng.random() < 0.1:
            return "*"
        return "".join(self.rng.choices("ab-", k=self.rng.randint(1, 5)))

    def _acl(self, operations: list[int]) -> Acl:
        rng = self.rng
        return Acl(
            rng.choice(TYPES),
            self._name(),
            rng.choice([PatternType.LITERAL, PatternType.PREFIXED]),
            rng.choice(["User:p", "User:p", "User:q", "Group:p", "User:*", "Group:*"]),
            rng.choice(["*", "*", "10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1"]),
            rng.choice(operations),
            rng.choice([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
        )


def worlds(count: int) -> Iterator[World]:
    for seed in range(count):
        world = World(random.Random(seed))
        world.fill()
        yield world


@small_and_full
def test_kafkas_authorizer_answers_the_same(java: JavaHost, *, full: bool) -> None:
    made = list(worlds(FULL if full else SMALL))
    kafkas_answers = iter(
        java.succeed(ORACLE, stdin="".join(f"{line}\n" for it in made for line in it.lines)).out.splitlines()
    )
    for seed, world in enumerate(made):
        questions = [line for line in world.lines if line.startswith("asks")]
        for question, allowed in zip(questions, world.answers, strict=True):
            assert next(kafkas_answers) == ("ALLOWED" if allowed else "DENIED"), f"seed {seed}: {question}"
    assert next(kafkas_answers, None) is None
