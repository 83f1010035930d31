"""The files that a job is given: its options, and the schemas of its values."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import yaml

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.tables.values import AvroSchemas, ValueFormat


def read_options(path: Path) -> dict[str, object]:
    """A job's options from a YAML or TOML file, under the names of the flags. Raises PipelineError."""
    try:
        text = path.read_text(encoding="utf-8")
        found = tomllib.loads(text) if path.suffix == ".toml" else yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except (tomllib.TOMLDecodeError, yaml.YAMLError) as error:
        raise PipelineError(f"{path} is not well-formed: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict):
        raise PipelineError(f"{path} holds no options: it wants lines such as topics: [orders]")
    # A name without a value, as in `schema:`, is an option that is not given.
    return {str(key).replace("-", "_"): value for key, value in found.items() if value is not None}


def read_schema_file(path: Path) -> str:
    """Reads a schema of JSON values: DDL, or Spark's JSON. Raises PipelineError. Only Spark can check DDL."""
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text) if text.lstrip().startswith("{") else None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PipelineError(f"the schema {path} cannot be read: {reason}") from None
    except ValueError as error:
        raise PipelineError(f"the schema {path} is not JSON: {error}") from None
    if not text.strip() or (found is not None and not found.get("fields")):
        raise PipelineError(f"the schema {path} names no fields: it wants some, such as id BIGINT, name STRING")
    return text


def read_avro_schemas(path: Path, value_format: ValueFormat) -> AvroSchemas:
    """One .avsc file for plain Avro, a folder of ID.avsc files for Confluent's. Raises PipelineError."""
    if value_format == "avro":
        return AvroSchemas(_read_avsc(path))
    if not path.is_dir():
        raise PipelineError(f"{path} is no folder: --value confluent-avro wants one with the schemas as ID.avsc")
    files = {int(file.stem): file for file in path.glob("*.avsc") if file.stem.isascii() and file.stem.isdigit()}
    if not files:
        raise PipelineError(f"no schema found in {path}: the files are named by the schemas' ids, such as 7.avsc")
    by_id = {number: _read_avsc(file) for number, file in sorted(files.items())}
    return AvroSchemas(by_id[max(by_id)], by_id)


def _read_avsc(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
        schema = json.loads(text)
    except OSError as error:
        raise PipelineError(f"the schema {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise PipelineError(f"the schema {path} is not JSON: {error}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise PipelineError(f'the schema {path} is no Avro record: it wants {{"type": "record", ...}}')
    return text
