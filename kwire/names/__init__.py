"""Names of topics, and patterns of names."""
