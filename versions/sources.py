"""Classes as their source has them: stand-ins that have the same methods and parameters, and do nothing."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Any

_EMPTY_BASES = frozenset({"object", "ABC", "Protocol", "Generic"})
"""Bases from elsewhere that bring no method a seam could want."""


class UnreadableError(Exception):
    """The sources of a release are not what this reader understands."""


@dataclass(frozen=True)
class Class:
    """One class of a release."""

    name: str
    bases: tuple[str, ...]
    methods: Mapping[str, Any]
    """What ``getattr`` on an instance would find: functions, static and class methods, all without a body."""
    attributes: frozenset[str]
    """What it assigns to ``self``, its class variables, dataclass fields and properties."""


@dataclass(frozen=True)
class Sources:
    """What was read of one release."""

    classes: Mapping[str, Class]
    constants: Mapping[str, object]
    """Plain values at the top of a module: numbers, strings, bytes."""


def read_sources(files: Mapping[str, str]) -> Sources:
    """All classes and constants at the top of ``files`` (text by name), whatever file they lie in."""
    classes: dict[str, Class] = {}
    constants: dict[str, object] = {}
    for file, text in files.items():
        try:
            body = ast.parse(text).body
        except SyntaxError as e:
            raise UnreadableError(f"{file} is not Python that this interpreter can parse: {e}") from e
        for node in body:
            if isinstance(node, ast.ClassDef):
                if node.name in classes:
                    # A seam would be judged by either: a person must look which one the connector uses.
                    raise UnreadableError(f"{file} has a second class {node.name}")
                classes[node.name] = _class(node)
            else:
                constants |= _constants(node)
    return Sources(classes, constants)


def lineage(sources: Sources, name: str) -> list[Class]:
    """The class and all that it inherits from, as far as read, in the order in which Python looks."""
    return [sources.classes[cls.__name__] for cls in stand_in(sources, name).__mro__[:-1]]


def unread_bases(sources: Sources, name: str) -> list[str]:
    """Bases, at any remove, that lie in files that were not read: what they have is not known."""
    known = {*sources.classes, *_EMPTY_BASES}
    return sorted({base for cls in lineage(sources, name) for base in cls.bases if base not in known})


def attributes_of(sources: Sources, name: str) -> frozenset[str]:
    """What instances of the class have, its own and inherited."""
    return frozenset().union(*(cls.attributes for cls in lineage(sources, name)))


def stand_in(sources: Sources, name: str) -> type:
    """A class that ``inspect.signature`` sees as it would see the release's own.

    Python itself then resolves what is inherited, and the seam tables speak of it in their own words.
    """
    return _stand_in(sources, name, {})


def _stand_in(sources: Sources, name: str, made: dict[str, type]) -> type:
    if name not in made:  # a base met twice must be one class
        cls = sources.classes[name]
        bases = tuple(_stand_in(sources, base, made) for base in cls.bases if base in sources.classes)
        made[name] = type(name, bases, dict(cls.methods))
    return made[name]


def _class(node: ast.ClassDef) -> Class:
    functions = [n for n in node.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    properties = {f.name for f in functions if "property" in _decorators(f)}
    methods = {f.name: _method(f) for f in functions if f.name not in properties}
    return Class(
        name=node.name,
        bases=tuple(name for base in node.bases if (name := _last_name(base))),
        methods=methods,
        attributes=frozenset({*properties, *_class_variables(node), *_assigned_to_self(functions)}),
    )


def _method(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Any:
    def nothing() -> None: ...

    nothing.__signature__ = signature_of(node.args)  # type: ignore[attr-defined]  # inspect believes it
    wrappers: dict[str, Callable[[Any], Any]] = {"staticmethod": staticmethod, "classmethod": classmethod}
    kind = next((wrappers[name] for name in _decorators(node) if name in wrappers), None)
    return kind(nothing) if kind else nothing


def signature_of(arguments: ast.arguments) -> Signature:
    """Names, kinds and whether optional; annotations and the values of defaults are left out."""
    positional = [
        *((a, Parameter.POSITIONAL_ONLY) for a in arguments.posonlyargs),
        *((a, Parameter.POSITIONAL_OR_KEYWORD) for a in arguments.args),
    ]
    required = len(positional) - len(arguments.defaults)
    parameters = [
        Parameter(a.arg, kind, default=Parameter.empty if at < required else None)
        for at, (a, kind) in enumerate(positional)
    ]
    if arguments.vararg:
        parameters.append(Parameter(arguments.vararg.arg, Parameter.VAR_POSITIONAL))
    parameters += [
        Parameter(a.arg, Parameter.KEYWORD_ONLY, default=Parameter.empty if default is None else None)
        for a, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    if arguments.kwarg:
        parameters.append(Parameter(arguments.kwarg.arg, Parameter.VAR_KEYWORD))
    return Signature(parameters)


def _assigned_to_self(functions: list[ast.FunctionDef | ast.AsyncFunctionDef]) -> Iterator[str]:
    nodes = [node for function in functions for node in ast.walk(function)]
    # ``self.x: int`` alone promises a value and ``self.x += 1`` wants one: neither makes it.
    no_values = {
        id(node.target)
        for node in nodes
        if (isinstance(node, ast.AnnAssign) and node.value is None) or isinstance(node, ast.AugAssign)
    }
    for node in nodes:
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
            and id(node) not in no_values
        ):
            yield node.attr


def _class_variables(node: ast.ClassDef) -> Iterator[str]:
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id  # with a value or, in a dataclass, without
        elif isinstance(statement, ast.Assign):
            yield from (target.id for target in statement.targets if isinstance(target, ast.Name))


def _constants(node: ast.stmt) -> dict[str, object]:
    if isinstance(node, ast.Assign):
        targets, value = node.targets, node.value
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        targets, value = [node.target], node.value
    else:
        return {}
    if not isinstance(value, ast.Constant):
        return {}
    return {target.id: value.value for target in targets if isinstance(target, ast.Name)}


def _decorators(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {_last_name(each) for each in node.decorator_list}


def _last_name(node: ast.expr) -> str:
    """``b`` of ``b``, ``a.b``, ``b[...]`` and ``b(...)``: classes and decorators are known by their last name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    if isinstance(node, ast.Call):
        return _last_name(node.func)
    return ""
