"""One exception for a user's mistake: the command line turns it into one line and exit code 2."""

__all__ = ["UserError", "printable"]


def printable(text: str) -> str:
    """The text with what is no Unicode, as in a file's name of another coding, as escapes."""
    return text.encode(errors="backslashreplace").decode()


class UserError(ValueError):
    """A value that the user gave cannot be used; the message names it and says what is wanted."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))
