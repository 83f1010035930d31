"""Looking after the logs on disk: cleaning, retention, moves between log dirs, room."""
