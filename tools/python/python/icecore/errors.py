"""What goes wrong, by what to do about it. The text says what happened, to which file, and where in it."""


class Error(Exception):
    """Whatever this package raises on purpose, but for arguments of a wrong type."""


class CorruptError(Error):
    """Bytes of the archive are wrong or missing. Restore the file that is named from another copy."""


class UnsupportedError(Error):
    """The archive has a newer format than this package reads. Use a newer one."""


class StorageError(Error, OSError):
    """The system or the store refused. Mend path, permissions, disk or network, and repeat the call."""


class NoSpaceError(StorageError):
    """A disk is full, or the cache of a bucket."""


class LimitError(StorageError):
    """The system grants no more open files or mappings; the text names the limit."""


class MisuseError(Error, ValueError):
    """The call makes no sense, or does not fit the archive. Repeating it does not help."""


class UnknownDomainError(MisuseError):
    """The archive has no such domain; the text lists those that it has."""


class OutOfRangeError(Error, LookupError):
    """The height is above the head, below the first block, or was pruned. ``Archive.range`` says what can be read."""


class NotFoundError(Error, FileNotFoundError):
    """There is no archive at the place."""


class NotHeldError(Error, LookupError):
    """The archive is a partial copy, and the answer needs more than it holds. The text has the ``icecore pull`` that brings it."""


class BusyError(Error):
    """A writer changes the archive faster than it can be opened. Try again later."""


class ClosedError(Error):
    """The archive was closed, replaced by another one, or opened before a fork. Open it again."""


class ProofError(Error):
    """A proof does not hold, or is no proof."""
