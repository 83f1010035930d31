"""A partition's state of its producers and their transactions."""
