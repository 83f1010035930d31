"""The kinds of damage in a folder of logs: a table with the severity, advice and remedy of each.

The names are stable: scripts read them from `kwire log check --json`.
"""

from __future__ import annotations

from enum import Enum, IntEnum

import attrs


class Severity(IntEnum):
    """The severity of a finding. A note is no inconsistency: it may look odd, or a broker repairs it automatically."""

    NOTE = 0
    WARNING = 1
    ERROR = 2


class Remedy(Enum):
    """The action of a repair for a finding."""

    NOTHING = "left as it is"
    CUT = "cut off"
    DROP = "taken out by --drop-corrupt-ranges"
    REBUILD = "rebuilt from the records"
    SET_ASIDE = "moved away"
    SWAP = "finished as the broker would"
    LOWER = "set right"


@attrs.frozen
class _Facts:
    code: str
    severity: Severity
    remedy: Remedy
    advice: str


_NOTE, _WARNING, _ERROR = Severity
_REBUILD = "repair rebuilds it from the records"
_RECOPY = "copy the partition again from another replica, if there is one"


class Kind(Enum):
    """The kind of a finding; `code` is its name in the JSON."""

    # Records
    CORRUPT_RANGE = _Facts(
        "corrupt-range",
        _ERROR,
        Remedy.DROP,
        f"{_RECOPY}; repair --drop-corrupt-ranges takes the range out and leaves what follows",
    )
    TORN_TAIL = _Facts("torn-tail", _WARNING, Remedy.CUT, "repair cuts it off, as a broker does after a crash")
    BEING_WRITTEN = _Facts(
        "being-written", _NOTE, Remedy.NOTHING, "a broker is at work on this folder; look again when it has stopped"
    )
    OFFSET_ORDER = _Facts(
        "offset-order", _ERROR, Remedy.DROP, f"{_RECOPY}; repair --drop-corrupt-ranges takes the batch out"
    )
    MALFORMED_RECORDS = _Facts(
        "malformed-records",
        _ERROR,
        Remedy.DROP,
        "the CRC is right, so a producer wrote it like this; repair --drop-corrupt-ranges takes the batch out",
    )
    MAX_TIMESTAMP = _Facts(
        "max-timestamp",
        _WARNING,
        Remedy.NOTHING,
        "searches by time and retention.ms may miss the batch; it can be read",
    )
    EPOCH_ORDER = _Facts(
        "epoch-order", _ERROR, Remedy.NOTHING, f"the epoch is outside of what the CRC covers; {_RECOPY}"
    )
    UNCHECKED = _Facts(
        "unchecked-records", _NOTE, Remedy.NOTHING, "length and CRC are right; the records were not looked into"
    )
    HOLE = _Facts("hole", _NOTE, Remedy.NOTHING, "compaction leaves holes; without it, records have been lost here")
    SEGMENT_OVERLAP = _Facts(
        "segment-overlap", _ERROR, Remedy.NOTHING, "one of the two files is misnamed or does not belong here"
    )
    # Files derived from the records
    INDEX_MISSING = _Facts("index-missing", _WARNING, Remedy.REBUILD, _REBUILD)
    INDEX_SIZE = _Facts("index-size", _WARNING, Remedy.REBUILD, _REBUILD)
    INDEX_ORDER = _Facts("index-order", _ERROR, Remedy.REBUILD, _REBUILD)
    INDEX_ENTRY = _Facts("index-entry", _ERROR, Remedy.REBUILD, _REBUILD)
    TIME_INDEX_SHORT = _Facts("timeindex-short", _WARNING, Remedy.REBUILD, _REBUILD)
    TXN_INDEX_UNREADABLE = _Facts("txnindex-unreadable", _ERROR, Remedy.REBUILD, _REBUILD)
    TXN_INDEX_ENTRY = _Facts(
        "txnindex-entry", _ERROR, Remedy.REBUILD, f"read_committed consumers are misled; {_REBUILD}"
    )
    SNAPSHOT_UNREADABLE = _Facts("snapshot-unreadable", _WARNING, Remedy.REBUILD, _REBUILD)
    SNAPSHOT_ENTRY = _Facts("snapshot-entry", _ERROR, Remedy.REBUILD, f"producers may be refused; {_REBUILD}")
    SNAPSHOT_BEYOND_END = _Facts(
        "snapshot-beyond-end", _ERROR, Remedy.SET_ASIDE, "repair moves it away: it is about records that are not there"
    )
    SNAPSHOT_NOT_AT_END = _Facts(
        "snapshot-not-at-end", _ERROR, Remedy.REBUILD, "the next start believes its name; repair writes one at the end"
    )
    EPOCHS_MISSING = _Facts("epochs-missing", _WARNING, Remedy.REBUILD, _REBUILD)
    EPOCHS_UNREADABLE = _Facts("epochs-unreadable", _ERROR, Remedy.REBUILD, f"the broker cannot start; {_REBUILD}")
    EPOCHS_ENTRY = _Facts("epochs-entry", _ERROR, Remedy.REBUILD, f"replicas may keep what they must cut; {_REBUILD}")
    # Files of a partition
    LEFTOVER = _Facts("leftover", _NOTE, Remedy.SET_ASIDE, "the broker removes it at its next start; so does repair")
    UNFINISHED_SWAP = _Facts(
        "unfinished-swap", _WARNING, Remedy.SWAP, "repair finishes it, as a broker does at its start"
    )
    ORPHAN = _Facts("orphan-file", _WARNING, Remedy.SET_ASIDE, "repair moves it away: its segment has no .log")
    MISNAMED = _Facts(
        "misnamed-file", _WARNING, Remedy.NOTHING, "no broker reads it; rename it to its base offset in twenty digits"
    )
    METADATA_MISSING = _Facts(
        "partition-metadata-missing",
        _WARNING,
        Remedy.REBUILD,
        "repair writes it where __cluster_metadata has the topic",
    )
    METADATA_UNREADABLE = _Facts(
        "partition-metadata-unreadable",
        _ERROR,
        Remedy.REBUILD,
        "the broker cannot start; repair writes it where __cluster_metadata has the topic",
    )
    TOPIC_ID = _Facts(
        "topic-id",
        _ERROR,
        Remedy.NOTHING,
        "the folder belongs to another topic of that name; move it away, or put it back",
    )
    UNREADABLE = _Facts(
        "unreadable", _ERROR, Remedy.NOTHING, "the disk refuses; look at the machine's log for failing media"
    )
    VANISHED = _Facts(
        "vanished", _NOTE, Remedy.NOTHING, "it was there a moment ago: a broker is at work on this folder"
    )
    # Files of a log dir
    META_MISSING = _Facts(
        "meta-properties-missing",
        _WARNING,
        Remedy.NOTHING,
        "the next start takes the folder for a new one; put it back",
    )
    META_UNREADABLE = _Facts(
        "meta-properties-unreadable",
        _ERROR,
        Remedy.NOTHING,
        "no broker starts on it; write it again (storage/README.md)",
    )
    CHECKPOINT_UNREADABLE = _Facts(
        "checkpoint-unreadable", _ERROR, Remedy.LOWER, "no broker starts on it; repair writes a new one"
    )
    CHECKPOINT_BEYOND_END = _Facts(
        "checkpoint-beyond-end", _ERROR, Remedy.LOWER, "records that were promised are not there; repair lowers it"
    )
    CHECKPOINT_STALE_ROW = _Facts(
        "checkpoint-stale-row",
        _NOTE,
        Remedy.NOTHING,
        "of a partition without a folder; the broker forgets it by itself",
    )
    DUPLICATE_PARTITION = _Facts(
        "duplicate-partition", _ERROR, Remedy.NOTHING, "keep the one that is right and move the other away"
    )
    DOOMED_FOLDER = _Facts("deleted-folder", _NOTE, Remedy.NOTHING, "a deleted partition; the broker removes it")
    STRAY_FOLDER = _Facts("stray-folder", _NOTE, Remedy.NOTHING, "no metadata knew the topic; kept until you remove it")
    FUTURE_FOLDER = _Facts("future-folder", _NOTE, Remedy.NOTHING, "a partition on its way between two log dirs")
    UNKNOWN_FOLDER = _Facts(
        "unknown-folder", _WARNING, Remedy.NOTHING, "Apache Kafka does not start with it there; move it away"
    )

    @property
    def code(self) -> str:
        return self.value.code

    @property
    def severity(self) -> Severity:
        return self.value.severity

    @property
    def remedy(self) -> Remedy:
        return self.value.remedy

    @property
    def advice(self) -> str:
        return self.value.advice


@attrs.frozen
class Finding:
    """One inconsistency. `path` is relative to the disk; positions are bytes in that file, the end exclusive."""

    kind: Kind
    path: str
    what: str
    position: int | None = None
    end_position: int | None = None
    offset: int | None = None
    severity: Severity = attrs.field(default=attrs.Factory(lambda self: self.kind.severity, takes_self=True))

    def as_note(self) -> Finding:
        """Returns the same finding as a note, since the broker's recovery repairs it anyway."""
        return attrs.evolve(self, severity=Severity.NOTE)
