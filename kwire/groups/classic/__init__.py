"""The classic kind of group: members that join, a leader that assigns, generations."""
