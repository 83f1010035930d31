"""The metadata service on a log in a file and on a distant one, and clusters as images only."""
