"""docs/authorization.md has the permissions that each API checks, and the answer if one is denied.

The page is compared with what the handlers do: each request is repeated, with one more of the permissions denied
that it was seen to need, until it needs nothing new.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import attrs
import pytest

from kwire.handlers.apis import APIS
from kwire.node.broker import Broker
from kwire.security.authorizer import SUPPORTED, Operation, ResourceType
from kwire.security.principal import Requester
from testkit.security.permissions import MORE, Permission, page_name, refusals, rows
from testkit.security.requests import FOR_EVERYBODY, REQUESTS, Denier, DoesNotAnswerYet, call, latest, open_broker

MOST_DENIED = 3


@attrs.define
class Withholding(Denier):
    """An authorizer that permits all but some permissions."""

    withheld: frozenset[Permission] = frozenset()

    def allows(self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        self.checked.append((requester, operation, resource_type, name))
        return (operation.name, resource_type.name) not in self.withheld

    def allows_any(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> bool:
        return self.allows(requester, operation, resource_type, "")


def call_without(
    api: str, make: Callable[[Broker], Any], version: int | None, withheld: frozenset[Permission]
) -> tuple[set[Permission], set[str]]:
    """Returns the checks of the authorizer, and the errors for a client without these permissions."""
    answer: Any = None
    with open_broker() as broker:
        request = make(broker)
        broker.authorization.authorizer = authorizer = Withholding(withheld=withheld)
        with suppress(DoesNotAnswerYet):
            answer = call(broker, api, request, version=version)
    return {(it[1].name, it[2].name) for it in authorizer.checked}, refusals(answer)


@pytest.fixture(autouse=True)
def operations_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out supported operations: permissions for these alone are not on the page."""
    for resource_type in SUPPORTED:
        monkeypatch.setitem(SUPPORTED, resource_type, ())


@pytest.mark.parametrize("api", REQUESTS)
def test_the_page_lists_what_is_checked_and_how_it_is_denied(api: str) -> None:
    documented = [it for it in rows() if it.api == page_name(api)]
    errors = {it.permission: it.code for it in documented}
    assert len(errors) == len(documented), "a permission has two rows"
    all_checked: set[Permission] = set()
    refused_with: set[tuple[Permission, str | None]] = set()
    requests = [(make, None) for make in REQUESTS[api]] + MORE.get(api, [])
    for make, version in requests:
        todo: list[frozenset[Permission]] = [frozenset()]
        done: set[frozenset[Permission]] = set()
        while todo:
            withheld = todo.pop()
            done.add(withheld)
            checked, codes = call_without(api, make, version, withheld)
            all_checked |= checked
            lacking = withheld & checked
            assert codes <= {errors.get(it) for it in lacking}, f"refused without {sorted(lacking)}"
            refused_with |= {(it, errors.get(it)) for it in lacking if errors.get(it) in codes}
            if len(withheld) < MOST_DENIED:
                todo += [more for it in checked if (more := withheld | {it}) not in done and more not in todo]
    assert all_checked == errors.keys()
    assert refused_with == {(it, code) for it, code in errors.items() if code is not None}


def test_every_api_is_on_the_page() -> None:
    without_checks = {it.api for it in rows() if it.permission == ("", "")}
    assert {it.api for it in rows()} == {page_name(it.name) for it in APIS.values()}
    assert without_checks <= {page_name(it) for it in FOR_EVERYBODY}
    assert all(latest(it.name) in it.versions for it in APIS.values())
