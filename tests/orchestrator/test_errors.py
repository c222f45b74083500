"""The tree of errors is as its docstring draws it."""

import inspect
import re

from orchestrator import errors


def test_the_drawing_is_the_tree() -> None:
    drawn: dict[str, str] = {}
    path: list[str] = []
    lines = (errors.__doc__ or "").splitlines()
    margin = next(line.index("KargahError") for line in lines if line.strip() == "KargahError")
    for line in lines:
        if found := re.match(r"^([ │├└─]*)([A-Z]\w+)(?:\s{2,}|$)", line[margin:]):
            depth = len(found[1]) // 4
            path[depth:] = [found[2]]
            drawn[found[2]] = path[depth - 1] if depth else "Exception"
    real = {
        name: kind.__bases__[0].__name__
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if kind.__module__ == errors.__name__
    }
    assert drawn == real


def test_an_invalid_option_names_its_field_and_is_a_value_error() -> None:
    problem = errors.InvalidOption("priority", "must be small")
    assert (problem.field, problem.problem, str(problem)) == ("priority", "must be small", "priority: must be small")
    assert isinstance(problem, ValueError)


def test_a_processors_error_carries_details() -> None:
    problem = errors.RetryLater("busy", 5, host="x")
    assert (problem.kind, problem.delay_ms, problem.details) == ("transient", 5, {"host": "x"})
