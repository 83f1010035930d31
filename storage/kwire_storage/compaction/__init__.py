"""Log compaction: its rules, its plan, and the writing of the new segments."""
