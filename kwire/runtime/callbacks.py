"""The default of callbacks."""


def ignore(*_: object) -> None:
    """Does nothing: a callback where none is needed."""
