"""A participant's files of correlations: one, or one of each of three dealers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from privet.arithmetic.rings import RingArray
from privet.errors import CorrelationError
from privet.runtime.correlations import Source
from privet.runtime.dealing_ahead import Cover
from privet.runtime.dealt_file import NEW_DEALING, FileSource
from privet.runtime.seeds import same_seeds
from privet.transport.channel import Expected


def open_dealt(paths: Sequence[str | Path], dealers: dict[str, str]) -> DealtSource:
    """Open the files that a job's dealers, by name with their fingerprints, have signed."""
    if len(paths) != len(dealers):
        raise CorrelationError(
            f"{', '.join(map(str, paths))}: the job has {len(dealers)} dealers, and each of them "
            f"makes a file for us: name {len(dealers)} of them"
        )
    if len(paths) == 1:
        return FileSource(paths[0], *dealers.values())
    return FilesOfThree(paths, dealers)


class FilesOfThree(Source):
    """A file of each of three dealers, in their order: used together, once."""

    def __init__(self, paths: Sequence[str | Path], dealers: dict[str, str]) -> None:
        self._names = tuple(dealers)
        self._files: list[FileSource] = []
        try:
            for path, fingerprint in zip(paths, dealers.values(), strict=True):
                self._files.append(FileSource(path, fingerprint))
            self._check()
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        """Raise CorrelationError unless the files belong together."""
        first = self._files[0]
        for number, file in enumerate(self._files):
            if (file.cover.dealers, file.cover.dealer) != (len(self._files), number):
                raise CorrelationError(
                    f"{file.path}: is no file that {self._names[number]} made as one of three "
                    f"dealers: {NEW_DEALING}"
                )
            for key in ("dealing", "participant", "number", "terms"):
                if getattr(file.cover, key) != getattr(first.cover, key):
                    raise CorrelationError(
                        f"{file.path}: is of another dealing than {first.path}, or for somebody "
                        "else: put our three files of one dealing there"
                    )

    @property
    def path(self) -> Path:
        """Where the first of them is."""
        return self._files[0].path

    @property
    def cover(self) -> Cover:
        """What they say of themselves: but for the dealer, the same."""
        return self._files[0].cover

    def take(self, record: Path) -> None:
        """Use all of them up; raise CorrelationError if one was used before."""
        self.check_unused(record)
        for file in self._files:
            file.take(record)

    def check_unused(self, record: Path) -> None:
        """Raise CorrelationError if one of them, or a copy of it, was used before."""
        for file in self._files:
            file.check_unused(record)

    def start(self, index: int) -> tuple[str, list[bytes]]:
        """Return the dealing's name and three seeds, of each of which two dealers have told us."""
        seeds = [file.start(index)[1] for file in self._files]
        return self.cover.dealing, same_seeds(seeds, self._names)

    def receive(self, expected: Expected, tag: int, step: str, dealer: int = 0) -> RingArray:
        """Read the next array of one of the dealers."""
        return self._files[dealer].receive(expected, tag, step)

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()


DealtSource: TypeAlias = FileSource | FilesOfThree
"""What a participant has of one dealer, or of three."""
