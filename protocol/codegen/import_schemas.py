"""Makes schemas/ from Kafka's jars: facts only, one compact file per message.

Kafka keeps its message definitions as JSON with // comments inside its jars. What a codec needs of them are facts:
names, types, versions, tags, defaults. The prose stays where it is. The error codes come from Kafka's own `Errors`
enum, printed by DumpErrors.java.

    python -m codegen.import_schemas

The jars are those of requirements/jars.txt: to go to another version of Kafka, change them there and run this again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

from devtools.jars import classpath, compile_java, jars
from devtools.java import java

SCHEMAS = Path(__file__).parent.parent / "schemas"
JAR_SET = "kafka-clients-4.4"
ARTIFACTS = (
    "kafka-clients",
    "kafka-metadata",
    "kafka-group-coordinator",
    "kafka-transaction-coordinator",
    "kafka-share-coordinator",
    "kafka-storage",
    "kafka-raft",
)
MESSAGE_KEYS = ("name", "type", "apiKey", "validVersions", "flexibleVersions", "listeners", "latestVersionUnstable")
FIELD_KEYS = (
    "name",
    "type",
    "versions",
    "nullableVersions",
    "tag",
    "taggedVersions",
    "default",
    "ignorable",
    "mapKey",
    "entityType",
    "zeroCopy",
)

# The module of kwire_protocol.internal (and folder of schemas/internal) that each record belongs to.
INTERNAL_MODULES: tuple[tuple[str, str], ...] = (
    (r"(Legacy)?OffsetCommit(Key|Value)|GroupMetadata(Key|Value)", "consumer_offsets"),
    (r"ConsumerGroup\w+(Key|Value)", "consumer_group"),
    (r"ShareGroup\w+(Key|Value)", "share_group"),
    (r"StreamsGroup\w+(Key|Value)", "streams_group"),
    (r"TransactionLog(Key|Value)", "transaction_state"),
    (r"Share(Snapshot|Update)(Key|Value)", "share_group_state"),
    (r"(Topic|RemoveTopic|Partition|PartitionChange|ClearElr)Record", "metadata_topics"),
    (
        r"(Unr|R)egister(Broker|Controller)Record|(Unf|F)enceBrokerRecord|BrokerRegistrationChangeRecord",
        "metadata_brokers",
    ),
    (r"(Config|ClientQuota|FeatureLevel|ProducerIds)Record", "metadata_configs"),
    (r"(Remove)?(AccessControlEntry|DelegationToken|UserScramCredential)Record", "metadata_security"),
    (r"(NoOp|BeginTransaction|EndTransaction|AbortTransaction|ZkMigrationState)Record", "metadata_log"),
    (
        r"ControlRecordTypeSchema|EndTxnMarker|LeaderChangeMessage|Snapshot(Header|Footer)Record|KRaftVersionRecord|VotersRecord",
        "control_records",
    ),
    (r"ConsumerProtocol(Subscription|Assignment)", "consumer_protocol"),
    (r"Remote\w+Record", "remote_log_metadata"),
    (r"ProducerSnapshot", "producer_snapshot"),
    (r"AbortedTxn", "transaction_index"),
    (r"DefaultPrincipalData", "principal"),
)

# Messages between KRaft voters, and those of admin clients about voters. kwire has none and reads none of them.
OF_VOTERS = re.compile(
    r"(Vote|(Begin|End)QuorumEpoch|(Add|Remove|Update)RaftVoter|ControllerRegistration|UnregisterController)"
    r"(Request|Response)|QuorumStateData"
)


def strip_comments(text: str) -> str:
    """Removes // comments, leaving those two characters alone inside strings."""
    return re.sub(r'("(?:\\.|[^"\\])*")|//[^\n]*', lambda match: match.group(1) or "", text)


def default_value(kind: str, default: Any) -> Any:
    """Converts a default: Kafka writes most of them as text; a schema has the value itself."""
    if default == "null":
        return None
    if kind == "bool":
        return str(default).lower() == "true"
    if kind in {"string", "bytes"}:
        return default
    return int(str(default), 0)


def field_facts(field: dict[str, Any]) -> dict[str, Any]:
    facts = {key: field[key] for key in FIELD_KEYS if key in field}
    facts.setdefault("versions", field.get("taggedVersions"))
    if facts.get("default", "") is None:
        del facts["default"]  # null without quotes has no meaning for Kafka's generator: the usual default applies
    if "default" in facts:
        facts["default"] = default_value(field["type"], facts["default"])
    if field.get("flexibleVersions"):
        raise ValueError(f"field {field['name']} has flexibleVersions of its own, which the generator does not know")
    facts = {key: facts[key] for key in FIELD_KEYS if key in facts}
    if field.get("fields"):
        facts["fields"] = [field_facts(each) for each in field["fields"]]
    return facts


def message_facts(message: dict[str, Any]) -> dict[str, Any]:
    facts = {key: message[key] for key in MESSAGE_KEYS if key in message}
    facts["fields"] = [field_facts(each) for each in message["fields"]]
    if message.get("commonStructs"):
        facts["commonStructs"] = [
            {"name": each["name"], "versions": each["versions"], "fields": [field_facts(f) for f in each["fields"]]}
            for each in message["commonStructs"]
        ]
    return facts


def compact_json(facts: dict[str, Any], indent: str = "") -> str:
    """Returns JSON with one line for the scalars of an object, then one line for each of its fields."""
    lists = {key: value for key, value in facts.items() if key in {"fields", "commonStructs"}}
    scalars = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in facts.items() if key not in lists)
    if not lists:
        return f"{indent}{{{scalars}}}"
    parts = []
    for key, values in lists.items():
        inner = ",\n".join(compact_json(value, indent + "  ") for value in values)
        parts.append(f'"{key}": [\n{inner}\n{indent}]' if values else f'"{key}": []')
    return f"{indent}{{{scalars}, {', '.join(parts)}}}"


def folder_of(message: dict[str, Any]) -> Path:
    """The folder of a message below schemas/."""
    if message["type"] in {"request", "response"}:
        return Path("messages")
    for pattern, module in INTERNAL_MODULES:
        if re.fullmatch(pattern, message["name"]):
            return Path("internal") / module
    raise ValueError(f"no module is named for {message['name']}")


def import_messages(jar: Path, schemas: Path) -> int:
    count = 0
    with zipfile.ZipFile(jar) as archive:
        for entry in sorted(archive.namelist()):
            if not re.fullmatch(r"(common/)?(message|metadata)/\w+\.json", entry):
                continue
            message = json.loads(strip_comments(archive.read(entry).decode()))
            # Headers are written by hand (headers.py); messages without versions are gone from Kafka.
            if message["type"] == "header" or message["validVersions"] == "none":
                continue
            if OF_VOTERS.fullmatch(message["name"]):
                continue
            folder = schemas / folder_of(message)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{message['name']}.json").write_text(compact_json(message_facts(message)) + "\n")
            count += 1
    return count


def import_errors(schemas: Path) -> None:
    source = Path(__file__).parent / "DumpErrors.java"
    classes = compile_java(source, classpath(JAR_SET))
    command: list[str | Path] = [java(), "-cp", f"{classpath(JAR_SET)}{os.pathsep}{classes}", "DumpErrors"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    errors = [
        {"code": int(code), "name": name, "retriable": retriable == "true"}
        for code, name, retriable in map(str.split, lines)
    ]
    text = ",\n".join("  " + json.dumps(error) for error in errors)
    (schemas / "errors.json").write_text(f"[\n{text}\n]\n")


def jar_versions() -> dict[str, tuple[Path, str]]:
    """Artifact -> its jar and version."""
    found = {}
    for jar in jars(JAR_SET):
        artifact, version = re.fullmatch(r"(.+?)-(\d[^-]*)\.jar", jar.name).groups()  # type: ignore[union-attr]
        found[artifact] = (jar, version)
    return found


def import_all(schemas: Path) -> tuple[int, str]:
    """Returns the number of messages and Kafka's version."""
    found = jar_versions()
    version = found["kafka-clients"][1]
    count = sum(import_messages(found[artifact][0], schemas) for artifact in ARTIFACTS)
    import_errors(schemas)
    (schemas / "KAFKA_VERSION").write_text(version + "\n")
    return count, version


def main() -> None:
    for folder in ("messages", "internal"):
        shutil.rmtree(SCHEMAS / folder, ignore_errors=True)
    count, version = import_all(SCHEMAS)
    print(f"{count} messages of Kafka {version}")


if __name__ == "__main__":
    main()
