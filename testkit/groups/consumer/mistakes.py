"""Deliberate mistakes in consumer groups. The lives of `test_group_lives.py` show each of them."""

from __future__ import annotations

from typing import Any

import attrs

from kwire.groups.consumer.member import CurrentAssignment, MemberState
from testkit.mutants.changes import Function, Mutant, always, instead, without

RECONCILIATION = "kwire.groups.consumer.reconciliation:Reconciliation"
GROUP = "kwire.groups.consumer.group:ConsumerGroup"
ASSIGNING = "kwire.groups.consumer.assigning:Assigning"
HEARTBEATS = "kwire.groups.consumer.heartbeats:Heartbeats"
MEMBERSHIP = "kwire.groups.consumer.membership:Membership"
REGEXES = "kwire.groups.consumer.regexes:Regexes"
MODERN_MEMBERSHIP = "kwire.groups.modern.membership:Membership"
DRAFT = "kwire.groups.draft:Draft"
CHANGES = "kwire.groups.consumer.changes"


def without_pending(next_assignment: Function) -> Function:
    """Treats partitions that are being revoked as given up."""

    def mistaken(reconciliation: Any, current: CurrentAssignment, **how: Any) -> CurrentAssignment:
        after: CurrentAssignment = next_assignment(reconciliation, current, **how)
        return attrs.evolve(after, pending_revocation={}) if after.pending_revocation else after

    return mistaken


def at_once_in_the_new_epoch(next_assignment: Function) -> Function:
    """A member that has to give something up is in the target's epoch before it did."""

    def mistaken(reconciliation: Any, current: CurrentAssignment, **how: Any) -> CurrentAssignment:
        after: CurrentAssignment = next_assignment(reconciliation, current, **how)
        if after.state is not MemberState.UNREVOKED_PARTITIONS:
            return after
        return attrs.evolve(after, epoch=reconciliation.target_epoch, state=MemberState.STABLE)

    return mistaken


def of_the_last_epoch(begin_epoch: Function) -> Function:
    def mistaken(assigning: Any, draft: Any, group: Any, **_how: Any) -> None:
        begin_epoch(assigning, draft, group, subscriptions_changed=False)

    return mistaken


MISTAKES = [
    Mutant(name, "", change)
    for name, change in (
        ("a partition that another member has is free", instead(f"{GROUP}.is_free", always(True))),
        ("a member need not say that it gave something up", instead(f"{RECONCILIATION}._still_owns", always(False))),
        ("what is being revoked is free at once", instead(f"{RECONCILIATION}.next", without_pending)),
        ("a member is in its new epoch before it revoked", instead(f"{RECONCILIATION}.next", at_once_in_the_new_epoch)),
        ("a member in an earlier epoch may do anything", instead(f"{GROUP}._check_epoch", always(lambda *_: 0))),
        (
            "a member keeps topics that it does not subscribe to",
            instead(f"{RECONCILIATION}._without_unsubscribed", lambda _: lambda _self, current: current),
        ),
        ("a change of a subscription begins no epoch", instead(f"{ASSIGNING}.begin_epoch", of_the_last_epoch)),
        (
            "new topics are not noticed",
            instead("kwire.groups.modern.epochs:metadata_hash", always(0)),
        ),
        ("the owner of a partition is forgotten", without(f"{GROUP}.set_current", f"{GROUP}._take")),
        ("a partition that was given up is kept", without(f"{GROUP}.set_current", f"{GROUP}._release")),
        ("an append that fails changes the group nevertheless", without(f"{DRAFT}.append", f"{DRAFT}.undo")),
        ("a request that is refused changes the group", without(f"{HEARTBEATS}.heartbeat", f"{DRAFT}.undo")),
        ("a member that leaves keeps its part", without(f"{MEMBERSHIP}.remove", f"{MODERN_MEMBERSHIP}.take_out")),
        ("a silent member stays", without(f"{MODERN_MEMBERSHIP}.over", f"{MEMBERSHIP}.remove")),
        ("who is heard from does not stay", without(f"{HEARTBEATS}._stay", f"{MODERN_MEMBERSHIP}.start_session")),
        ("a member has all the time to give something up", instead(f"{MEMBERSHIP}.follow_revocation", always(None))),
        ("sessions do not begin after a restart", instead(f"{MODERN_MEMBERSHIP}.start_all", always(None))),
        ("a replay forgets what is being revoked", instead(f"{CHANGES}:_read", lambda _: lambda *_args: {})),
        ("an expression is matched once and never again", instead(f"{REGEXES}._is_due", always(False))),
        (
            "two static members may have one instance id",
            instead(
                f"{HEARTBEATS}.enter_joining",
                lambda _: lambda _self, _draft, group, member_id, _instance_id, **_: group.members.get(member_id),
            ),
        ),
    )
]
