"""Every answer of every API: accepted, refused and failed in every way that can be enumerated."""
