"""The plan of a mirror, as a value: made from flags or a file, checked, and printed, all without Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import attrs
from kwire_protocol.compression import CODEC_NAMES

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.mirror.state import TOPIC_PREFIX
from kwire.pipeline.source import check_group, check_source_options, shown_options, source_options
from kwire.pipeline.tables.plan import Beginning
from kwire.pipeline.tables.position import Holder, OnGap

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_LONGEST_NAME: Final = 249 - len(TOPIC_PREFIX)
_ISOLATION: Final = "read_committed"
# A task has whole partitions, so that each partition has one writer.
_SPLITTING: Final = {"minpartitions", "maxrecordsperpartition"}


@attrs.frozen(kw_only=True)
class MirrorPlan:
    """Topics of one cluster into another. Times in seconds."""

    source: str
    """A broker of the cluster that is mirrored, HOST:PORT; several with commas."""
    target: str
    topics: tuple[str, ...]
    rename: str = "{topic}"
    name: str | None = None
    """None: the name is derived from the two clusters' ids."""
    exactly_once: bool = False
    begin: Beginning = "earliest"
    on_gap: OnGap = "fail"
    groups: str | None = ".*"
    """The groups whose offsets are translated: a regular expression of whole names. None: of no group."""
    groups_interval_s: float = 10.0
    excluded_configs: frozenset[str] = frozenset()
    """The configurations that are not mirrored, besides those that never are."""
    compression: str = "lz4"
    once: bool = False
    interval_s: float = 1.0
    max_records_per_batch: int = 1_000_000
    source_options: Mapping[str, str] = attrs.field(factory=dict)

    def check(self) -> None:
        """Raises PipelineError for options that make no sense."""
        if not self.topics:
            raise PipelineError("no topic is named: kwire pipeline mirror --from HOST:PORT --to HOST:PORT TOPIC...")
        for topic in self.topics:
            if not _LEGAL.fullmatch(topic):
                raise PipelineError(f"{topic!r} is no name of a topic")
            if topic.startswith(("__", TOPIC_PREFIX)):
                raise PipelineError(f"topic {topic} is the cluster's or a mirror's own: it means nothing elsewhere")
        if len(set(self.topics)) < len(self.topics):
            twice = next(it for it in self.topics if self.topics.count(it) > 1)
            raise PipelineError(f"topic {twice} is named twice")
        if "{topic}" not in self.rename:
            raise PipelineError(f"--rename {self.rename!r} has no {{topic}}: all topics would become one")
        for topic in self.topics:
            if not _LEGAL.fullmatch(self.target_topic(topic)):
                raise PipelineError(
                    f"--rename {self.rename!r} makes {self.target_topic(topic)!r} of topic {topic}, which is no name "
                    "of a topic: letters, digits, '.', '_' and '-' make one"
                )
        if self.name is not None and not (_LEGAL.fullmatch(self.name) and len(self.name) <= _LONGEST_NAME):
            raise PipelineError(
                f"--name {self.name!r} is no name: up to {_LONGEST_NAME} letters, digits, '.', '_', '-'"
            )
        if self.groups is not None:
            try:
                re.compile(self.groups)
            except re.error as error:
                raise PipelineError(f"--groups {self.groups!r} is no regular expression: {error}") from None
        check_source_options(self.source_options)
        check_group(self.source_options, "the mirror keeps its place in a topic of --to")
        splitting = sorted(name for name in self.source_options if name.lower() in _SPLITTING)
        if splitting:
            raise PipelineError(f"{', '.join(splitting)} would split partitions, and each has one writer: leave it out")

    def target_topic(self, topic: str) -> str:
        return self.rename.replace("{topic}", topic)

    @property
    def pairs(self) -> dict[str, str]:
        """Each topic, and its name at the target."""
        return {topic: self.target_topic(topic) for topic in self.topics}

    def named(self, source_id: str | None, target_id: str | None) -> str:
        """The mirror's name. Raises PipelineError if it has none and the clusters have no ids."""
        if self.name is not None:
            return self.name
        if not source_id or not target_id:
            raise PipelineError("the clusters do not return their ids, so the mirror needs a name: --name NAME")
        return f"{source_id}-{target_id}"

    @property
    def codec(self) -> int:
        return CODEC_NAMES.index(self.compression)

    def holder(self, state_topic: str) -> Holder:
        """Returns the owner of the positions, for messages."""
        return Holder(
            "the mirror",
            "begin another mirror, with names of its own: --name NAME --rename new.{topic}",
            f"in topic {state_topic} of --to",
        )

    def options(self) -> dict[str, str]:
        """The options of Spark's kafka source, without the offsets."""
        return source_options(self.source, ",".join(self.topics), _ISOLATION, self.source_options)

    def describe(self) -> dict[str, object]:
        """Returns the plan for --dry-run, under stable names."""
        return {
            "from": self.source,
            "to": self.target,
            "topics": self.pairs,
            "delivery": "exactly once" if self.exactly_once else "at least once",
            "begin": self.begin,
            "on_gap": self.on_gap,
            "groups": self.groups,
            "groups_interval_s": None if self.groups is None else self.groups_interval_s,
            "excluded_configs": sorted(self.excluded_configs),
            "compression": self.compression,
            "trigger": "once" if self.once else f"every {self.interval_s:g} s",
            "max_records_per_batch": self.max_records_per_batch,
            "source_options": shown_options(self.options()),
        }
