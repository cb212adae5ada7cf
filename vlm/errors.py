"""The one exception that a user is meant to read."""


class UserError(ValueError):
    """A mistake in what the user gave: one clear line, exit status 2, no traceback.

    The message names the thing, what was got and what was expected.
    """
