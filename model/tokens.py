"""Token sequences and prefixes. Prefix identity is exact: a hash of n tokens is the prefix of n tokens itself."""

from __future__ import annotations

import attrs

from model.errors import ConfigurationError

Token = str
Prefix = tuple[Token, ...]

UNKNOWN_TOKEN: Token = "?"
"""What a worker takes a token for that it was not told; no text has it."""


@attrs.frozen
class Segment:
    """The first `length` tokens of a text with this name: Segment("x", 3) is x0 x1 x2."""

    text: str
    length: int

    def __attrs_post_init__(self) -> None:
        if not self.text or self.length < 0:
            raise ConfigurationError(f"segment {self.text!r} of {self.length} tokens; name a text and use 0 or more")


def begins(prefix: Prefix, text: Prefix) -> bool:
    """Whether `text` begins with `prefix`."""
    return text[: len(prefix)] == prefix


def tokens_of(segments: tuple[Segment, ...]) -> Prefix:
    """The tokens that the segments spell, one after another. Two prompts share exactly what is spelled alike."""
    return tuple(f"{segment.text}{position}" for segment in segments for position in range(segment.length))
