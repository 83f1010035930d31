"""The table of APIs agrees with the page on what is missing."""

from __future__ import annotations

import re
from importlib import import_module

from kwire_protocol.messages import APIS as KAFKA_APIS

from devtools.places import REPOSITORY
from kwire.handlers.apis import APIS
from kwire.node.broker import Broker

_ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def _named_as_not_served() -> set[str]:
    page = (REPOSITORY / "docs" / "not-yet.md").read_text(encoding="utf-8")
    names = ", ".join(apis for apis, state in _ROW.findall(page) if state.startswith("not served"))
    return set(names.split(", "))


def test_the_page_names_every_client_api_that_is_not_served() -> None:
    offered = {api.name for key, api in KAFKA_APIS.items() if "broker" in api.listeners and key not in APIS}
    assert offered - _named_as_not_served() == set()


def test_the_page_names_no_api_that_is_served() -> None:
    served = {KAFKA_APIS[key].name for key in APIS}
    assert _named_as_not_served() & served == set()


def test_a_handler_names_services_of_the_broker_by_their_names_and_types() -> None:
    attributes = {**Broker.__annotations__}
    for api in APIS.values():
        handle = import_module(f"kwire.handlers.{api.name}").handle
        *services, _, context = handle.__code__.co_varnames[: handle.__code__.co_argcount]
        annotations = handle.__annotations__
        assert {name: annotations[name] for name in services}.items() <= attributes.items(), api.name
        assert annotations[context] == "Context", api.name
