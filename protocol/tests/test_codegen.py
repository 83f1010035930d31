"""The generated code is fresh, and `--check` notices when it is not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from codegen import __main__ as generator
from codegen import import_schemas, schema
from codegen.layout import Branch, Sizes, condition, merge, render, split
from codegen.schema import Versions, snake_case
from kwire_protocol.errors import RETRIABLE, ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages import APIS

WHOLE = Versions(0, 9)


def test_generated_modules_are_fresh() -> None:
    assert generator.main(["--check"]) == 0


def test_check_notices_a_changed_a_missing_and_a_stray_module(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "package"
    for folder in ("messages", "internal"):
        shutil.copytree(generator.PACKAGE / folder, package / folder)
    (package / "messages" / "fetch.py").unlink()
    (package / "messages" / "stray.py").touch()
    (package / "messages" / "produce.py").write_text("changed")
    assert generator.main(["--check"], package) == 1
    assert capsys.readouterr().out.splitlines() == [
        "errors.py is missing",
        "messages/produce.py is stale",
        "messages/fetch.py is missing",
        "messages/stray.py has no schema",
    ]
    assert generator.main([], package) == 0
    assert generator.main(["--check"], package) == 0


def test_schemas_are_the_facts_in_kafkas_jars(tmp_path: Path) -> None:
    import_schemas.import_all(tmp_path)
    ours = {path.relative_to(schema.SCHEMAS): path.read_text() for path in schema.SCHEMAS.rglob("*") if path.is_file()}
    jars = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert ours == jars


def test_importing_the_tables_loads_no_message() -> None:
    program = (
        "import sys, kwire_protocol.wire; assert 'kwire_protocol.messages' not in sys.modules;"
        "import kwire_protocol.messages, kwire_protocol.internal, kwire_protocol.headers;"
        "print([m for m in sys.modules if m.startswith(('kwire_protocol.messages.', 'kwire_protocol.internal.'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_every_entry_of_the_tables_can_be_loaded() -> None:
    from kwire_protocol import internal

    for api in APIS.values():
        assert api.request_class.__name__ == api.request_name
        assert api.response_class.__name__ == api.response_name
        assert api.request_class.versions == api.response_class.versions == api.versions
    tables = [value for name, value in vars(internal).items() if name.isupper()]
    assert sum(map(len, tables)) == 81
    for table in tables:
        for key, record in table.items():
            assert record.record_class.api_key == record.key == key
            assert record.record_class.versions == range(record.min_version, record.max_version + 1)


def test_errors_are_an_answer_with_a_code() -> None:
    error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved")
    assert (error.code, error.message, str(error)) == (6, "moved", "NOT_LEADER_OR_FOLLOWER: moved")
    assert str(KafkaError(ErrorCode.INVALID_CONFIG)) == "INVALID_CONFIG"
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER in RETRIABLE
    assert ErrorCode.INVALID_CONFIG not in RETRIABLE


def test_comments_are_stripped_outside_strings_only() -> None:
    assert import_schemas.strip_comments('{"a": "x//y\\"//z"} // gone') == '{"a": "x//y\\"//z"} '


@pytest.mark.parametrize(
    ("name", "snake"),
    [("TopicId", "topic_id"), ("ISRNodes", "isr_nodes"), ("topicId", "topic_id"), ("KRaftVersion", "k_raft_version")],
)
def test_names_become_snake_case(name: str, snake: str) -> None:
    assert snake_case(name) == snake


@pytest.mark.parametrize(
    ("versions", "text"),
    [
        (Versions(3, 9), "version >= 3"),
        (Versions(0, 3), "version <= 3"),
        (Versions(2, 5), "2 <= version <= 5"),
        (Versions(4, 4), "version == 4"),
        (Versions(9, 9), "version >= 9"),
    ],
)
def test_conditions_have_no_more_than_is_needed(versions: Versions, text: str) -> None:
    assert condition(versions, WHOLE) == text


def test_blocks_that_branch_alike_are_merged() -> None:
    block = split(WHOLE, lambda version: ["new"] if version >= 5 else ["old"])
    assert merge([block, block]) == [[Branch(Versions(5, 9), ("new", "new")), Branch(Versions(0, 4), ("old", "old"))]]


def test_a_version_with_nothing_to_do_has_no_branch() -> None:
    block = split(WHOLE, lambda version: [] if version >= 7 else ["a"] if version >= 5 else ["b"])
    assert render(block, WHOLE) == ["if 5 <= version <= 6:", "    a", "elif version <= 4:", "    b"]


def test_least_sizes_follow_the_version() -> None:
    message = schema.load_message(schema.SCHEMAS / "messages" / "ProduceRequest.json")
    sizes = Sizes(message)
    topic = next(struct for struct in message.structs if struct.name == "TopicProduceData")
    # name int16, partitions int32; the same compact with its tags; topic id instead of the name
    assert [sizes.of_struct(topic, version) for version in (8, 12, 13)] == [6, 3, 18]
