"""A node: its services put together (`broker.py`), run with its listeners (`running.py`), or started as a process each
(`supervisor.py`)."""
