"""Deliberate mistakes in streams groups. The lives of `test_streams_lives.py` show each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from kwire.groups.streams.member import MemberState
from kwire.groups.streams.tasks import NO_TASKS
from testkit.mutants.changes import Function, Mutant, always, instead, without

RECONCILIATION = "kwire.groups.streams.reconciliation:Reconciliation"
GROUP = "kwire.groups.streams.group:StreamsGroup"
ASSIGNING = "kwire.groups.streams.assigning:Assigning"
HEARTBEATS = "kwire.groups.streams.heartbeats:Heartbeats"
MEMBERSHIP = "kwire.groups.streams.membership:Membership"
MODERN = "kwire.groups.modern.membership:Membership"
TASKS = "kwire.groups.streams.member:HeldTasks"
LAGS = "kwire.groups.streams.warmups:_Lags"
REFINE = "kwire.groups.streams.assigning:refine"
DRAFT = "kwire.groups.draft:Draft"
DESCRIPTIONS = "kwire.groups.streams.descriptions:Descriptions"


def of_the_last_epoch(begin_epoch: Function) -> Function:
    def mistaken(assigning: Any, draft: Any, group: Any, configured: Any, *, topics_changed: bool, **_how: Any) -> None:
        begin_epoch(assigning, draft, group, configured, member_changed=False, topics_changed=topics_changed)

    return mistaken


def once_configured(configure: Function) -> Function:
    def mistaken(assigning: Any, draft: Any, group: Any, topology: Any) -> Any:
        return group.configured or configure(assigning, draft, group, topology)

    return mistaken


def with_epochs_of_now(next_active: Function) -> Function:
    """A task that the member keeps counts as one that it got now."""

    def mistaken(reconciliation: Any, has: Any, target: Any) -> Any:
        found, waits = next_active(reconciliation, has, target)
        return {name: dict.fromkeys(of, reconciliation.target_epoch) for name, of in found.items()}, waits

    return mistaken


def with_epochs_of_long_ago(next_active: Function) -> Function:
    def mistaken(reconciliation: Any, has: Any, target: Any) -> Any:
        found, waits = next_active(reconciliation, has, target)
        return {name: dict.fromkeys(of, 0) for name, of in found.items()}, waits

    return mistaken


def to_the_target_at_once(toward: Function) -> Function:
    """Does not wait for tasks that have to be given up."""

    def mistaken(reconciliation: Any, current: Any, epoch: int) -> Any:
        return toward(attrs.evolve(reconciliation, owned=NO_TASKS), current, epoch)

    return mistaken


def never_waiting(toward: Function) -> Function:
    """A member that waits for others counts as settled."""

    def mistaken(reconciliation: Any, current: Any, epoch: int) -> Any:
        after = toward(reconciliation, current, epoch)
        return attrs.evolve(after, state=MemberState.STABLE) if after.state is MemberState.UNRELEASED_TASKS else after

    return mistaken


def without_pending(_task_holders: Function) -> Function:
    def mistaken(group: Any, current: Any) -> Any:
        return list(_task_holders(group, current))[:2]

    return mistaken


def where_topics_are_missing(assign: Function) -> Function:
    """Tasks are assigned though internal topics are missing."""

    def mistaken(assigning: Any, draft: Any, group: Any, configured: Any, now: Any) -> Any:
        return assign(assigning, draft, group, attrs.evolve(configured, status=None), now)

    return mistaken


def everybody(_solicit: Function) -> Function:
    """Requests a description from each member."""

    def mistaken(_descriptions: Any, _step: Any, _group: Any, response: Any) -> None:
        response.topology_description_required = True

    return mistaken


def without_descriptions(read: Function) -> Function:
    def mistaken(change: Any, value: Any) -> Any:
        known = read(change, value)
        return attrs.evolve(known, stored_description_topology_epoch=-1, failed_description_topology_epoch=-1)

    return mistaken


def any_number(refine: Function) -> Function:
    def mistaken(targets: Any, crew: Any, subtopologies: Any, settings: Any) -> Any:
        many = attrs.evolve(settings, num_warmup_replicas=settings.num_warmup_replicas and 100)
        return attrs.evolve(refine(targets, crew, subtopologies, many), settings=settings)

    return mistaken


def of_everybody(refine: Function) -> Function:
    """Includes members that do not report their progress."""

    def mistaken(targets: Any, crew: Any, subtopologies: Any, settings: Any) -> Any:
        return refine(targets, attrs.evolve(crew, silent=frozenset()), subtopologies, settings)

    return mistaken


def with_targets(role: str) -> Callable[[Function], Function]:
    """Gives members the tasks of their targets in this role, although they wait."""

    def change(refine: Function) -> Function:
        def mistaken(targets: Any, crew: Any, subtopologies: Any, settings: Any) -> Any:
            refined = refine(targets, crew, subtopologies, settings)
            parts = {it: attrs.evolve(part, **{role: getattr(targets[it], role)}) for it, part in refined.parts.items()}
            return attrs.evolve(refined, parts=parts)

        return mistaken

    return change


MISTAKES = [
    Mutant(name, "", change)
    for name, change in (
        ("a member in any epoch is accepted", instead("kwire.groups.streams.heartbeats:_check_epoch", always(None))),
        ("a full group takes more members", instead(f"{HEARTBEATS}._check_room", always(None))),
        ("a member that joins begins no epoch", instead(f"{ASSIGNING}.begin_epoch", of_the_last_epoch)),
        ("a member that leaves begins no epoch", instead(f"{ASSIGNING}.begin_epoch_without", always(None))),
        ("changes of topics are not noticed", instead(f"{ASSIGNING}.configure", once_configured)),
        ("tasks are assigned while topics are missing", instead(f"{ASSIGNING}.assign", where_topics_are_missing)),
        ("an active task is given to two members", instead(f"{GROUP}.is_active", always(False))),
        ("a task is in a process twice", instead(f"{GROUP}.is_in_process", always(False))),
        ("what is not given up yet counts as free", instead(f"{GROUP}._task_holders", without_pending)),
        ("nobody has to give up anything", instead(f"{RECONCILIATION}._toward_target", to_the_target_at_once)),
        ("what is reported does not count", instead(f"{TASKS}.have_any_of", always(False))),
        ("a member that waits counts as settled", instead(f"{RECONCILIATION}._toward_target", never_waiting)),
        ("a task is as new as the epoch", instead(f"{RECONCILIATION}._next_active", with_epochs_of_now)),
        ("a task is older than it is", instead(f"{RECONCILIATION}._next_active", with_epochs_of_long_ago)),
        ("no member gets the status of a shutdown", instead("kwire.groups.streams.heartbeats:_shutdown", always(None))),
        ("an append that fails changes the group nevertheless", without(f"{DRAFT}.append", f"{DRAFT}.undo")),
        ("a request that is refused changes the group", without(f"{HEARTBEATS}.heartbeat", f"{DRAFT}.undo")),
        ("a silent member stays", without(f"{MODERN}.over", f"{MEMBERSHIP}.remove")),
        ("who is heard from does not stay", without(f"{HEARTBEATS}._stay", f"{MODERN}.start_session")),
        ("sessions do not begin after a restart", instead(f"{MODERN}.start_all", always(None))),
        ("who keeps tasks for ever stays", instead(f"{MEMBERSHIP}.follow_revocation", always(None))),
        (
            "a replay forgets since when a member has a task",
            instead("kwire.groups.streams.changes:_active", always({})),
        ),
        ("the first members do not wait for others", instead(f"{MEMBERSHIP}.delay_first_assignment", always(None))),
        (
            "endpoints stay as they were",
            instead("kwire.groups.streams.endpoints:_partitions", always([])),
        ),
        ("tasks move to members without their state", instead(f"{LAGS}.of_task", always(0))),
        ("no task is ever ready to move", instead(f"{LAGS}.of_task", always(float("inf")))),
        ("nobody checks which tasks are ready to move", instead(f"{ASSIGNING}.refine", always(None))),
        ("any number of tasks warm up at a time", instead(REFINE, any_number)),
        ("who says nothing of its progress is waited for", instead(REFINE, of_everybody)),
        ("a task goes to the member where it warms up at once", instead(REFINE, with_targets("active"))),
        ("a task is a standby where it is active", instead(REFINE, with_targets("standby"))),
        ("the topology's description is requested from every member", instead(f"{DESCRIPTIONS}.solicit", everybody)),
        (
            "the topology's description is requested from no member",
            instead(f"{DESCRIPTIONS}.are_wanted", always(False)),
        ),
        ("a description outlives its group", without(f"{MEMBERSHIP}.stop_all", f"{DESCRIPTIONS}.forget")),
        (
            "a replay forgets what was described",
            instead("kwire.groups.streams.changes:EpochChange.read", without_descriptions),
        ),
    )
]
