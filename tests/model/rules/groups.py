"""Operators give groups weights and limits, and say how groups are treated."""

from typing import Any

from hypothesis import strategies as st

from orchestrator.job import JobOptions
from tests.model.rules.adding import encoded
from tests.model.rules.weighted import INTERVAL_MS, RuledMachine, rule
from tests.model.rules.working import wishes

FREE = {"weight": None, "concurrency": None, "rate_max": None, "rate_ms": None, "max_waiting": None, "paused": False}


class GroupRules(RuledMachine):
    """What is done with groups."""

    @rule(3, gid=st.sampled_from("gghi*"), changes=st.sampled_from([
        {"weight": 3}, {"weight": 0.25}, {"concurrency": 1}, {"concurrency": 2}, {"concurrency": 0},
        {"rate_max": 1, "rate_ms": 1000}, {"rate_max": 2, "rate_ms": 5000}, {"max_waiting": 2}, {"paused": True},
        {"paused": False}, {"paused": False}, {"limited_ms": 2000}, {"limited_ms": 0}, FREE, FREE, FREE,
    ]))  # fmt: skip
    def set_group(self, gid: str, changes: dict[str, Any]) -> None:
        self.call("set_group", self.token(), gid, changes)

    @rule(2, changes=st.sampled_from([
        {"group_concurrency": 1}, {"group_concurrency": 0}, {"group_rate_max": 1, "group_rate_ms": 2000},
        {"group_rate_max": 0, "group_rate_ms": 0}, {"group_max_waiting": 3}, {"group_max_waiting": 0},
        {"ageing_ms": 1000}, {"ageing_ms": 0}, {"fair_ungrouped": 1}, {"fair_ungrouped": 0},
        {"group_concurrency": 0, "group_rate_max": 0, "group_rate_ms": 0, "group_max_waiting": 0},
    ]))  # fmt: skip
    def set_group_defaults(self, changes: dict[str, int]) -> None:
        self.call("set_group_defaults", self.token(), changes)

    @rule(1, most=st.integers(1, 3))
    def fill_a_group(self, most: int) -> None:
        self.call("set_group", self.token(), "i", {"max_waiting": most})
        header = b'{"n":"paint","g":"i"}'
        self.call("add_bulk", self.token(), [(f"i{number}", header, b"6") for number in range(2)])
        self.call("add_jobs", self.token(), [("i2", header, b"6"), ("i3", header, b"6")])

    @rule(
        3,
        count=st.integers(1, 3),
        groups=st.sampled_from([(None, None, None), ("g", "g", "h"), ("g", "h", "i"), (None, "g", "g")]),
        affinities=st.sampled_from([(None, None, None), ("m", "n", "m"), ("n", "n", "m"), ("n", "m", None)]),
        wishes=wishes,
    )
    def choose_among_some(
        self, count: int, groups: tuple[str | None, ...], affinities: tuple[str | None, ...], wishes: bytes
    ) -> None:
        """Jobs of one batch key, or with affinities, come, and a worker with wishes takes some of them."""
        options = [
            JobOptions(group=group, affinity_key=affinity, batch_key="b", telemetry=False)
            for group, affinity in zip(groups, affinities, strict=True)
        ]
        jobs = [(f"b{number}", encoded(each), b"7") for number, each in enumerate(options[:count])]
        self.call("add_bulk", self.token(), jobs)
        for _ in range(2):
            self.call("move_to_active", *self.lane(0), 2000, INTERVAL_MS, 2, wishes)

    @rule(1, when=lambda self: self.model.places["idle"])
    def groups_are_forgotten(self) -> None:
        self.rig.move_clock(3_600_000)
        self.call("move_due_jobs", 10)
