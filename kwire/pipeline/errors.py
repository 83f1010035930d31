"""What ends a job that is no fault of the job's."""

from __future__ import annotations


class PipelineError(Exception):
    """What the user of a job can mend: one line that says what happened, to what, and what to do. Exit code 2."""
