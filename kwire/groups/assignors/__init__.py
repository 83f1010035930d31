"""The broker's assignors of consumer groups (KIP-848): which partitions each member of a group shall have.

`assignor.py` is what an assignor is asked and answers. An assignor is a pure function: the same group gives the same
assignment, in whatever order its dicts were filled. `uniform.py` and `range.py` are the two that Kafka has, too.
`simple.py` is the one of share groups, which have no choice.
"""

from __future__ import annotations

from kwire.groups.assignors.assignor import Assignor
from kwire.groups.assignors.range import RangeAssignor
from kwire.groups.assignors.uniform import UniformAssignor

_IN_ORDER: tuple[Assignor, ...] = (UniformAssignor(), RangeAssignor())

ASSIGNORS: dict[str, Assignor] = {it.name: it for it in _IN_ORDER}
"""By name. The first is the default (`group.consumer.assignors`)."""
