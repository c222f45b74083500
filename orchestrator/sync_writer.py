"""Writes the classes of `orchestrator.sync` from the asynchronous ones: `python -m orchestrator.sync_writer`.

Not in that package, so that it runs also when what it wrote cannot be imported any more.
"""

import ast
import builtins
import importlib
import importlib.util
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).with_name("sync")
CLASSES = {
    "queue.py": ("orchestrator.queue", "Queue"),
    "flows.py": ("orchestrator.flows", "FlowProducer"),
}
"""File → the asynchronous class that it is written from."""

INHERITED = frozenset({"close"})  # `Facade` has it
OF_ONE_LOOP = {"redis": "str"}
"""Arguments of constructors that may be an open client in async code: it would belong to another loop."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Method(NamedTuple):
    """A method, and the module that defines it."""

    node: Function
    module: str


def main() -> None:
    """Write all files, and format them where ruff is installed."""
    for file, (module, name) in CLASSES.items():
        (FOLDER / file).write_text(write(module, name))
    if importlib.util.find_spec("ruff") is not None:
        paths = [str(FOLDER / file) for file in CLASSES]
        for command in (["check", "--fix-only", "--quiet"], ["format", "--quiet"]):
            subprocess.run([sys.executable, "-m", "ruff", *command, *paths], check=True)


def write(module_name: str, class_name: str) -> str:
    """The text of a module with the synchronous `class_name`."""
    cls: type = getattr(importlib.import_module(module_name), class_name)
    methods = methods_of(cls)
    constructor = methods.pop("__init__")
    parts = [_constructor(constructor), *map(_method, methods.values())]
    imports = {f"from {module_name} import {class_name} as Asynchronous"}
    for method in (constructor, *methods.values()):
        imports |= set(_imports(method))
    return "\n".join(
        [
            f'"""`{class_name}` without async. Written by orchestrator/sync_writer.py: do not edit."""\n',
            *sorted(imports - {""}),
            "from orchestrator.sync.background import Facade\n\n",
            f"class {class_name}(Facade[Asynchronous]):",
            _docstring(f"`{module_name}.{class_name}` whose methods wait for their answer, in any thread.", 4),
            *parts,
        ]
    )


def methods_of(cls: type) -> dict[str, Method]:
    """The constructor and the public methods of a class and its bases, as they are written."""
    found: dict[str, Method] = {}
    for base in cls.__mro__[:-1]:
        for node in _class_node(base).body:
            is_wanted = isinstance(node, Function) and (node.name == "__init__" or not node.name.startswith("_"))
            if is_wanted and isinstance(node, Function) and node.name not in INHERITED:
                found.setdefault(node.name, Method(node, base.__module__))
    return found


def _constructor(method: Method) -> str:
    arguments = ast.unparse(_arguments(method.node))
    lines = [
        f"\n    def __init__({arguments}) -> None:",
        f"        super().__init__(lambda: Asynchronous({_passed_on(method.node)}))",
    ]
    if any(argument.arg == "name" for argument in method.node.args.args):
        lines.append("        self.name = name")
    return "\n".join([*lines, ""])


def _method(method: Method) -> str:
    node = method.node
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    returns = ast.unparse(_plain(node.returns)) if node.returns is not None else "None"
    call, way = f"opened.{node.name}({_passed_on(node)})", "_call"
    if decorators == ["property"]:
        call, way = f"opened.{node.name}", "_ask"
    elif decorators:
        raise NotImplementedError(f"{method.module}: {node.name} is decorated by {decorators}; teach {__name__} that")
    elif isinstance(node, ast.FunctionDef):
        way = "_ask"
    elif any(isinstance(each, ast.Yield) for each in ast.walk(node)):
        way, returns = "_iterate", returns.replace("AsyncIterator", "Iterator").replace("AsyncGenerator", "Generator")
    lines = [f"\n    @{decorator}" for decorator in decorators] or [""]
    return "\n".join(
        [
            *lines,
            f"    def {node.name}({ast.unparse(_arguments(node))}) -> {returns}:",
            _docstring(ast.get_docstring(node) or f"See `{node.name}` of the asynchronous class.", 8),
            f"        return self.{way}(lambda opened: {call})",
        ]
    )


def _arguments(node: Function) -> ast.arguments:
    arguments: ast.arguments = ast.parse(f"def _({ast.unparse(node.args)}): ...").body[0].args  # type: ignore[attr-defined]
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        if argument.annotation is not None:
            changed = OF_ONE_LOOP.get(argument.arg) if node.name == "__init__" else None
            argument.annotation = ast.Name(changed) if changed else _plain(argument.annotation)
    return arguments


def _passed_on(node: Function) -> str:
    given = node.args
    parts = [argument.arg for argument in [*given.posonlyargs, *given.args][1:]]
    parts += [f"*{given.vararg.arg}"] if given.vararg else []
    parts += [f"{argument.arg}={argument.arg}" for argument in given.kwonlyargs]
    parts += [f"**{given.kwarg.arg}"] if given.kwarg else []
    return ", ".join(parts)


def _plain(annotation: ast.expr) -> ast.expr:
    """An annotation without quotes."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return ast.parse(annotation.value, mode="eval").body
    return annotation


def _imports(method: Method) -> Iterator[str]:
    """Where the names in a signature come from."""
    arguments = _arguments(method.node)
    signature = [arguments, *([_plain(method.node.returns)] if method.node.returns is not None else [])]
    names = {node.id for part in signature for node in ast.walk(part) if isinstance(node, ast.Name)}
    for name in names:
        if not hasattr(builtins, name):
            yield _import_of(name, method.module)
            if name.startswith("Async"):
                yield _import_of(name, method.module).replace("Async", "")


def _import_of(name: str, module: str) -> str:
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ImportFrom | ast.Import):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    whole = alias.name if alias.asname is None else f"{alias.name} as {alias.asname}"
                    return (
                        f"from {node.module} import {whole}" if isinstance(node, ast.ImportFrom) else f"import {whole}"
                    )
    return f"from {module} import {name}"


def _class_node(cls: type) -> ast.ClassDef:
    (found,) = [
        node for node in _tree(cls.__module__).body if isinstance(node, ast.ClassDef) and node.name == cls.__name__
    ]
    return found


def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(importlib.import_module(module)))


def _docstring(text: str, indent: int) -> str:
    space = " " * indent
    lines = text.splitlines()
    inner = "\n".join(f"{space}{line}" if line else "" for line in lines)[indent:]
    return f'{space}"""{inner}"""' if len(lines) == 1 else f'{space}"""{inner}\n{space}"""'


if __name__ == "__main__":
    main()
