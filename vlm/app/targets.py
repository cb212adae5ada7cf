"""Files that a command is asked to write: whether it can, told in one line."""

from pathlib import Path
from tempfile import TemporaryFile

from vlm.errors import UserError


def check_writable(path: Path) -> None:
    """Make the folder of a file to be, and refuse one that nothing can be written to.

    Raises:
        UserError: A file above the path, no right to write, or a full disk.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> UserError:
    """What to say of a file whose writing failed so."""
    reason = "a file above it" if isinstance(error, FileExistsError) else error.strerror
    return UserError(f"{path}: got {reason}, expected a path that can be written")
