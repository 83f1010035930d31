"""Pages of the documentation, run as they are printed."""
