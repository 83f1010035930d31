"""Deliberate mistakes in share groups. The lives of `test_share_lives.py` show each of them."""

from __future__ import annotations

from typing import Any

from testkit.mutants.changes import Function, Mutant, always, instead, without

STATES = "kwire.groups.share.states:PartitionStates"
GROUP = "kwire.groups.share.group:ShareGroup"
ASSIGNING = "kwire.groups.share.assigning:Assigning"
HEARTBEATS = "kwire.groups.share.heartbeats:Heartbeats"
INITIALIZING = "kwire.groups.share.initializing:Initializing"
OFFSETS = "kwire.groups.share.offsets:Offsets"
DELETING = "kwire.groups.share.deleting:Deleting"
MEMBERSHIP = "kwire.groups.share.membership:Membership"
MODERN_MEMBERSHIP = "kwire.groups.modern.membership:Membership"
KIND = "kwire.groups.share.kind:ShareKind"
DRAFT = "kwire.groups.draft:Draft"


def of_the_last_epoch(begin_epoch: Function) -> Function:
    def mistaken(assigning: Any, draft: Any, group: Any, **_how: Any) -> bool:
        begun: bool = begin_epoch(assigning, draft, group, subscriptions_changed=False)
        return begun

    return mistaken


def with_the_whole_target(move: Function) -> Function:
    """A member gets its target even where it does not subscribe to it any more."""

    def mistaken(assigning: Any, draft: Any, group: Any, member_id: str, **_how: Any) -> Any:
        return move(assigning, draft, group, member_id, subscription_changed=False)

    return mistaken


def without_checking_again(apply: Function) -> Function:
    """A group that was complete once counts as complete after a change."""

    def mistaken(group: Any, change: Any) -> Any:
        settled_version = group.settled_version
        undo = apply(group, change)
        group.settled_version = settled_version
        return undo

    return mistaken


def as_if_it_had_succeeded(ended: Function) -> Function:
    def mistaken(states: Any, succeeded: Any, failed: Any) -> Any:
        return ended(states, {**succeeded, **failed}, {})

    return mistaken


def keeping_failures(ended: Function) -> Function:
    def mistaken(states: Any, succeeded: Any, _failed: Any) -> Any:
        return ended(states, succeeded, {})

    return mistaken


def assignable_before_the_answer(assignable: Function) -> Function:
    def mistaken(states: Any) -> Any:
        return {**assignable(states), **{topic_id: it.partitions for topic_id, it in states.initializing.items()}}

    return mistaken


def unchanged(_change: Function) -> Function:
    def mistaken(states: Any, _topics: Any) -> Any:
        return states

    return mistaken


MISTAKES = [
    Mutant(name, "", change)
    for name, change in (
        ("a member in any epoch is accepted", instead("kwire.groups.share.heartbeats:_check_epoch", always(None))),
        ("a full group takes more members", instead(f"{HEARTBEATS}._check_room", always(None))),
        ("a change of a subscription begins no epoch", instead(f"{ASSIGNING}.begin_epoch", of_the_last_epoch)),
        ("topics that are gone are not noticed", instead("kwire.groups.modern.epochs:metadata_hash", always(0))),
        ("initialized partitions are not noticed", instead(f"{ASSIGNING}._misses_initialized", always(False))),
        ("a group that was complete once is not looked at again", instead(f"{GROUP}.apply", without_checking_again)),
        ("a member keeps topics that it does not subscribe to", instead(f"{ASSIGNING}.move", with_the_whole_target)),
        (
            "partitions are assigned before they are initialized",
            instead(f"{STATES}.assignable", assignable_before_the_answer),
        ),
        ("a failure counts as a success", instead(f"{STATES}.ended", as_if_it_had_succeeded)),
        ("what never got an answer is not asked for again", instead(f"{INITIALIZING}._is_overdue", always(False))),
        ("a failure stays marked until it is overdue", instead(f"{STATES}.ended", keeping_failures)),
        (
            "what is asked for is not marked",
            instead(f"{INITIALIZING}.mark", always(None)),
        ),
        ("offsets are altered and not marked", without(f"{OFFSETS}.begin_alteration", f"{INITIALIZING}.mark")),
        ("offsets are deleted and stay marked", instead(f"{STATES}.deleted", unchanged)),
        ("offsets that are being deleted are assigned", instead(f"{STATES}.with_deleting", unchanged)),
        ("deleted topics are kept", instead(f"{INITIALIZING}.topics_deleted", always(None))),
        ("states are left behind when a group is deleted", instead(f"{DELETING}._of_group", always({}))),
        ("an append that fails changes the group nevertheless", without(f"{DRAFT}.append", f"{DRAFT}.undo")),
        ("a silent member stays", without(f"{MODERN_MEMBERSHIP}.over", f"{MEMBERSHIP}.remove")),
        ("who is heard from does not stay", without(f"{HEARTBEATS}._stay", f"{MODERN_MEMBERSHIP}.start_session")),
        ("sessions do not begin after a restart", instead(f"{MODERN_MEMBERSHIP}.start_all", always(None))),
        ("a replay forgets the states", instead("kwire.groups.share.changes:_states", always({}))),
        ("an empty group goes with its offsets", instead("kwire.groups.group:GroupType.expires", always(True))),
    )
]
