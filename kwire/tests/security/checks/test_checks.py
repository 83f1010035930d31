"""The finding and breaking of checks. `make soak-checks` shows that breaking any of them turns a test red."""

from __future__ import annotations

import ast

import pytest

from devtools.places import REPOSITORY
from testkit.security.checks.finding import Check, broken, checks_of
from testkit.security.checks.rooms import ROOMS, UNSEEN, Room, all_checks

GUARD = """
class Door:
    def enter(self, name):
        if not name or name == "mallory":
            log(name)
            raise Refused
        if name == "alice":
            return 1
        self._check_hat(name)
        return hmac.compare_digest(name, "bob")
"""
BOUNDS = """
def decide(a, b):
    if not (a and b) or not 1 <= a <= 9:
        raise Refused
    if a > 5 or b:
        return min(a, b, 7)
    if a:
        return a == 3 and b
    raise Refused()
"""
CAUGHT = """
def read(text):
    try:
        return int(text)
    except (ValueError, TypeError) as error:
        raise Refused from error
    except OverflowError:
        return None
"""
HANDLER = """
def handle(authorization, request, context):
    if request.wrong:
        raise Wrong
    authorization.check(context, READ, TOPIC, "t")
    yes, no = authorization.divided(context, READ, request.topics, name_of)
    return authorization.allows(context, READ, GROUP, "g")
"""


def texts(path: str, source: str) -> list[str]:
    return [it.text for it in checks_of(path, source)]


def test_each_condition_of_a_refusal_is_a_check() -> None:
    assert texts("a.py", GUARD)[:2] == ["not name", "name == 'mallory'"]


def test_each_condition_that_has_to_hold_is_a_check_and_so_is_each_bound() -> None:
    assert texts("a.py", BOUNDS)[1:] == ["not a", "not b", "not 1 <= a", "not a <= 9", "min(a)", "min(b)", "min(7)"]


def test_a_refusal_at_the_end_is_a_check() -> None:
    assert texts("a.py", BOUNDS)[0] == "raise Refused()"
    assert texts("a.py", "def f(a):\n    if a:\n        return 1\n    raise AssertionError('a bug')") == []


def test_what_is_named_a_check_is_one_and_so_is_a_comparison_of_digests() -> None:
    assert texts("a.py", GUARD)[2:] == ["self._check_hat(name)", "hmac.compare_digest(name, 'bob')"]


def test_each_error_that_becomes_a_refusal_is_a_check() -> None:
    value_error, type_error = checks_of("a.py", CAUGHT)
    assert (value_error.text, type_error.text) == ("except ValueError", "except TypeError")
    assert "except (TypeError,) as error:" in ast.unparse(broken(value_error, CAUGHT))
    assert "except (ValueError,) as error:" in ast.unparse(broken(type_error, CAUGHT))


def test_where_questions_are_answered_an_error_that_becomes_an_answer_is_a_check() -> None:
    *_, last = checks_of("quotas/a.py", CAUGHT)
    assert last.text == "except OverflowError"
    assert "except ():" in ast.unparse(broken(last, CAUGHT))


def test_in_a_handler_what_calls_the_authorizer_is_a_check() -> None:
    assert texts("kwire/handlers/a.py", HANDLER) == [
        "authorization.check(context, READ, TOPIC, 't')",
        "authorization.divided(context, READ, request.topics, name_of)",
        "authorization.allows(context, READ, GROUP, 'g')",
    ]


def test_where_questions_are_answered_an_early_answer_is_a_check() -> None:
    assert "name == 'alice'" in texts("kwire/security/acls/a.py", GUARD)
    assert texts("kwire/security/acls/a.py", BOUNDS)[5:] == [
        "a > 5",
        "b",
        "min(a)",
        "min(b)",
        "min(7)",
        "a",
        "a == 3",
        "b",
    ]


def test_a_broken_check_is_gone_and_all_else_is_there() -> None:
    first, second, third, fourth = checks_of("a.py", GUARD)
    assert "if False or name == 'mallory'" in ast.unparse(broken(first, GUARD))
    assert "if not name or False" in ast.unparse(broken(second, GUARD))
    assert "_check_hat" not in ast.unparse(broken(third, GUARD))
    assert "return True" in ast.unparse(broken(fourth, GUARD))
    for check in (first, second, third, fourth):
        assert len(checks_of("a.py", ast.unparse(broken(check, GUARD)))) >= 3


def test_a_broken_bound_leaves_the_other_one() -> None:
    changed = {it.text: ast.unparse(broken(it, BOUNDS)) for it in checks_of("quotas/a.py", BOUNDS)}
    assert "if not (True and b)" in changed["not a"]
    assert "or not a <= 9" in changed["not 1 <= a"]
    assert "or not 1 <= a:" in changed["not a <= 9"]
    assert "return min(b, 7)" in changed["min(a)"]
    assert "return True and b" in changed["a == 3"]
    assert changed["raise Refused()"].endswith("pass")
    first, _ = checks_of("a.py", "min(a, b)")
    assert ast.unparse(broken(first, "min(a, b)")) == "b"


def test_handlers_of_logins_refuse_on_their_own() -> None:
    assert texts("kwire/handlers/sasl_handshake.py", HANDLER) == [
        "request.wrong",
        "authorization.check(context, READ, TOPIC, 't')",
    ]


def test_a_selection_in_a_handler_is_made_as_if_everything_were_allowed() -> None:
    _, divided, _ = checks_of("kwire/handlers/a.py", HANDLER)
    assert "granting(authorization.divided, context, READ" in ast.unparse(broken(divided, HANDLER))


def test_the_same_check_twice_in_a_function_has_two_names() -> None:
    source = "def f(a):\n    check(a)\n    check(a)\n"
    first, second = checks_of("a.py", source)
    assert (first.name, second.name) == ("a.py f: check(a)", "a.py f: check(a) (2)")
    assert ast.unparse(broken(second, source)).count("check(a)") == 1


def test_a_check_that_is_not_there_is_reported_as_missing() -> None:
    [check] = checks_of("a.py", "check(a)")
    with pytest.raises(LookupError, match="no such check: a.py"):
        broken(check, "pass")


def test_every_room_has_checks_and_tests() -> None:
    assert {room for room, _ in all_checks()} == set(ROOMS)
    for room in ROOMS:
        assert all((REPOSITORY / it).exists() for it in room.tests)


def test_the_tests_that_are_named_like_the_module_come_first() -> None:
    room = Room("kwire/security/oauth", ("kwire/tests/security/oauth", "kwire/tests/security/test_oauthbearer.py"))
    own = {name: room.own_tests(Check(f"kwire/security/oauth/{name}.py", "f", "a", 0)) for name in ("refresh", "none")}
    assert own == {"refresh": ["kwire/tests/security/oauth/test_key_refresh.py"], "none": []}


def test_a_file_is_in_the_first_room_that_has_it() -> None:
    rooms = {check.path: room.path for room, check in all_checks()}
    assert rooms["kwire/handlers/sasl_handshake.py"] == "kwire/handlers/sasl_handshake.py"
    assert rooms["kwire/handlers/produce.py"] == "kwire/handlers"


def test_what_no_test_sees_is_there() -> None:
    assert UNSEEN.keys() <= {check.name for _, check in all_checks()}
