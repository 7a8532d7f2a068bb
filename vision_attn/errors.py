"""One exception for a user's mistake: the command line turns it into one line and exit code 2."""

__all__ = ["UserError"]


class UserError(ValueError):
    """A value that the user gave cannot be used; the message names it and says what is wanted."""
