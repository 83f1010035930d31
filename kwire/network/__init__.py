"""Sockets and what comes over them: accepting, receiving, the turns that connections take, sending."""
