"""Every rule of the IR has a kernel that breaks it; whatever passes can be run."""

import pytest
import run_on_lists
from hypothesis import given
from hypothesis import strategies as st

import hal_core as hal
from hal_core.dtypes import bool_, float16, float32, int32, int64, uint8, uint64
from hal_core.signature import VALUE, Param, Signature
from hal_kernel.ir import Kernel, UOp
from hal_kernel.ir.verify import verify

pytestmark = pytest.mark.quick

SIGNATURE = Signature.parse("k", "y: float32*, x: const float32*, n: int32, a: float32")


class Nodes(list[UOp]):
    """A node list in which `nodes("ADD", int32, i, n)` appends."""

    def __call__(self, op, dtype=None, *src, arg=None):
        node = UOp(op, dtype, src, arg, line=len(self) + 1)
        self.append(node)
        return node

    def params(self):
        return [self("PARAM", param.dtype, arg=param.position) for param in SIGNATURE.params]

    def const(self, value, dtype=int32):
        return self("CONST", dtype, arg=value)

    def loop(self, stop=3):
        return self("RANGE", int32, self.const(0), self.const(stop), self.const(1), arg="k")

    def true(self):
        return self.const(True, bool_)


def kernel_of(build, name="k"):
    nodes = Nodes()
    build(nodes)
    return Kernel(name, SIGNATURE, tuple(nodes))


def whole(add):
    """Every kind of node once, as it should be."""
    y, x, n, a = add.params()
    i = add("SPECIAL", int32, arg=("global_idx", 0))
    total = add("VAR", float32, arg="total")
    either = add("VAR", int32, arg="either")
    add("SET", None, total, a)
    k = add.loop()
    index = add("ADD", int32, i, k)
    inside = add("LT", bool_, index, n)
    block = add("IF", None, inside)
    loaded = add("LOAD", float32, x, index)
    more = add("FMA", float32, loaded, a, add("GET", float32, total))
    add("SET", None, total, more)
    add("SET", None, either, k)
    add("ELSE", None, block)
    add("SET", None, either, add("NEG", int32, k))
    add("ENDIF", None, block)
    got = add("CAST", float32, add("GET", int32, either))
    add("SET", None, total, add("MAX", float32, got, add("GET", float32, total)))
    add("ENDRANGE", None, k)
    small = add("ISNAN", bool_, add("SQRT", float32, a))
    result = add("WHERE", float32, small, a, add("GET", float32, total))
    add("STORE", None, y, add("MOD", int32, i, add.const(4)), result)


# -- one broken kernel a rule


def bad_const(value, dtype):
    return lambda add: add("CONST", dtype, arg=value)


def with_params(op, dtype, *positions, arg=None):
    """The parameters y*, x*, n, a, then one node of some of them."""

    def build(add):
        params = add.params()
        add(op, dtype, *(params[position] for position in positions), arg=arg)

    return build


def set_on_one_side(add):
    variable, block = add("VAR", int32, arg="v"), add("IF", None, add.true())
    add("SET", None, variable, add.const(1))
    add("ELSE", None, block)
    add("ENDIF", None, block)
    add("GET", int32, variable)


def set_in_loop(add):
    variable, loop = add("VAR", int32, arg="v"), add.loop()
    add("SET", None, variable, add.const(1))
    add("ENDRANGE", None, loop)
    add("GET", int32, variable)


def value_after_its_loop(add):
    loop = add.loop()
    inner = add("NEG", int32, loop)
    add("ENDRANGE", None, loop)
    add("NEG", int32, inner)


def value_of_the_other_side(add):
    block = add("IF", None, add.true())
    inner = add.const(1)
    add("ELSE", None, block)
    add("NEG", int32, inner)
    add("ENDIF", None, block)


def crossed_blocks(add):
    block, loop = add("IF", None, add.true()), add.loop()
    add("ENDIF", None, block)
    add("ENDRANGE", None, loop)


def two_elses(add):
    block = add("IF", None, add.true())
    for _ in range(2):
        add("ELSE", None, block)
    add("ENDIF", None, block)


def leave(op, *, then=False):
    """A loop that is left by `op`, and a node behind it."""

    def build(add):
        loop = add("LOOP")
        add(op, None, *([] if op == "RETURN" else [loop]))
        if then:
            add.const(1)
        add("ENDLOOP", None, loop)

    return build


def break_of_the_outer_loop(add):
    outer, _inner = add("LOOP"), add.loop()
    add("BREAK", None, outer)


def set_before_one_break_only(add):
    variable, loop = add("VAR", int32, arg="v"), add("LOOP")
    block = add("IF", None, add.true())
    add("BREAK", None, loop)
    add("ENDIF", None, block)
    add("SET", None, variable, add.const(1))
    add("BREAK", None, loop)
    add("ENDLOOP", None, loop)
    add("GET", int32, variable)


def barrier_under_if(add):
    i = add("SPECIAL", int32, arg=("thread_idx", 0))
    block = add("IF", None, add("LT", bool_, i, add.const(3)))
    add("BARRIER")
    add("ENDIF", None, block)


def shared_in_a_loop(add):
    add.loop()
    add("SHARED", int32, arg=("s", 4))


def of_shared(op, dtype, element, arg=None):
    """`op` on a shared array, at 0, with as many values as it takes."""

    def build(add):
        values = [add.const(1, element)] * {"CAS": 2, "ATOMICLOAD": 0}.get(op, 1)
        memory = add("SHARED", element, arg=("s", 4))
        add(op, dtype, memory, add.const(0), *values, arg=arg)

    return build


def load_of_a_table(add):
    table = add("TABLE", int32, arg=("t", (1, 2)))
    add("ATOMICLOAD", int32, table, add.const(0), arg="relaxed")


# None: not broken, for comparison with its neighbours.
BROKEN = [
    (lambda add: add.append("ADD"), "not a UOp"),
    (lambda add: add("FROBNICATE"), "no such op"),
    (lambda add: add([1], int32), "no such op"),
    (lambda add: add("NEG", int32), "NEG has 1 sources, not 0"),
    (lambda add: add("CONST", "int32", arg=1), "its dtype is not a dtype"),
    (lambda add: add.append(UOp("NEG", int32, [UOp("CONST")])), "src must be a tuple of UOps"),
    (lambda add: add("NEG", int32, UOp("CONST", int32, (), 1)), "does not stand earlier"),
    (lambda add: add.append(add.const(1)), "stands in the list twice"),
    (lambda add: add("PARAM", int32, arg=4), "has 4 parameters"),
    (lambda add: add("PARAM", int32, arg="n"), "has 4 parameters"),
    (lambda add: add("PARAM", int64, arg=2), "the signature says n: int32"),
    (bad_const(1, None), "a constant must have a dtype"),
    (bad_const(1.5, int32), "arg must be an int"),
    (bad_const(256, uint8), "uint8 cannot hold it"),
    (bad_const(-1, uint8), "uint8 cannot hold it"),
    (bad_const(2, bool_), "bool cannot hold it"),
    (bad_const("1", float32), "arg must be a number"),
    (lambda add: add("SPECIAL", int64, arg=("global_idx", 0)), "its dtype must be int32"),
    (lambda add: add("SPECIAL", int32, arg=("warp_idx", 0)), "kind one of global_idx"),
    (lambda add: add("SPECIAL", int32, arg=("global_idx", 3)), "the axis must be 0, 1 or 2"),
    (lambda add: add("VAR"), "a variable must have a dtype"),
    (with_params("SET", None, 2, 2), "its first source must be a VAR"),
    (lambda add: add("SET", None, add("VAR", int64), add.const(1)), "the variable is int64"),
    (lambda add: add("SET", int32, add("VAR", int32), add.const(1)), "SET has no dtype"),
    (with_params("GET", int32, 2), "its source must be a VAR"),
    (lambda add: add("GET", int64, add("VAR", int32)), "its dtype must be int32"),
    (with_params("LOAD", float32, 1, 2, 3), "LOAD has 2 sources, not 3"),
    (with_params("LOAD", float32, 1, 2, 2, 3), "its third source must be a bool"),
    (lambda add: add("LOAD", float32, add.params()[0], add.const(1), add.true(), add.const(1)),
     "the elements are float32, the value int32"),
    (lambda add: add("VAR", hal.any_), "its dtype is not a dtype"),
    (with_params("VIEW", int32, 2), "must be a PARAM that is a pointer, or a SHARED"),
    (with_params("VIEW", None, 1), "a view must have a dtype"),
    (lambda add: add("NEG", int32, add("VIEW", int32, add.params()[0])), "is not a value"),
    (lambda add: add("STORE", None, add("VIEW", int32, add.params()[1]), *[add.const(1)] * 2),
     "is only read"),
    (with_params("CAST", None, 2), "a cast must have a dtype"),
    (with_params("CAST", int32, 0), "is not a value"),
    (with_params("NEG", float32, 0), "is not a value"),
    (with_params("ADD", int32, 2, 3), "one dtype, not int32 and float32"),
    (with_params("ADD", int64, 2, 2), "its dtype must be int32"),
    (with_params("ADD", None, 2, 2), "its dtype must be int32"),
    (lambda add: add("ADD", bool_, add.true(), add.true()), "ADD does not take bool"),
    (with_params("DIV", int32, 2, 2), "DIV does not take int32"),
    (with_params("FLOORDIV", float32, 3, 3), "FLOORDIV does not take float32"),
    (with_params("XOR", float32, 3, 3), "XOR does not take float32"),
    (with_params("NOT", float32, 3), "NOT does not take float32"),
    (with_params("EXP", int32, 2), "EXP does not take int32"),
    (with_params("FMA", int32, 2, 2, 2), "FMA does not take int32"),
    (with_params("LT", int32, 2, 2), "its dtype must be bool"),
    (with_params("ISNAN", float32, 3), "its dtype must be bool"),
    (with_params("WHERE", int32, 2, 2, 2), "its first source must be a bool"),
    (lambda add: add("WHERE", int32, add.true(), add.const(1), add.const(1, int64)), "one dtype"),
    (with_params("LOAD", int32, 2, 2), "a PARAM that is a pointer"),
    (with_params("LOAD", float32, 1, 3), "the index must be an integer, not float32"),
    (with_params("LOAD", int32, 1, 2), "its dtype must be the element's, float32"),
    (with_params("LOAD", float32, 1, 0), "the index must be an integer"),
    (with_params("STORE", None, 1, 2, 3), "x: const float32* is only read"),
    (with_params("STORE", None, 0, 2, 2), "the elements are float32, the value int32"),
    (with_params("STORE", None, 0, 2, 1), "is not a value"),
    (with_params("STORE", float32, 0, 2, 3), "STORE has no dtype"),
    (with_params("RANGE", int32, 2, 2, 2, arg="k"), "the step must be a CONST other than 0"),
    (lambda add: add("RANGE", int32, *[add.const(0)] * 3), "the step must be a CONST other than 0"),
    (lambda add: add("RANGE", float32, *[add.const(1.0, float32)] * 3), "RANGE does not take"),
    (with_params("IF", None, 2), "the condition must be a bool"),
    (lambda add: add("ENDIF", None, add.loop()), "its source must be an IF"),
    (lambda add: add("ENDRANGE", None, add("IF", None, add.true())), "its source must be a RANGE"),
    (lambda add: add("IF", None, add.true()), "is never closed"),
    (lambda add: add.loop(), "is never closed"),
    (crossed_blocks, "does not close the innermost open block"),
    (two_elses, "does not close the innermost open block"),
    (lambda add: add("GET", int32, add("VAR", int32, arg="v")), "not assigned on every path"),
    (set_on_one_side, "not assigned on every path"),
    (set_in_loop, "not assigned on every path"),
    (value_after_its_loop, "inside a block that has ended"),
    (value_of_the_other_side, "inside a block that has ended"),
    (bad_const(1.0, float16), "a dtype that kernels compute with"),
    (lambda add: add("VAR", float16, arg="h"), "a dtype that kernels compute with"),
    (lambda add: add("CAST", float16, add.const(1)), "int32 to float16 must go through float32"),
    (with_params("CAST", bool_, 3), None),
    (with_params("BITCAST", int64, 3), "float32 and int64 have different widths"),
    (lambda add: add("BITCAST", bool_, add.const(1, uint8)), "BITCAST does not take bool"),
    (lambda add: add("SHARED", int32, arg=("s", 0)), "one element or more"),
    (lambda add: add("SHARED", int32, arg=4), "arg must be (name, number of elements)"),
    (shared_in_a_loop, "shared memory must be declared outside of loops and IFs"),
    (of_shared("STORE", None, float32), None),
    (of_shared("ATOMIC", int32, int32, "SUB"), "arg must be one of ADD"),
    (of_shared("ATOMIC", float32, float32, "MIN"), "no atomic MIN of float32"),
    (of_shared("ATOMIC", uint8, uint8, "ADD"), "no atomic ADD of uint8"),
    (of_shared("ATOMIC", int64, int32, "ADD"), "its dtype must be the element's, int32"),
    (of_shared("CAS", float32, float32), "no atomic compare-exchange of float32"),
    (with_params("ATOMIC", float32, 1, 2, 3, arg="ADD"), "x: const float32* is only read"),
    (of_shared("ATOMICLOAD", float32, float32, "acquire"), None),
    (of_shared("ATOMICLOAD", float32, float32, "release"), "arg must be one of relaxed, acquire"),
    (of_shared("ATOMICLOAD", uint8, uint8, "relaxed"), "no atomic load of uint8"),
    (of_shared("ATOMICLOAD", int64, int32, "relaxed"), "its dtype must be the element's, int32"),
    (of_shared("ATOMICSTORE", None, float32), "arg must be one of relaxed, release"),
    (of_shared("ATOMICSTORE", None, bool_, "relaxed"), "no atomic store of bool"),
    (of_shared("ATOMICSTORE", int32, int32, "relaxed"), "ATOMICSTORE has no dtype"),
    (with_params("ATOMICLOAD", float32, 1, 2, arg="relaxed"), None),
    (with_params("ATOMICSTORE", None, 1, 2, 3, arg="relaxed"), "x: const float32* is only read"),
    (load_of_a_table, "no other thread changes a TABLE"),
    (leave("BREAK"), None),
    (leave("RETURN"), None),
    (leave("RETURN", then=True), "no node may follow the RETURN of its block"),
    (leave("BREAK", then=True), "no node may follow the BREAK of its block"),
    (break_of_the_outer_loop, "its source must be the innermost loop"),
    (lambda add: add("BREAK", None, add("IF", None, add.true())), "its source must be a loop"),
    (set_before_one_break_only, "not assigned on every path"),
    (barrier_under_if, "the condition differs between them (<UOp IF>, line 4)"),
    (with_params("SHUFFLE", int32, 2, 3), "must be an int32"),
    (with_params("SHUFFLE", bool_, 2, 3), "32 or 64 bits"),
    (with_params("BALLOT", uint64, 2), "it takes a bool"),
    (lambda add: add("SPECIAL", int32, arg=("subgroup_idx", 1)), "the axis must be 0"),
    (with_params("PRINT", None, 2, 3, arg="{} {}"), None),
    (with_params("PRINT", None, arg="plain"), None),
    (with_params("PRINT", None, 2, arg="{} {}"), "text with a {} for each source"),
    (with_params("PRINT", None, 2), "text with a {} for each source"),
    (with_params("PRINT", None, 0, arg="{}"), "is not a value"),
    (with_params("ASSERT", None, 2), None),
    (with_params("ASSERT", None, 2, 2), None),
    (with_params("ASSERT", None, 3), "it tests a bool or an integer, not float32"),
    (with_params("ASSERT", None, 2, 3), "the index is int32, the extent float32"),
    (with_params("ASSERT", None, 2, 2, 2), "ASSERT has 1 sources, not 3"),
    (with_params("ASSERT", int32, 2), "ASSERT has no dtype"),
]  # fmt: skip


@pytest.mark.parametrize(("build", "says"), BROKEN)
def test_broken_rule_is_named(build, says):
    if says is None:
        verify(kernel_of(build))
        return
    with pytest.raises(hal.InvalidKernel) as raised:
        verify(kernel_of(build))
    assert says in str(raised.value)
    assert str(raised.value).startswith("kernel k: ")
    assert "node " in str(raised.value) or "never closed" in says or "BARRIER" in str(raised.value)


def test_the_first_broken_node_is_named_with_its_line():
    with pytest.raises(
        hal.InvalidKernel, match=r"node 4, line 5, <UOp NEG int64>: its dtype must be"
    ):
        verify(kernel_of(with_params("NEG", int64, 2)))


@pytest.mark.parametrize("name", ["", "1k", "k k", "k\n", "other"])
def test_name_is_an_identifier_and_the_signatures(name):
    with pytest.raises(
        hal.InvalidKernel, match="C identifier, and the signature must have the same"
    ):
        verify(kernel_of(whole, name))


def test_what_is_no_kernel_or_has_no_signature_is_told_how_to_make_one():
    @hal.kernel
    def function(y: hal.Ptr[hal.float32]) -> None:
        y[0] = 1

    for wrong in (function, hal.Source("k", "", "", language="c"), "k"):
        with pytest.raises(hal.InvalidArgument, match=r"not a hal.Kernel.*k.lower\(\)"):
            verify(wrong)
    named = Kernel("k", "y: float32*", ()), Kernel(None, SIGNATURE, ())
    for wrong in (*named, Kernel("k", SIGNATURE, None), Kernel("k", SIGNATURE, 3)):
        with pytest.raises(hal.InvalidKernel, match=r"hal.Signature.parse\(name, text\)"):
            verify(wrong)
    for block in (64, (64, 1), [64, 1, 1], (64.0, 1, 1)):
        with pytest.raises(hal.InvalidKernel, match=r"block is not \(x, y, z\)"):
            verify(Kernel("k", SIGNATURE, (), block))
    with pytest.raises(hal.InvalidKernel, match="node 0, 'ADD': not a UOp"):
        verify(Kernel("k", SIGNATURE, ("ADD",)))


# -- what passes can be run: no value is missing, no type confused


def damaged(kernel, data):
    nodes = list(kernel.uops)
    for _ in range(data.draw(st.integers(1, 3))):
        where = st.integers(0, len(nodes) - 1)
        position, other = data.draw(where), data.draw(where)
        change = data.draw(st.sampled_from(("drop", "move", "source", "dtype", "op", "arg")))
        node = nodes[position]
        if change == "drop" and len(nodes) > 1:
            del nodes[position]
        elif change == "move":
            nodes.insert(other, nodes.pop(position))
        elif node.src and change == "source":
            src = list(node.src)
            src[data.draw(st.integers(0, len(src) - 1))] = nodes[other]
            nodes = _replaced(nodes, node, UOp(node.op, node.dtype, tuple(src), node.arg))
        elif change in ("dtype", "op", "arg"):
            fields = {"op": node.op, "dtype": node.dtype, "arg": node.arg}
            fields[change] = getattr(nodes[other], change)
            new = UOp(fields["op"], fields["dtype"], node.src, fields["arg"])
            nodes = _replaced(nodes, node, new)
    return kernel._replace(uops=tuple(nodes))


def _replaced(nodes, old, new):
    """Nodes are compared by identity: the users of the old one become users of the new one."""
    changed = {id(old): new}
    result = []
    for node in nodes:
        if node is not old and any(id(part) in changed for part in node.src):
            src = tuple(changed.get(id(part), part) for part in node.src)
            changed[id(node)] = UOp(node.op, node.dtype, src, node.arg)
        result.append(changed.get(id(node), node))
    return result


@given(st.data())
def test_what_passes_can_be_run(data):
    kernel = damaged(kernel_of(whole), data)
    try:
        verify(kernel)
    except hal.InvalidKernel:
        return
    arguments = [[0.0] * 9, [1.0] * 9, 4, 0.5]
    try:
        run_on_lists.run(kernel, arguments, threads=4)
    except (IndexError, OverflowError, ValueError, ZeroDivisionError):
        return  # numbers, not structure
    assert all(isinstance(value, float) for value in arguments[0])


def test_a_name_has_128_letters_at_most():
    """An OpenCL compiler was seen to end the process over a kernel's name of 255."""

    def empty(kernel, param):
        return Kernel(kernel, Signature(kernel, (Param(param, int32, VALUE, 0),)), ())

    verify(empty("k" * 128, "n" * 128))
    assert Signature.parse("k" * 128, f"{'n' * 128}: int32").params[0].name == "n" * 128
    for names in (("k" * 129, "n"), ("k", "n" * 129)):
        with pytest.raises(hal.InvalidKernel, match="too many letters .got 129; limit 128."):
            verify(empty(*names))
        with pytest.raises(hal.InvalidArgument, match="too many letters .got 129; limit 128."):
            Signature.parse(names[0], f"{names[1]}: int32")
