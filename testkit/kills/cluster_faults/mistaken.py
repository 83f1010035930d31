"""`kwire` with a deliberate mistake of `testkit/worlds/simulation/mistakes.py`, to see that a run finds it.

python -m testkit.kills.cluster_faults.mistaken "a follower does not cut" serve ...
"""

from __future__ import annotations

import sys

from kwire.cli import main
from testkit.mutants.changes import at_large
from testkit.worlds.simulation.mistakes import MISTAKES

if __name__ == "__main__":
    with at_large(MISTAKES[sys.argv[1]]):
        main(sys.argv[2:])
