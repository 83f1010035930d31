"""The pytest plugin of kwire."""
