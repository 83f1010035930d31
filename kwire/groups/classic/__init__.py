"""Classic groups: members that join, a leader that assigns, generations."""
