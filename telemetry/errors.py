"""Errors that are sentences."""


class PushscopeError(ValueError):
    """Something the user can mend. The message is one whole sentence: expected, found, what to do.

    Commands print it and exit non-zero; nothing else of it is for people.
    """
