"""The base class of errors that a user can fix."""


class GifError(Exception):
    """An error that a user can fix. The message says what is wrong, where, and what to do."""
