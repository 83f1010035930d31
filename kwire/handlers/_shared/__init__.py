"""What several handlers have in common."""
