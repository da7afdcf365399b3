"""Stored request bodies: compressed on the way in, exact texts on the way out (R71)."""

from __future__ import annotations

from typing import Final

import zstandard

from cohortd.cohorts.conversation import Candidate, candidate
from cohortd.cohorts.digest import parse

RAW: Final = 0
ZSTD: Final = 1

_compressor = zstandard.ZstdCompressor(level=1, write_content_size=True)
_decompressor = zstandard.ZstdDecompressor()


def pack(body: bytes) -> tuple[int, bytes]:
    """(codec, stored bytes) of a request body.

    The compressed bytes are copied: zstandard's own result keeps a buffer of the worst-case size (TRIAL 4).
    """
    packed = _compressor.compress(body)
    return (ZSTD, bytes(memoryview(packed))) if len(packed) < len(body) else (RAW, body)


def unpack(codec: int, stored: bytes) -> bytes:
    """The request body as it came."""
    return _decompressor.decompress(stored) if codec == ZSTD else stored


def exact_texts(codec: int, stored: bytes) -> Candidate:
    """The rollout's answer and reasoning exactly as sent, NUL and lone surrogates included."""
    fields = parse(unpack(codec, stored))
    if isinstance(fields, dict) and "response" in fields:
        return candidate(fields["response"])
    answer = fields["answer"] if isinstance(fields, dict) else ""
    return Candidate(str(answer), "")
