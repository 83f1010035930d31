"""The pauses after which the supervisor starts a node again. Its processes are in tests/cli/test_serve_nodes.py."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from kwire.node import supervisor
from kwire.node.supervisor import SETTLED_S


def test_a_node_that_ends_soon_is_started_again_after_growing_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    runs_s = [0.0, 1.0, 0.0, 0.0, SETTLED_S, 0.0, 0.0]
    began_s: list[float] = []

    async def run_once(node: supervisor._Node, _say: object) -> int:
        began_s.append(trio.current_time())
        node.is_up.set()
        if len(began_s) == len(runs_s):
            node.stop.set()
        await trio.sleep(runs_s[len(began_s) - 1])
        return 1

    monkeypatch.setattr(supervisor, "_run_once", run_once)
    node = supervisor._Node(1, [])
    trio.run(supervisor._run, node, print, print, clock=MockClock(autojump_threshold=0))
    pauses_s = [later - earlier - ran for (earlier, later), ran in zip(pairwise(began_s), runs_s[:-1], strict=True)]
    assert pauses_s == pytest.approx([0.5, 1, 2, 4, 0.5, 1])
    assert node.has_ended.is_set()
