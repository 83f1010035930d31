"""The `kwire` command as a run starts it: with the guard that holds workers to their duties, or with a mistake."""

from __future__ import annotations

import os

from kwire.cli import main
from kwire.tests import ownership_guard

from ..mistakes_of_processes import VARIABLE
from .races import RACES

mistake = os.environ.get(VARIABLE)
if mistake is None:
    ownership_guard.install()
else:
    RACES[mistake].make()
main(prog_name="kwire")
