"""docs/json.md has every command with --json, and tests hold each of them to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testkit.cli.every_command import every_command
from testkit.cli.json_page import check_all_keys, check_keys, page

HERE = Path(__file__)
TESTS = HERE.parents[1]
WITH_JSON = {words for words, command in every_command() if any("--json" in it.opts for it in command.params)}
USER = {"user": "alice", "mechanism": "SCRAM-SHA-256", "iterations": 4096}


def test_the_page_has_every_command_with_json() -> None:
    assert page().keys() - {"query on standard error", "jobs of pipeline"} == WITH_JSON


def test_all_keys_of_each_command_are_checked_somewhere() -> None:
    tests = "".join(path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py") if path != HERE)
    for command in page():
        assert f'check_all_keys("{command}"' in tests, command


def test_each_command_with_json_is_shown_once_as_people_see_it() -> None:
    shown = [path.stem for path in TESTS.rglob("snapshots/*.txt")]
    assert sorted(shown) == sorted(words.replace(" ", "-") for words in WITH_JSON)


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ([USER | {"age": 7}], "prints {'age'}"),
        ([USER, {"user": "alice", "mechanism": "SCRAM-SHA-256"}], "does not print {'iterations'}"),
        ([USER | {"type": "user"}], "prints ('user', '')"),
        ([USER | {"groups": [{"name": "g"}]}], "prints {'groups'}"),
    ],
)
def test_an_object_with_other_keys_is_found(objects: list[Any], message: str) -> None:
    with pytest.raises(AssertionError) as found:
        check_keys("user list", objects)
    assert message in str(found.value)


def test_an_object_in_a_list_has_its_keys_too() -> None:
    described = dict.fromkeys(page()["txn describe"]["transaction", ""].always)
    place = {"topic": "orders", "partition": 0}
    check_all_keys("txn describe", [{"type": "transaction", **described, "partitions": [place]}])
    with pytest.raises(AssertionError, match=r"prints \{'offset'\} in \('transaction', 'partitions\[\]\.'\)"):
        check_keys("txn describe", [{"type": "transaction", **described, "partitions": [place, place | {"offset": 1}]}])


def test_a_key_or_a_kind_that_no_object_has_is_found() -> None:
    hanging = dict.fromkeys(page()["txn list"]["hanging", ""].always)
    check_keys("txn list", [{"type": "hanging", **hanging}])
    with pytest.raises(AssertionError):
        check_all_keys("txn list", [{"type": "hanging", **hanging}])
