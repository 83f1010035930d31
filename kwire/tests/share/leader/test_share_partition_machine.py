"""A share partition against the slow model, in any order of steps. `world.py` has the steps."""

from __future__ import annotations

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from devtools.suite.tiers import examples
from testkit.share.leader.world import World


@attrs.define
class Drawn:
    data: st.DataObject

    def below(self, count: int) -> int:
        return self.data.draw(st.integers(0, count - 1))


class SharePartitionMachine(RuleBasedStateMachine):
    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.world = World(Drawn(data))

    def act(self, data: st.DataObject) -> World:
        self.world.pick = Drawn(data)
        return self.world

    @rule(data=st.data())
    def fetch(self, data: st.DataObject) -> None:
        self.act(data).fetch()

    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        self.act(data).acknowledge()

    @rule(data=st.data())
    def acknowledge_each(self, data: st.DataObject) -> None:
        self.act(data).acknowledge_each()

    @rule(data=st.data())
    def acknowledge_wrongly(self, data: st.DataObject) -> None:
        self.act(data).acknowledge_wrongly()

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.act(data).release()

    @rule(data=st.data())
    def wait(self, data: st.DataObject) -> None:
        self.act(data).wait()

    @rule(data=st.data())
    def persist(self, data: st.DataObject) -> None:
        self.act(data).persist()

    @rule(data=st.data())
    def hear(self, data: st.DataObject) -> None:
        self.act(data).hear()

    @rule(data=st.data())
    def copy_letter(self, data: st.DataObject) -> None:
        self.act(data).copy_letter()

    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        self.act(data).append()

    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        self.act(data).compact()

    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        self.act(data).trim()

    @rule(data=st.data())
    def change_limits(self, data: st.DataObject) -> None:
        self.act(data).change_limits()

    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        self.act(data).restart()

    @rule(data=st.data())
    def fence(self, data: st.DataObject) -> None:
        self.act(data).fence()

    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        """Settles at any time, and continues after that."""
        self.act(data).settle()


TestSharePartition = SharePartitionMachine.TestCase
TestSharePartition.settings = settings(max_examples=examples(30), stateful_step_count=40, deadline=None)
