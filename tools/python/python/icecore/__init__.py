"""Icecore archives of chain state: what was the value of key K at block N, and can you prove it?

An archive is opened by path, or by the URL of a bucket, and only read: blocks are written by the command ``icecore``, or from Rust.

>>> import icecore
>>> archive = icecore.open("chain.ice")
>>> archive.get("kv", b"alice", at=1)
b'100'
>>> for block, value in archive.history("kv", b"bob"):
...     print(block, value)
3 None
1 b'7'

Scans, histories and long lists of keys are tables (:class:`Rows`) that pandas, Polars, DuckDB and whatever else takes Arrow streams
read batch by batch. Everything raised on purpose is an :class:`Error`, or a ``TypeError`` where an argument has the wrong type.
"""

import os

from ._native import Archive, RowIterator, Rows, open, verify
from ._native import entered_child as _entered_child
from .errors import (
    BusyError,
    ClosedError,
    CorruptError,
    Error,
    LimitError,
    MisuseError,
    NoSpaceError,
    NotFoundError,
    NotHeldError,
    OutOfRangeError,
    ProofError,
    StorageError,
    UnknownDomainError,
    UnsupportedError,
)
from .proof import Proof

__all__ = [
    "Archive",
    "BusyError",
    "ClosedError",
    "CorruptError",
    "Error",
    "LimitError",
    "MisuseError",
    "NoSpaceError",
    "NotFoundError",
    "NotHeldError",
    "OutOfRangeError",
    "Proof",
    "ProofError",
    "RowIterator",
    "Rows",
    "StorageError",
    "UnknownDomainError",
    "UnsupportedError",
    "open",
    "verify",
]

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_entered_child)
