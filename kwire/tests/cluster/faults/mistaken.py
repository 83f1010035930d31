"""`kwire` with a deliberate mistake of `kwire/tests/simulation/mistakes.py`, to see that a run finds it.

python -m kwire.tests.cluster.faults.mistaken "a follower does not cut" serve ...
"""

from __future__ import annotations

import sys

from kwire.cli import main
from kwire.tests.simulation.mistakes import MISTAKES
from storage.tests.power_cuts.mutants import at_large

if __name__ == "__main__":
    with at_large(MISTAKES[sys.argv[1]]):
        main(sys.argv[2:])
