"""Files as they were at a revision, out of Git and DVC's cache, with nothing checked out.

A revision is all that DVC takes for one: a commit, a tag, a branch, the name of an experiment.
"""

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from vlm.errors import UserError

if TYPE_CHECKING:  # DVC takes a second to import, which only those who need it wait for
    from dvc.repo import Repo
    from dvc.scm import Git


class Revision:
    """The files of one revision, for as long as `open_revision` holds it."""

    def __init__(self, name: str, repo: "Repo") -> None:
        """Holds on to an opened repository.

        Args:
            name: As the user wrote it.
            repo: DVC's, at that revision.
        """
        self.name = name
        self._files = repo.dvcfs
        self._tracked = repo.index.data_keys.get("repo", set())

    def read(self, path: str) -> bytes:
        """A file of one of DVC's outs.

        Raises:
            UserError: It isn't in the cache, and no remote has it; or no such file at all.
        """
        from dvc.exceptions import DvcException
        from dvc_data.index import DataIndexError

        folder = PurePosixPath(path).parent
        if folder.parts not in self._tracked:
            raise UserError(f"{self.name}: DVC can't read it: got no {folder} among its outs")
        try:
            return self._files.read_bytes(path)
        except (FileNotFoundError, DataIndexError) as error:
            raise UserError(
                f"{self.name}: {folder} isn't in DVC's cache; check that revision out and run"
                " dvc repro, or dvc exp apply it"
            ) from error
        except (DvcException, OSError) as error:  # of a remote, mostly
            raise UserError(f"{self.name}: DVC can't read it: {_first_line(error)}") from error

    def files(self, folder: str) -> list[str]:
        """The paths of a folder's files, as far as the cache knows them."""
        from dvc_data.index import DataIndexError

        try:
            return sorted(self._files.ls(folder, detail=False))
        except (OSError, DataIndexError):
            return []


@contextmanager
def open_revision(name: str) -> Iterator[Revision]:
    """The revision `name` of the repository in the working directory.

    Raises:
        UserError: No such revision, or no repository of Git and DVC.
    """
    from dvc.exceptions import DvcException, NotDvcRepoError
    from dvc.repo import Repo
    from dvc.repo.brancher import switch
    from dvc.scm import Git, RevError, SCMError, resolve_rev

    try:
        repo = Repo(".")
    except (NotDvcRepoError, SCMError):
        repo = None
    if repo is None or not isinstance(repo.scm, Git):
        raise UserError(
            f"{name}: no such path, and no revision without a repository of Git and DVC here"
        )
    with repo:
        try:
            _check_commit(repo.scm, resolve_rev(repo.scm, name), name)
            with switch(repo, name):
                yield Revision(name, repo)
        except RevError as error:
            hint = _hint(name, _known_names(repo.scm))
            raise UserError(f"{name}: no such path, revision or experiment{hint}") from error
        except DvcException as error:  # of a dvc.yaml that DVC can't read, mostly
            raise UserError(f"{name}: DVC can't read it: {_first_line(error)}") from error


def _check_commit(scm: "Git", revision: str, name: str) -> None:
    """Git takes a folder of a commit, such as HEAD:data, for a revision too, and DVC trips on it.

    Raises:
        RevError: No commit.
    """
    from dvc.scm import RevError, SCMError

    try:
        scm.resolve_commit(revision)
    except (AttributeError, SCMError) as error:
        raise RevError(f"{name} is no commit") from error


def _known_names(scm: "Git") -> list[str]:
    """Branches, tags and experiments."""
    from dvc.repo.experiments.utils import exp_refs

    named = [*scm.list_branches(), *scm.list_tags()]
    return sorted({*named, *(ref.name for ref in exp_refs(scm) if ref.name)})


def _hint(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
