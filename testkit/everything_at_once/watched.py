"""The `kwire` command as a run starts it: with the guard that holds workers to their duties, or with a mistake."""

from __future__ import annotations

import os

from kwire.cli import main
from testkit.basics import ownership_guard
from testkit.everything_at_once.races import RACES
from testkit.mutants.processes import VARIABLE

mistake = os.environ.get(VARIABLE)
if mistake is None:
    ownership_guard.install()
else:
    RACES[mistake].make()
main(prog_name="kwire")
