"""Brokers in this process: with a disk in memory, with or without sockets, for tests of handlers and coordinators."""
