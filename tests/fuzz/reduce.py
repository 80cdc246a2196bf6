"""Makes a failing kernel small: takes away statements and parts of expressions while it fails.

What is taken away need not leave a kernel: one that the language refuses does not fail.
"""

import ast


def reduced(case, fails):
    """A case that still fails, and none of whose next smaller ones does."""
    changed = True
    while changed:
        changed = False
        place = 0
        while (smaller := _without(case.source, place)) is not None:
            for source in smaller:
                candidate = case._replace(source=source)
                if source != case.source and fails(candidate):
                    case, changed = candidate, True
                    break
            else:
                place += 1
    return case


def _without(source, place):
    """The texts with less at the statement or expression of this number; None: there is none."""
    if place >= sum(1 for _ in _spots(ast.parse(source))):
        return None
    return _texts(source, place)


def _texts(source, place):
    number = 0
    while True:
        tree = ast.parse(source)
        holder, field, index = list(_spots(tree))[place]
        body = getattr(holder, field)
        old = body if index is None else body[index]
        choices = list(_smaller(old))
        if number >= len(choices):
            return
        new = choices[number]
        number += 1
        if index is None:
            setattr(holder, field, new)
        elif isinstance(new, list):
            body[index : index + 1] = new or ([ast.Pass()] if len(body) == 1 else [])
        else:
            body[index] = new
        yield ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _spots(tree):
    """Where a statement or an expression stands, the outer before the inner."""
    for function in tree.body:
        if isinstance(function, ast.FunctionDef):
            yield from _inside(function, ("body",))


def _inside(node, fields):
    for field in fields:
        held = getattr(node, field, None)
        for index, part in enumerate(held) if isinstance(held, list) else [(None, held)]:
            written = isinstance(getattr(part, "ctx", None), ast.Store)
            if isinstance(part, ast.expr | ast.stmt) and not written:
                yield node, field, index
                yield from _inside(part, part._fields)


def _smaller(node):
    """What may stand instead."""
    if isinstance(node, ast.stmt):
        yield []
        for field in ("body", "orelse"):
            if getattr(node, field, None):
                yield getattr(node, field)
        if isinstance(node, ast.If) and node.orelse:
            yield [ast.If(node.test, node.body, [])]
        return
    if isinstance(node, ast.Constant | ast.Name | ast.Attribute):
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield child
