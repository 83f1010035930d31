"""Sockets: accepting connections, receiving requests, scheduling the connections, and sending responses."""
