"""The checks from outside when the broker has stopped, or is idle: files, memory, descriptors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import attrs

from testkit.java.dumps import assert_kafka_is_content, topic_of
from testkit.java.java_host import JavaHost

MOST_GROWN_BYTES = 96 << 20
"""A broker that had much to do keeps some memory for the next time."""
CHECKED_WITHIN_S = 300.0
# Nothing of this outlives the removal of what was deleted.
_LEFT_OVER = re.compile(r"\.(deleted|cleaned|swap|tmp)$|-(delete|stray|future)$")

Complain = Callable[[str], None]


@attrs.frozen
class Usage:
    """The resources of a process."""

    resident_bytes: int
    descriptors: Counter[str]
    """The targets of its descriptors: a file's path, or `socket`, or another kind without its number."""

    @classmethod
    def of(cls, pid: int) -> Usage:
        status = Path(f"/proc/{pid}/status").read_text()
        found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
        assert found is not None
        folder = Path(f"/proc/{pid}/fd")
        descriptors: Counter[str] = Counter()
        for descriptor in folder.iterdir():
            try:
                target = os.readlink(descriptor)  # noqa: PTH115 - it may have been closed since
            except FileNotFoundError:
                continue
            descriptors[re.sub(r":\[\d+\]$", "", target)] += 1
        return cls(int(found[1]) << 10, descriptors)


def check_logs(folders: Sequence[Path], complain: Complain) -> int:
    """`kwire log check`: without an error and without a warning. Returns how many partitions it checked."""
    kwire = str(Path(sysconfig.get_path("scripts"), "kwire"))
    command = [kwire, "log", "check", "--json", *map(str, folders)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=CHECKED_WITHIN_S, check=False)
    partitions = 0
    for line in ended.stdout.splitlines():
        row = json.loads(line)
        if row["type"] == "summary":
            partitions = int(row["partitions"])
        elif row.get("severity") in ("error", "warning"):
            complain(f"kwire log check: {line}")
    if ended.returncode not in (0, 1) or (ended.returncode == 1 and not ended.stdout):
        complain(f"kwire log check ended with {ended.returncode}: {ended.stderr[-2000:]}")
    return partitions


def dump_logs(java: JavaHost, folders: Sequence[Path], complain: Complain) -> int:
    """Kafka's DumpLogSegments over every file. Returns how many those were."""
    topics = {topic for folder in folders for path in folder.iterdir() if (topic := topic_of(path)) is not None}
    with_logs = [folder for folder in folders if any(topic_of(path) is not None for path in folder.iterdir())]
    try:
        return assert_kafka_is_content(java, *with_logs, with_gaps=topics)
    except AssertionError as error:
        complain(f"DumpLogSegments: {error}")
        return 0


def left_over(folders: Iterable[Path]) -> list[str]:
    """Files and folders that only wait for their removal, or for the end of something."""
    return [
        os.path.join(above, name)  # noqa: PTH118 - what os.walk gives
        for folder in folders
        for above, inner, files in os.walk(folder)  # which does not mind what is removed meanwhile
        for name in (*inner, *files)
        if _LEFT_OVER.search(name)
    ]


def copies(folders: Iterable[Path]) -> dict[str, int]:
    """The number of files in each copy of a partition that is moved to another log dir, by the copy's folder."""
    return {
        path.name: sum(len(files) for _, _, files in os.walk(path))  # which does not mind what is renamed meanwhile
        for folder in folders
        for path in folder.iterdir()
        if path.name.endswith("-future")
    }


def check_usage(before: Usage, after: Usage, complain: Complain) -> None:
    """`before` any load, and after it, at rest and with no client there."""
    grown = after.resident_bytes - before.resident_bytes
    if grown > MOST_GROWN_BYTES:
        complain(f"the broker has {after.resident_bytes >> 20} MiB of memory, and had {before.resident_bytes >> 20}")
    gone = [name for name in after.descriptors if name.endswith(" (deleted)")]
    if gone:
        complain(f"the broker keeps {len(gone)} removed files open, such as {gone[0]}")
    twice = [name for name, count in after.descriptors.items() if count > 2 and name.startswith("/")]
    if twice:
        complain(f"the broker has {after.descriptors[twice[0]]} descriptors of {twice[0]}")
    for kind in after.descriptors.keys() | before.descriptors.keys():
        if not kind.startswith("/") and after.descriptors[kind] > before.descriptors[kind]:
            complain(f"the broker has {after.descriptors[kind]} of {kind}, and had {before.descriptors[kind]}")
