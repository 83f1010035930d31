"""The files that a job is given: read, or refused in one line that names them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.files import read_avro_schemas, read_options, read_schema_file

RECORD = json.dumps({"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]})

Write = Callable[[str, str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def file(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return file


def test_yaml_and_toml_give_the_same_options(write: Write) -> None:
    yaml = write("o.yaml", "topics: [orders]\npartition-by: [value.id]\nonce: true\nconf: {a.b: 1}\nschema:\n")
    toml = write("o.toml", 'topics = ["orders"]\npartition-by = ["value.id"]\nonce = true\nconf = {"a.b" = 1}\n')
    wanted = {"topics": ["orders"], "partition_by": ["value.id"], "once": True, "conf": {"a.b": 1}}
    assert read_options(yaml) == wanted
    assert read_options(toml) == wanted


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("o.yaml", "topics: [orders", "is not well-formed"),
        ("o.yaml", "{a: b: c}", "is not well-formed"),
        ("o.yaml", "!!python/object/apply:os.system [ls]", "is not well-formed"),
        ("o.yaml", "- a\n- b\n", "holds no options"),
        ("o.yaml", "", "holds no options"),
        ("o.yaml", "just words", "holds no options"),
        ("o.yaml", b"\xff\xfe\x00", "cannot be read"),
        ("o.toml", "topics = [", "is not well-formed"),
        ("o.toml", b"\xff\xfe", "cannot be read"),
        ("missing.yaml", None, "cannot be read: No such file or directory"),
        ("", None, "cannot be read: Is a directory"),
    ],
)
def test_options_that_cannot_be_read_are_one_line(
    tmp_path: Path, write: Write, name: str, content: str | bytes | None, message: str
) -> None:
    path = tmp_path / name if content is None else write(name, content)
    with pytest.raises(PipelineError) as caught:
        read_options(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_schema_file_is_read_as_it_is_or_refused(tmp_path: Path, write: Write) -> None:
    assert read_schema_file(write("s.ddl", "id BIGINT")) == "id BIGINT"
    for path, message in (
        (tmp_path / "missing", "No such file"),
        (tmp_path, "Is a directory"),
        (write("x", b"\xff"), "utf-8"),
    ):
        with pytest.raises(PipelineError, match=message):
            read_schema_file(path)


def test_plain_avro_has_one_schema(write: Write) -> None:
    found = read_avro_schemas(write("a.avsc", RECORD), "avro")
    assert (found.reader, found.by_id) == (RECORD, {})


def test_confluents_avro_has_a_folder_of_them_and_the_newest_makes_the_table(tmp_path: Path, write: Write) -> None:
    newer = RECORD.replace("id", "key")
    write("s/9.avsc", RECORD)
    write("s/10.avsc", newer)
    write("s/notes.avsc", "no schema at all")
    write("s/11.txt", "nor this")
    found = read_avro_schemas(tmp_path / "s", "confluent-avro")
    assert found.reader == newer
    assert dict(found.by_id) == {9: RECORD, 10: newer}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        (b"\xff", "is not JSON"),
        ('"long"', "is no Avro record"),
        ("[1]", "is no Avro record"),
        ('{"type": "enum"}', "is no Avro record"),
        ('{"type": ["record"]}', "is no Avro record"),
    ],
)
@pytest.mark.parametrize("confluent", [True, False])
def test_an_avro_schema_that_is_none_is_one_line(
    tmp_path: Path, write: Write, content: str | bytes, message: str, confluent: bool
) -> None:
    path = write("s/7.avsc", content)
    with pytest.raises(PipelineError) as caught:
        read_avro_schemas(path.parent if confluent else path, "confluent-avro" if confluent else "avro")
    assert message in str(caught.value)
    assert "7.avsc" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_and_a_file_are_not_taken_for_each_other(tmp_path: Path, write: Write) -> None:
    with pytest.raises(PipelineError, match="Is a directory"):
        read_avro_schemas(tmp_path, "avro")
    with pytest.raises(PipelineError, match="No such file"):
        read_avro_schemas(tmp_path / "missing.avsc", "avro")
    with pytest.raises(PipelineError, match="is no folder"):
        read_avro_schemas(write("7.avsc", RECORD), "confluent-avro")
    (tmp_path / "empty").mkdir()
    with pytest.raises(PipelineError, match="no schema found in"):
        read_avro_schemas(tmp_path / "empty", "confluent-avro")
