"""
Find the text of code that is about to run, so that what the story prints is what it does.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any, cast

__all__ = ["expression_of", "source_of"]


def expression_of(step: Callable[[], Any]) -> str:
    """
    Return what stands behind the colon of a lambda.

    Raises: ValueError unless exactly one lambda starts on that line.
    """
    code = cast("FunctionType", step).__code__
    text, lambdas = lambdas_of(code.co_filename)
    found = [node for node in lambdas if node.lineno == code.co_firstlineno]
    if len(found) != 1:
        raise ValueError(f"{code.co_filename}:{code.co_firstlineno}: expected one lambda, found {len(found)}.")
    segment = ast.get_source_segment(text, found[0].body) or ""
    line = text.splitlines()[found[0].lineno - 1]
    indent = len(line) - len(line.lstrip())
    first, *others = segment.splitlines()
    return "\n".join([first, *(other[indent:] for other in others)])


@cache
def lambdas_of(filename: str) -> tuple[str, tuple[ast.Lambda, ...]]:
    """
    Read a module once; return its text and its lambdas.
    """
    with open(filename, encoding="utf-8") as module:
        text = module.read()
    return text, tuple(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Lambda))


def source_of(function: Callable[..., Any]) -> str:
    """
    Return a function as it is written, its docstring left out: the story has words of its own.
    """
    lines = textwrap.dedent(inspect.getsource(function)).rstrip().splitlines()
    definition = cast("ast.FunctionDef", ast.parse("\n".join(lines)).body[0])
    if ast.get_docstring(definition) is not None:
        docstring = definition.body[0]
        del lines[docstring.lineno - 1 : docstring.end_lineno]
    return "\n".join(lines)
