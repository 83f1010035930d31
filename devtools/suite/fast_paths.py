"""A test run without the fast paths: KWIRE_FAST_PATHS=off, for the brokers in the processes of the run."""

from __future__ import annotations

import os

from kwire.config.tables.broker import KWIRE_CONFIGS

SWITCH = "KWIRE_FAST_PATHS"


def follow_environment() -> None:
    """Makes kwire.fast.paths.enable false by default, if the environment has KWIRE_FAST_PATHS=off."""
    if os.environ.get(SWITCH) == "off":
        # Definitions are frozen, since only tests change one.
        object.__setattr__(KWIRE_CONFIGS["kwire.fast.paths.enable"], "default", False)
