"""The base of errors that the person at the terminal can mend."""


class GifError(Exception):
    """Something a person can put right; the message says what is wrong, where, and what to do."""
