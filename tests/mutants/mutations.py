"""Small mistakes, made in the functions of a module one at a time.

Only code inside functions is changed. Constants and default values are evaluated at import, so they would need a new
Python each; the comparisons that use them are changed instead. Texts are left alone, because most are read by people.

Instead of mutmut 3 or cosmic-ray 8: mutmut leaves out functions with decorators, as every property has one, and numbers
its mutants by position, so that a list of survivors does not outlast an edit. cosmic-ray starts a new Python and a new
pytest for each mutant, which costs several times the tests.
"""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

MAX_TEXT_LENGTH = 90
"""Letters of code that the name of a mistake shows before and after."""

OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
"""What each operator is taken for."""
FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}
"""What each function is taken for."""
CONDITION_NODES = (ast.Compare, ast.BoolOp, ast.UnaryOp)
"""Conditions that have mistakes of their own, so that the branch on them is not turned round as well."""
SKIPPED_FIELDS = ("annotation", "returns", "decorator_list")
"""Fields of a node that are no steps of its function."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A function with one mistake: where it is, what stood there and stands there now, and the code that results."""

    module: str
    function: str
    mutation: str
    code: CodeType

    @property
    def function_id(self) -> str:
        """The function, as `function_id_of` names it."""
        return f"{self.module}: {self.function}"

    def __str__(self) -> str:
        return f"{self.function_id}: {self.mutation}"


def mutants(module: str, source: str, filename: str = "<mutant>") -> Iterator[Mutant]:
    """Every mutant of a module, in the order of its lines. Equal mistakes in one function are numbered."""
    tree = ast.parse(source)
    originals = _codes(compile(tree, filename, "exec"))
    for name, function in _functions(tree):
        seen = Counter[str]()
        for parent, field, index in list(_sites(function)):
            node = _get(parent, field, index)
            for changed in _mutations(node):
                mutation = f"{_text(node)} -> {_text(changed)}"
                seen[mutation] += 1
                _put(parent, field, index, ast.copy_location(changed, node))
                code = _codes(compile(ast.fix_missing_locations(tree), filename, "exec"))[name]
                _put(parent, field, index, node)
                # A function that has lost its only `super()` cannot stand in for the original.
                if code.co_freevars == originals[name].co_freevars:
                    yield Mutant(module, name, mutation + (f" ({seen[mutation]})" if seen[mutation] > 1 else ""), code)


def _functions(
    node: ast.Module | ast.ClassDef, outside: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The functions of a module and the methods of its classes, by qualified name. Inner functions belong to them."""
    for child in node.body:
        match child:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
                yield outside + name, child
            case ast.ClassDef(name):
                yield from _functions(child, f"{outside}{name}.")


def _codes(code: CodeType) -> dict[str, CodeType]:
    """The code of the same functions."""
    found: dict[str, CodeType] = {}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            is_function = inner.co_flags & inspect.CO_OPTIMIZED
            found |= {inner.co_qualname: inner} if is_function else _codes(inner)
    return found


def _sites(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None]]:
    """Each node below that is a part of a step, by what holds it."""
    for field, value in ast.iter_fields(node):
        if field in SKIPPED_FIELDS:
            continue
        children = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for index, child in children:
            if isinstance(child, ast.AST) and not isinstance(child, ast.arguments):
                yield node, field, index
                yield from _sites(child)


def _mutations(node: ast.AST) -> Iterator[ast.AST]:
    yield from _other_values(node)
    yield from _other_steps(node)


def _other_values(node: ast.AST) -> Iterator[ast.AST]:
    """What an expression may be mistaken for."""
    match node:
        case ast.Compare(left, [operator], others):
            yield ast.Compare(left, [_other(operator)], others)
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(_other(operator), values)
        case ast.BinOp(left, operator, right) if type(operator) in OPERATORS:
            yield ast.BinOp(left, _other(operator), right)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield operand
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            yield ast.Constant(value + 1)
        case ast.Call(ast.Name(name), arguments, keywords) if name in FUNCTIONS:
            yield ast.Call(ast.Name(FUNCTIONS[name], ast.Load()), arguments, keywords)


def _other_steps(node: ast.AST) -> Iterator[ast.AST]:
    """The wrong branch, an answer that is forgotten, a call or a refusal that is left out."""
    match node:
        case ast.If(test, body, others) if not isinstance(test, CONDITION_NODES):
            yield ast.If(_not(test), body, others)
        case ast.IfExp(test, body, other) if not isinstance(test, CONDITION_NODES):
            yield ast.IfExp(_not(test), body, other)
        case ast.Return(value) if value is not None and not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))
        case ast.Expr(ast.Call() | ast.Await()) | ast.Raise():
            yield ast.Pass()


def _other(operator: ast.AST) -> Any:
    return OPERATORS[type(operator)]()


def _not(test: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), test)


def _get(parent: ast.AST, field: str, index: int | None) -> ast.AST:
    value = getattr(parent, field)
    return value if index is None else value[index]


def _put(parent: ast.AST, field: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


def _text(node: ast.AST) -> str:
    """A node as Python writes it, or the head of it where it has more lines."""
    first = ast.unparse(ast.fix_missing_locations(node)).split("\n", 1)[0]
    return first if len(first) <= MAX_TEXT_LENGTH else first[:MAX_TEXT_LENGTH] + "…"
