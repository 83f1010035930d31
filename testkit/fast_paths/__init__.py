"""Two brokers that differ only in their fast paths get the same frames, and must do the same, byte for byte."""
