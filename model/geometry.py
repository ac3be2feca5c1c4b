"""Conversions between tokens and block-table columns. Mirrors `cdiv` and `round_down` of `vllm/utils`.

A *boundary* is a number of tokens n and stands for the prefix of exactly n tokens. Column c of a group whose
block is B tokens wide covers the tokens [c * B, (c + 1) * B).
"""

from __future__ import annotations


def columns_for(tokens: int, block: int) -> int:
    """Number of columns (blocks) that `tokens` tokens need."""
    return -(-tokens // block)


def column_ending_at(boundary: int, block: int) -> int:
    """Column that holds the last token before `boundary` (tokens, at least 1).

    For a recurrent group this is where state@boundary lives: ceil(boundary / block) - 1.
    """
    return columns_for(boundary, block) - 1


def columns_written(computed: int, end: int, block: int, recurrent: bool) -> range:
    """Columns into which a chunk [computed, end) writes: a recurrent group only into that of its last token."""
    return range((end - 1 if recurrent else computed) // block, columns_for(end, block))


def floor_to(tokens: int, unit: int) -> int:
    """Greatest multiple of `unit` (tokens) that is at most `tokens`."""
    return tokens - tokens % unit
