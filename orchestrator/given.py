"""What was given: structs that remember which of their fields were named, and values of the wrong kind."""

from typing import TYPE_CHECKING, Any

import msgspec

from orchestrator.errors import InvalidOption

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


def check_kind(field: str, value: object, kind: type, *, or_none: bool = True) -> None:
    """Raise `InvalidOption` unless `value` is a `kind`, or None; a mapping, say, is none."""
    if not isinstance(value, kind) and not (or_none and value is None):
        raise InvalidOption(field, f"must be {kind.__name__}(…), not {type(value).__name__}")
