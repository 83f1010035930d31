"""The number of partitions that each member gets of each audience's topics, as the uniform assignor decides it.

A member's load is its number of partitions of all topics. There are two aims, the second only among equals of the
first:

1. Balance: the sum of the squares of all loads is as small as the subscriptions allow. Then no two members that
   subscribe alike differ by more than one partition. And the largest load, the next largest and so on are as small as
   they can be: the sorted loads of all best answers are the same.
2. Stickiness: as few partitions as possible leave a member that may keep them.

A partition goes from one member to another by way of an audience that both belong to. So shares are a flow, and what
counts are its costs: of each member's load, and of each member's share of an audience. Each cost is convex, as one more
never costs less than the one before. Such a flow is best exactly when no circle of moves makes it cheaper:

    giver -> audience -> taker -> audience -> ... -> taker     and back to the first giver, whose load falls by one
                                                               as the last taker's rises, or which is the last taker

So the search starts with the present assignment, deals out the partitions without an owner, levels loads within each
audience, and then makes circles of moves until no cheaper one is left. The first steps are there for speed. With a
single audience they are all it takes. The cost of a circle is one number: a step of load outweighs all partitions that
could change hands on the way.

Kafka's `UniformHeterogeneousAssignmentBuilder` (4.3.1) levels within each topic alone. A partition does not pass
through a third member there, and loads that rise by one from topic to topic stay as they are.

The search ends after STEPS steps, which take some tenths of a second: the coordinator answers no request meanwhile.
Groups of a thousand members whose subscriptions all differ may reach this limit. They get a valid assignment, level
within each audience, and the next one may find what this one did not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace

import attrs

STEPS = 500_000

_NOWHERE = -1


@attrs.define(eq=False)
class Shares:
    """Members and audiences by position.

    `subscribers`: the members of each audience. `held`: by member, its number of partitions of each audience's topics
    so far. `shares`: the same numbers in the new assignment. `loads`: the sums of `shares`.
    """

    subscribers: Sequence[Sequence[int]]
    held: Sequence[dict[int, int]]
    shares: list[dict[int, int]] = attrs.field(init=False)
    loads: list[int] = attrs.field(init=False)
    _holders: list[list[int]] = attrs.field(init=False)
    _steps: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self.shares = [dict(it) for it in self.held]
        self.loads = [sum(it.values()) for it in self.held]
        self._holders = [[] for _ in self.subscribers]
        for member, counts in enumerate(self.held):
            for audience in counts:
                self._holders[audience].append(member)

    def share_out(self, unheld: Sequence[int]) -> None:
        """Decides all shares. `unheld`: by audience, the number of its topics' partitions without an owner."""
        # Topics with few subscribers leave less choice, so they come first.
        in_order = sorted(range(len(self.subscribers)), key=lambda it: (len(self.subscribers[it]), it))
        for audience in in_order:
            self._deal_out(audience, unheld[audience])
        while sum(self._level(it) for it in in_order):
            pass
        if len(self.subscribers) > 1:
            self._make_all_circles()

    def _deal_out(self, audience: int, count: int) -> None:
        if count == 0:
            return
        least_loaded = [(self.loads[member], member) for member in self.subscribers[audience]]
        heapify(least_loaded)
        for _ in range(count):
            _, member = least_loaded[0]
            self._give(audience, member)
            heapreplace(least_loaded, (self.loads[member], member))

    def _level(self, audience: int) -> int:
        """Moves partitions from the most to the least loaded until they differ by one. Returns the number moved."""
        subscribers = self.subscribers[audience]
        loads = [self.loads[it] for it in subscribers]
        if max(loads) - min(loads) <= 1:
            return 0
        givers = [self._as_giver(it, audience) for it in subscribers if self.shares[it].get(audience)]
        takers = [self._as_taker(it, audience) for it in subscribers]
        heapify(givers)
        heapify(takers)
        moved = 0
        while givers:
            giver, taker = givers[0][-1], takers[0][-1]
            if not self.shares[giver].get(audience):
                heappop(givers)
            elif givers[0] != self._as_giver(giver, audience):
                heapreplace(givers, self._as_giver(giver, audience))
            elif takers[0] != self._as_taker(taker, audience):
                heapreplace(takers, self._as_taker(taker, audience))
            elif self.loads[giver] - self.loads[taker] <= 1:
                break
            else:
                self._move(giver, audience, taker)
                # A giver's place among the takers only gets better, and must be found at once.
                heappush(takers, self._as_taker(giver, audience))
                heappush(givers, self._as_giver(taker, audience))
                moved += 1
        return moved

    def _as_giver(self, member: int, audience: int) -> tuple[int, int, int]:
        return (-self.loads[member], self._cost_of_giving(member, audience), member)

    def _as_taker(self, member: int, audience: int) -> tuple[int, int, int]:
        return (self.loads[member], self._cost_of_taking(member, audience), member)

    def _cost_of_giving(self, member: int, audience: int) -> int:
        """Returns 1 if the member gives up a partition that it had, 0 if it passes on one that it would have got."""
        return int(self.shares[member].get(audience, 0) <= self.held[member].get(audience, 0))

    def _cost_of_taking(self, member: int, audience: int) -> int:
        """Returns -1 if the member gets back a partition that it had, else 0."""
        return -int(self.shares[member].get(audience, 0) < self.held[member].get(audience, 0))

    def _move(self, giver: int, audience: int, taker: int) -> None:
        self.shares[giver][audience] -= 1
        self.loads[giver] -= 1
        self._give(audience, taker)

    def _give(self, audience: int, member: int) -> None:
        share = self.shares[member]
        share[audience] = share.get(audience, 0) + 1
        self.loads[member] += 1

    def _make_all_circles(self) -> None:
        """Makes moves in circles until none makes the whole cheaper.

        Bellman and Ford's search: the cost of the cheapest path to each vertex, from any other, falls step by step.
        Where the steps by which it fell close a circle, that circle's cost is below zero. None is left when no cost
        falls any more. The vertices are the members, then the audiences, then the one where loads are compared.

        Moves change the costs of steps, so the paths are reset. The costs may stay: the search may begin with any.
        """
        vertices = len(self.shares) + len(self.subscribers) + 1
        cost = [0] * vertices
        before = [_NOWHERE] * vertices
        reached = list(range(vertices))
        while reached and self._steps < STEPS:
            reached = self._reach_on(reached, cost, before)
            if circles := list(_circles(before, reached)):
                for circle in circles:
                    for giver, audience, taker in self._moves(circle):
                        self._move(giver, audience, taker)
                before = [_NOWHERE] * vertices
                reached = sorted({*reached, *(it for circle in circles for it in circle)})

    def _reach_on(self, reached: Sequence[int], cost: list[int], before: list[int]) -> list[int]:
        """Takes one step from the vertices reached last. Returns the vertices whose cost fell."""
        come_down: dict[int, None] = {}
        for vertex in reached:
            for there, new_cost in self._cheaper_from(vertex, cost):
                if new_cost < cost[there]:
                    cost[there] = new_cost
                    before[there] = vertex
                    come_down[there] = None
        return list(come_down)

    def _cheaper_from(self, vertex: int, cost: Sequence[int]) -> list[tuple[int, int]]:
        """Returns the vertices to which a partition, or a step of load, may go, and the lower cost there."""
        members, audiences = len(self.shares), len(self.subscribers)
        at_loads = members + audiences
        load_cost = audiences + 1  # An audience lies at most once on a circle, and costs or saves at most one.
        so_far = cost[vertex]
        if vertex < members:
            self._steps += 1 + len(self.shares[vertex])
            there = [(at_loads, so_far + load_cost * self.loads[vertex])]
            for audience, count in self.shares[vertex].items():
                if count:
                    there.append((members + audience, so_far + self._cost_of_giving(vertex, audience)))
            return there
        if vertex < at_loads:
            audience = vertex - members
            subscribers, holders = self.subscribers[audience], self._holders[audience]
            self._steps += len(subscribers) + len(holders)
            there = [(it, so_far + self._cost_of_taking(it, audience)) for it in holders]
            there += [(it, so_far) for it in subscribers if so_far < cost[it]]
            return there
        self._steps += members
        one_less = so_far + load_cost
        return [
            (it, one_less - load_cost * load)
            for it, load in enumerate(self.loads)
            if load and one_less - load_cost * load < cost[it]
        ]

    def _moves(self, circle: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        members, audiences = len(self.shares), len(self.subscribers)
        for index, vertex in enumerate(circle):
            if members <= vertex < members + audiences:
                yield circle[index - 1], vertex - members, circle[(index + 1) % len(circle)]


def _circles(before: Sequence[int], reached: Sequence[int]) -> Iterator[list[int]]:
    """Returns the circles found by going back from vertex to vertex, each in the order of the moves."""
    seen_from: dict[int, int] = {}
    for start in reached:
        vertex = start
        while vertex != _NOWHERE and vertex not in seen_from:
            seen_from[vertex] = start
            vertex = before[vertex]
        if vertex != _NOWHERE and seen_from[vertex] == start:
            circle = [vertex]
            while (previous := before[circle[-1]]) != vertex:
                circle.append(previous)
            yield circle[::-1]
