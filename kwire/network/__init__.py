"""Sockets: accepting connections, receiving requests, and sending responses."""
