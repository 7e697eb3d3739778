"""Proofs, as values that can be kept and sent."""

import json
from dataclasses import dataclass
from typing import Optional, Union

from ._native import verify
from .errors import ProofError


@dataclass(frozen=True)
class Proof:
    """A proof of the value of a key, or of its absence, made by ``Archive.prove``.

    Its fields are claims until they are checked against a root from elsewhere, and then all but ``block`` are proved.

    >>> proof = archive.prove("kv", b"carol", at=1)
    >>> proof.value is None
    True
    >>> proof.verify(archive.root(at=1))
    >>> icecore.Proof.from_json(proof.to_json()) == proof
    True
    """

    domain: str
    key: bytes
    value: Optional[bytes]
    """``None``: the key is absent."""
    block: int
    """The height that was asked for; not proved."""
    root: bytes
    """The root that the archive has for the block."""
    ics23: bytes
    """The ICS23 commitment proof."""

    def verify(self, root: Union[bytes, str]) -> None:
        """Checks what the proof claims against a root that you trust.

        Raises:
            ProofError: it does not hold.
        """
        verify(self, root, self.domain, self.key, self.value)

    def to_json(self) -> str:
        """The proof as ``icecore prove`` writes it and ``icecore verify-proof`` reads it."""
        return json.dumps(
            {
                "domain": self.domain,
                "key": _hex(self.key),
                "value": None if self.value is None else _hex(self.value),
                "block": self.block,
                "root": _hex(self.root),
                "proof": _hex(self.ics23),
            }
        )

    @classmethod
    def from_json(cls, text: Union[bytes, str]) -> "Proof":
        """Reads what :meth:`to_json` or ``icecore prove`` wrote. It is not checked by that.

        Raises:
            ProofError: the text is no such document.
        """
        try:
            document = json.loads(text)
            value = document["value"]
            proof = cls(
                domain=_text(document["domain"]),
                key=_bytes(document["key"]),
                value=None if value is None else _bytes(value),
                block=document["block"],
                root=_bytes(document["root"]),
                ics23=_bytes(document["proof"]),
            )
            if not isinstance(proof.block, int):
                raise TypeError("block is no number")
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise ProofError(f"this is not a proof as `icecore prove` writes it: {error!r}") from None
        return proof


def _hex(data: bytes) -> str:
    return "0x" + data.hex()


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise TypeError(f"{found!r} is no text")
    return found


def _bytes(found: object) -> bytes:
    digits = _text(found)
    if not digits.startswith("0x"):
        raise ValueError("bytes are hex digits after 0x")
    return bytes.fromhex(digits[2:])
