"""Changed copies of immutable values, which is how everything in the model moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from attrs import evolve as evolve
else:

    def evolve(value: Any, **changes: Any) -> Any:
        """As `attrs.evolve`. A value without slots is copied as it is, which takes a tenth of the time: the classes
        that change with every action are such. They check nothing when they are built."""
        fields = getattr(value, "__dict__", None)
        if fields is None:
            return attrs.evolve(value, **changes)
        changed = object.__new__(type(value))
        changed.__dict__.update(fields, **changes)
        return changed
