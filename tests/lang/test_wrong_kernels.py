"""No kernel, however wrong, does more than be refused."""

import ast
import itertools
import warnings

import pytest
import python_syntax
import wrong_kernels
from slices import paired, usual

import hal_core as hal
from hal_kernel.ir.verify import verify

pytestmark = pytest.mark.syntax

EACH = 60


def lowered(source):
    """Tell whether the text is a kernel. Anything but a kernel or a refusal is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python's, of `is` with a number and of calls of a tuple
        module = wrong_kernels.loaded(source)
    try:
        kernel = module.f.lower()
    except hal.KernelSyntaxError as error:
        assert error.fix and error.lineno and error.text and error.offset, str(error)
        assert 0 < error.offset <= len(error.text) and error.end_offset > error.offset, str(error)
        return False
    verify(kernel)
    return True


@pytest.mark.parametrize("source", wrong_kernels.SOURCES)
def test_what_is_changed_are_kernels(source):
    assert lowered(source)


@pytest.mark.parametrize("seed", usual(range(10), "0", "1"))
def test_a_changed_kernel_is_a_kernel_or_refused(seed):
    found = []
    for source in wrong_kernels.mutated(seed, EACH):
        try:
            found.append(lowered(source))
        except Exception as error:
            pytest.fail(f"{type(error).__name__}: {error}\n{source}")
    assert any(found) and not all(found)


@pytest.mark.parametrize(("snippet", "uses"), paired(wrong_kernels.SNIPPETS, python_syntax.USES, 5))
def test_anything_may_stand_where_a_value_stands(snippet, uses):
    for use in uses:
        accepted(use.replace("{}", snippet.strip()))


def accepted(body):
    """Tell whether a body is one of a kernel; None for one that Python refuses."""
    source = python_syntax.with_body(body)
    try:
        with warnings.catch_warnings(action="ignore"):
            compile(source, "wrong", "exec")
    except SyntaxError:
        return None
    return lowered(source)


GIVEN = list(itertools.product(python_syntax.ASSIGNMENTS, python_syntax.VALUES))


@pytest.mark.parametrize(("target", "given"), paired(python_syntax.TARGETS, GIVEN, 5))
def test_anything_may_be_assigned(target, given):
    """`a, = n` was a TypeError of Python."""
    for assignment, value in given:
        accepted(assignment.replace("{}", target).replace("{value}", value))


@pytest.mark.parametrize("form", python_syntax.FORMS)
def test_every_statement_of_python_is_taken_or_refused(form):
    assert accepted(form) is not None


def test_every_class_of_syntax_is_tried():
    """But for those that Python's own parser does not make any more."""
    bodies = [*python_syntax.FORMS, *wrong_kernels.SNIPPETS]
    bodies += [use.replace("{}", "n") for use in python_syntax.USES if "return" not in use]
    tried = {type(node) for body in bodies for node in ast.walk(ast.parse(body.strip()))}
    kinds = (ast.stmt, ast.expr, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.pattern)
    known = {kind for base in kinds for kind in base.__subclasses__()}
    assert {kind.__name__ for kind in known - tried} == set()
