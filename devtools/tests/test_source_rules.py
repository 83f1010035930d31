"""The tree keeps the rules of `devtools.source_rules`, and each rule finds its violations."""

from __future__ import annotations

import ast

import pytest

from devtools import source_rules

pytestmark = pytest.mark.more
"""`make check` runs them."""


def listed(found: list[source_rules.Violation]) -> str:
    return "\n".join(map(str, found))


def test_time_chance_and_the_outside_come_in_as_arguments() -> None:
    found = source_rules.outside_violations()
    assert not found, listed(found)


def test_every_allowance_is_used() -> None:
    assert source_rules.unused_allowances() == []


def test_only_the_connection_boundary_catches_everything() -> None:
    found = source_rules.catch_all_violations()
    assert not found, listed(found)


def test_tests_import_nothing_from_tests() -> None:
    found = source_rules.violations_of_test_imports()
    assert not found, listed(found)


@pytest.mark.parametrize(
    "source",
    [
        "from a.tests.test_b import c\n",
        "from a import tests\n",
        "import compat_tests.b\n",
        "from spark_tests.conftest import B\n",
        "from . import b\n",
        "from ..b import c\n",
    ],
)
def test_an_import_from_tests_is_seen(source: str) -> None:
    assert [line for line, _ in source_rules.imports_of_tests(ast.parse(source), "a/tests/b/test_c.py")] == [1]


@pytest.mark.parametrize("source", ["from testkit.raw import b\n", "from a.contests import b\n", "from ... import b\n"])
def test_an_import_from_elsewhere_is_left_alone(source: str) -> None:
    assert list(source_rules.imports_of_tests(ast.parse(source), "a/tests/b/test_c.py")) == []


def test_no_file_names_a_machine_or_a_registry() -> None:
    found = source_rules.tie_violations()
    assert not found, listed(found)


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("import time\n", "clock"),
        ("from time import monotonic\n", "clock"),
        ("import datetime\nx = datetime.datetime.now()\n", "clock"),
        ("from datetime import datetime as d\nx = d.now()\n", "clock"),
        ("import random\n", "chance"),
        ("def f():\n    from secrets import token_bytes\n", "chance"),
        ("import uuid\nx = uuid.uuid4()\n", "chance"),
        ("from uuid import uuid4\n", "chance"),
        ("import os\nx = os.urandom(4)\n", "system"),
        ("import os.path\nx = os.path.exists('f')\n", "system"),
        ("from os import rename\n", "system"),
        ("x = open('f')\n", "disk"),
        ("from pathlib import Path\n", "disk"),
        ("import shutil as s\n", "disk"),
        ("import socket\n", "network"),
        ("import urllib.request\n", "network"),
        ("from threading import Thread\n", "threads"),
    ],
)
def test_access_to_the_outside_is_seen(source: str, kind: str) -> None:
    assert [seen for _, seen, _ in source_rules.touches(ast.parse(source))] == [kind]


@pytest.mark.parametrize(
    "source",
    [
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import socket\n",
        "import os\nx = os.strerror(28)\n",
        "import uuid\nx = uuid.UUID(int=0)\n",
        "import datetime\nx = datetime.timedelta(days=1)\n",
        "log.open('f')\n",
        "disk.time()\n",
        "from urllib.parse import urlsplit\n",
        "from .time import x\n",
    ],
)
def test_what_only_resembles_the_outside_is_left_alone(source: str) -> None:
    assert list(source_rules.touches(ast.parse(source))) == []


@pytest.mark.parametrize("clause", ["except:", "except Exception:", "except (ValueError, BaseException) as error:"])
def test_a_catch_all_is_seen_unless_it_raises_again(clause: str) -> None:
    swallowing = f"try:\n    f()\n{clause}\n    g()\n"
    assert list(source_rules.catch_alls(ast.parse(swallowing))) == [3]
    assert list(source_rules.catch_alls(ast.parse(swallowing + "    raise\n"))) == []


@pytest.mark.parametrize(
    "text", ["/ho" + "me/jane/kafka", "see '/wo" + "rk/main'", "files.python" + "hosted.org", "py" + "pi.org"]
)
def test_a_tie_to_a_machine_or_a_registry_is_seen(text: str) -> None:
    assert [number for number, _ in source_rules.ties(f"first\n{text}\n")] == [2]


@pytest.mark.parametrize("text", ["log.dirs=/tmp/kafka-logs", "/path/to/python", "#!/usr/bin/env bash", "docs/work/x"])
def test_a_path_that_is_no_machines_own_is_left_alone(text: str) -> None:
    assert list(source_rules.ties(text)) == []
