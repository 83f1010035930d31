"""What a partition knows of its producers and their transactions."""
