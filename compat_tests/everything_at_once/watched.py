"""The `kwire` command as a run starts it: with the guard that holds workers to their duties, or with a mistake."""

from __future__ import annotations

import os

from kwire.cli import main
from kwire.tests import ownership_guard

from .mistakes import MISTAKES, VARIABLE

mistake = os.environ.get(VARIABLE)
if mistake is None:
    ownership_guard.install()
else:
    MISTAKES[mistake].make()
main(prog_name="kwire")
