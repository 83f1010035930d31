"""The default of callbacks."""


def ignore(*_: object) -> None:
    """Does nothing, for a callback that nobody needs."""
