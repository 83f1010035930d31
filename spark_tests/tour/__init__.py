"""docs/tour.md, run as it is printed."""
