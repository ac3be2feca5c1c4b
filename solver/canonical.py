"""One code for all states that differ only in which of several alike requests is which.

Requests are alike if swapping them, with their texts, leaves the scope as it is: equal lengths and answers, and every
other request shares equally long prefixes with both. Then the whole model is the same after the swap: it compares
tokens and names only for equality. Alike requests are sorted by phase, place in the queue and places of their blocks,
never permuted; where two compare equal they have nothing that tells them apart, but for aborted ones, of which some
states keep two codes.
"""

from __future__ import annotations

import attrs

from model.memory import Content, Garbage
from model.pool import Label
from model.request import Status
from model.tokens import Prefix
from solver.codec import LIVE, Cached, Code, Codec
from solver.scope import Scope

Renaming = tuple[int, ...]
"""By position in the scope: the position of the request whose name it takes."""


def alike(scope: Scope) -> tuple[tuple[int, ...], ...]:
    """Classes of two or more requests that may be swapped, as positions in the scope."""
    texts = scope.texts
    shapes = [
        (sum(s.length for s in arrival.prompt), sum(s.length for s in arrival.output), arrival.answers)
        for arrival in scope.arrivals
    ]

    def swappable(one: int, other: int) -> bool:
        return shapes[one] == shapes[other] and all(
            _shared(texts[one], texts[third]) == _shared(texts[other], texts[third])
            for third in range(len(texts))
            if third not in (one, other)
        )

    classes: list[list[int]] = []
    for position in range(len(texts)):
        for known in classes:
            if swappable(known[0], position):
                known.append(position)
                break
        else:
            classes.append([position])
    return tuple(tuple(known) for known in classes if len(known) > 1)


def _shared(one: Prefix, other: Prefix) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


class RequestSorter:
    """Sorts alike requests in the codes of one codec."""

    def __init__(self, scope: Scope, codec: Codec) -> None:
        self.classes = alike(scope)
        self._codec = codec
        self._blocks = scope.configuration.pool_blocks - 1
        self._symbols: dict[Renaming, bytearray] = {}
        self._mapped: dict[Renaming, int] = {}
        self._records: dict[tuple[Renaming, int], int] = {}
        self._own: dict[int, frozenset[int]] = {}

    def sort(self, code: Code) -> tuple[Code, Renaming]:
        """The code with alike requests in order, and how they were renamed."""
        identity = tuple(range(len(self._codec.names)))
        renaming = self._renaming(code, identity)
        return (code, renaming) if renaming == identity else (self.rename(code, renaming), renaming)

    def _renaming(self, code: Code, identity: Renaming) -> Renaming:
        names, symbols = len(identity), code[len(code) - self._blocks :]
        places: dict[int, int] = {}
        position = names + 3
        for place in range(code[:names].count(LIVE)):
            number = code[position] << 8 | code[position + 1]
            places[self._codec.records[number].request] = place
            position += 2 + self._codec.held[number]

        def key(request: int) -> tuple[int, int, tuple[int, ...]]:
            own = self._symbols_of(request)
            blocks = tuple(block for block, symbol in enumerate(symbols) if symbol in own)
            return code[request], places.get(request, 0), blocks

        renaming = list(identity)
        for known in self.classes:
            for slot, request in zip(known, sorted(known, key=key), strict=True):
                renaming[request] = slot
        return tuple(renaming)

    def _symbols_of(self, request: int) -> frozenset[int]:
        """Symbols of what belongs to a prefix of the request's text."""
        count = len(self._codec.symbols)
        if self._own.get(-1) != frozenset((count,)):
            self._own = {-1: frozenset((count,))}
        own = self._own.get(request)
        if own is None:
            text = self._codec.texts[request]
            own = frozenset(
                symbol
                for symbol, value in enumerate(self._codec.symbols)
                if (prefix := _prefix(value)) and text[: len(prefix)] == prefix
            )
            self._own[request] = own
        return own

    def rename(self, code: Code, renaming: Renaming) -> Code:
        """The code of the state in which each request has the name that `renaming` gives it."""
        names = len(renaming)
        phases = bytearray(names)
        for request, slot in enumerate(renaming):
            phases[slot] = code[request]
        renamed = bytes(phases) + code[names : names + 3]
        position, aborted = names + 3, False
        for _ in range(phases.count(LIVE)):
            number = code[position] << 8 | code[position + 1]
            end = position + 2 + self._codec.held[number]
            renamed += self._record(renaming, number).to_bytes(2, "big") + code[position + 2 : end]
            aborted |= self._codec.records[number].status is Status.ABORTED_LOADING
            position = end
        renamed += code[position:].translate(self._table(renaming))
        # Aborted requests are in no queue; the codec puts them in the order of their names.
        return self._codec.encode(self._codec.decode(renamed)) if aborted else renamed

    def _record(self, renaming: Renaming, number: int) -> int:
        found = self._records.get((renaming, number))
        if found is None:
            record = self._codec.records[number]
            found = self._codec.record(attrs.evolve(record, request=renaming[record.request]))
            self._records[renaming, number] = found
        return found

    def _table(self, renaming: Renaming) -> bytearray:
        table = self._symbols.setdefault(renaming, bytearray(256))
        for symbol in range(self._mapped.get(renaming, 0), len(self._codec.symbols)):
            table[symbol] = self._codec.symbol(self._renamed(self._codec.symbols[symbol], renaming))
        self._mapped[renaming] = len(self._codec.symbols)
        return table

    def _renamed(self, value: Cached | Content, renaming: Renaming) -> Cached | Content:
        prefix = _prefix(value)
        texts = self._codec.texts
        owner = next((r for r, text in enumerate(texts) if text[: len(prefix)] == prefix), None)
        if not prefix or owner is None:
            return value
        other = texts[renaming[owner]][: len(prefix)]
        if isinstance(value, Cached):
            return Cached(Label(value.label.group, other), value.age)
        assert not isinstance(value, Garbage)
        return attrs.evolve(value, prefix=other)


def _prefix(value: Cached | Content) -> Prefix:
    if isinstance(value, Garbage):
        return ()
    return value.label.prefix if isinstance(value, Cached) else value.prefix
