"""The broker's assignors of consumer groups (KIP-848), which decide the partitions of each member of a group.

`assignor.py` has the interface of an assignor. An assignor is a pure function: the same group gives the same
assignment, in whatever order its dicts were filled. `uniform.py` and `range.py` are the two that Kafka has, too.
`simple.py` is the one of share groups, which have no choice.
"""

from __future__ import annotations

from kwire.groups.assignors.assignor import Assignor
from kwire.groups.assignors.range import RangeAssignor
from kwire.groups.assignors.uniform import UniformAssignor

_IN_ORDER: tuple[Assignor, ...] = (UniformAssignor(), RangeAssignor())

ASSIGNORS: dict[str, Assignor] = {it.name: it for it in _IN_ORDER}
"""The assignors by name. The first is the default (`group.consumer.assignors`)."""
