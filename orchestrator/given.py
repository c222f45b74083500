"""Structs that remember which of their fields were named when they were made."""

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    RemembersGiven = msgspec.StructMeta
else:

    class RemembersGiven(msgspec.StructMeta):
        """The metaclass; needs `dict=True`. Copies made by msgspec do not go through it, so they forget."""

        def __call__(cls, *args: Any, **fields: Any) -> Any:  # noqa: N805
            struct = super().__call__(*args, **fields)
            struct.__dict__["_given"] = frozenset(fields)
            return struct


def given(struct: msgspec.Struct) -> frozenset[str]:
    """The fields that were named; of a copy those that differ from their defaults."""
    remembered: frozenset[str] | None = struct.__dict__.get("_given")
    if remembered is not None:
        return remembered
    return frozenset(
        field.name for field in msgspec.structs.fields(struct) if getattr(struct, field.name) != field.default
    )
