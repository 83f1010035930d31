"""Subscriptions by regular expression: matches them with the topics, and refreshes the result.

The expressions are RE2's (KIP-848), so the time to match is linear in the length of the names. They are matched when a
member has a new one, when topics are created or deleted, and after group.consumer.regex.refresh.interval.ms, because
the topics that a member may see can change too. All expressions of a group are matched together, so that the group gets
one new assignment. Apache Kafka matches them on another thread, and members get their topics with a later heartbeat.
"""

from __future__ import annotations

import logging
from functools import partial

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError, quoted

from kwire.coordinators.effects import Step
from kwire.groups.config import GroupConfig
from kwire.groups.consumer.changes import RegexChange, ResolvedRegex
from kwire.groups.consumer.group import ConsumerGroup
from kwire.groups.draft import Draft
from kwire.groups.group import MemberContext
from kwire.groups.topics import Topics
from kwire.names.patterns import InvalidPattern, Pattern

log = logging.getLogger(__name__)

REFRESH_MIN_INTERVAL_MS = 1_000
"""The minimum interval between two matches because topics were created or deleted. Kafka's constant is 10 s."""


@attrs.define(eq=False)
class Regexes:
    config: GroupConfig
    topics: Topics

    def refresh(self, step: Step, draft: Draft, group: ConsumerGroup, subscribed: str, context: MemberContext) -> bool:
        """Matches the group's expressions if that is due. `subscribed` is the expression of the requesting member.

        Returns True if the topics of one have changed. Raises KafkaError(INVALID_REGULAR_EXPRESSION).
        """
        if not group.regexes and not group.regex_subscribers:
            return False
        changed = False
        for regex in group.regexes.keys() - group.regex_subscribers.keys():
            draft.change(group, RegexChange(group.group_id, regex, None))
        if not group.regex_subscribers:
            return False
        if subscribed and subscribed not in group.regexes:
            changed = self._match(step, draft, group, subscribed, context)
        if self._is_due(step, group):
            for regex in list(group.regex_subscribers):
                try:
                    changed |= self._match(step, draft, group, regex, context)
                except KafkaError as error:
                    # It was accepted by another broker with other limits.
                    log.error("group %a: a subscription is ignored: %s", group.group_id, error.message)
            draft.did(None, partial(setattr, group, "regexes_refreshed_at_ms", None))
            group.regexes_version, group.regexes_refreshed_at_ms = self.topics.version, step.now.monotonic_ms
        return changed

    def _is_due(self, step: Step, group: ConsumerGroup) -> bool:
        last_ms = group.regexes_refreshed_at_ms
        if last_ms is None:
            return True
        age_ms = step.now.monotonic_ms - last_ms
        if age_ms >= self.config.consumer_regex_refresh_interval_ms:
            return True
        return group.regexes_version != self.topics.version and age_ms >= REFRESH_MIN_INTERVAL_MS

    def _match(self, step: Step, draft: Draft, group: ConsumerGroup, regex: str, context: MemberContext) -> bool:
        matched = self._matching(regex, context)
        known = group.regexes.get(regex)
        if known is not None and known.topics == matched:
            return False
        resolved = ResolvedRegex(matched, self.topics.version, step.now.wall_ms)
        draft.change(group, RegexChange(group.group_id, regex, resolved))
        return True

    def _matching(self, regex: str, context: MemberContext) -> frozenset[str]:
        """The topics that match and that the member may see."""
        try:
            pattern = Pattern(regex)
        except InvalidPattern as error:
            raise KafkaError(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex {quoted(regex)} is not a valid regular expression: {error}.",
            ) from error
        return frozenset(name for name in self.topics.names() if pattern.matches(name) and context.sees_topic(name))
