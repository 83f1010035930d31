"""The default of callbacks."""


def ignore(*_: object) -> None:
    """Does nothing: the default of a callback."""
