"""Test `hal explain`: its table and JSON, and what it claims against the machine code."""

import json
import re
from collections import namedtuple
from pathlib import Path

import pytest
from kernel_files import IMPORTS, function, saxpy

import hal_core as hal
from hal_core.cli import main
from hal_cpu import processor
from hal_cpu.compilers import llvm as llvm_module
from hal_cpu.explain import NotingRenderer, explained, regions_of
from hal_cpu.vectors.tree import walk
from hal_kernel.ir.uop import ATOMIC_OPS, UOp
from hal_kernel.ir.writing import source_of

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")

Out, In = hal.Ptr[hal.float32], hal.ConstPtr[hal.float32]
Places = hal.ConstPtr[hal.int32]

needs_avx2 = pytest.mark.skipif(
    "avx2" not in processor.cpu_flags(), reason="it reads instructions of AVX2 and AVX-512"
)


@hal.kernel
def gathers(y: Out, x: In, p: Places, n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        y[i] = x[p[i]] + 1.0


@hal.kernel
def scatters(y: Out, x: In, p: Places, n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        y[p[i]] = x[i] + 1.0


@hal.kernel
def scales(y: Out, x: In, n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        y[i] = x[n] * y[i]


@hal.kernel
def evens(y: Out, x: In, n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        y[i] = x[2 * i] + 1.0


@hal.kernel
def greys(y: Out, x: In, n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        y[i] = x[3 * i] + x[3 * i + 1] + x[3 * i + 2]


@hal.kernel
def signs(y: Out, x: In, n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        value = x[i]
        if value < 0:
            value = value * 0.5 + 1.0
        y[i] = value


@hal.kernel
def some(y: Out, x: In, n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n and x[i] > 0:
        y[i] = x[i] * y[i]


@hal.kernel
def powers(y: Out, x: In, n: hal.int32, m: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        total = y[i]
        for k in range(m):
            total = total * x[k] + 1.0
        while total > 1:
            total *= 0.5
        y[i] = total


@hal.kernel
def sparse(y: Out, x: In, m: In, starts: Places, columns: Places, n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        total = 0.0
        for k in range(starts[i], starts[i + 1]):
            total += m[k] * x[columns[k]]
        y[i] = total


@hal.kernel
def rows_of_blocks(y: hal.Ptr[hal.int32], x: Places, n: hal.int32) -> None:
    bins = hal.shared(hal.int32, 64)
    t = hal.thread_idx(0)
    if t < 64:
        bins[t] = 0
    hal.barrier()
    for r in range(4):
        i = (hal.block_idx(0) * 4 + r) * hal.block_dim(0) + t
        if i < n:
            hal.atomic_add(bins, x[i], 1)
        hal.barrier()
    if t == 0:
        hal.atomic_max(y, 0, bins[0])


@hal.kernel
def fours(y: Out, x: In, n: hal.int32) -> None:
    i = hal.global_idx(0)
    for k in range(4):
        if 4 * i + k < n:
            y[4 * i + k] = 2.0 * x[4 * i + k]


@hal.kernel
def columns(y: Out, n: hal.int32) -> None:
    i = hal.global_idx(0)
    for k in range(4):
        if i < n:
            y[k * n + i] = 1.0
        i += n


KERNELS = [
    saxpy, gathers, scatters, scales, evens, greys, signs, some, powers, sparse,
    rows_of_blocks, fours, columns,
]  # fmt: skip


def of(kernel, kind, name=""):
    """Return how a kernel's nodes of a kind are written."""
    found = explained(kernel.name, kernel).rows
    return [row.how for row in found if (row.kind, row.name) == (kind, name)]


# -- the machine code


def assembly(kernel):
    """Return LLVM's assembly of a kernel, and that of the body for whole gangs.

    Blocks keep the names of the text's labels, as comments.
    """
    source = source_of(kernel.lower(), hal.Device["CPU"], NotingRenderer())
    text = source.text
    compiler = llvm_module.LLVMCompiler()
    with llvm_module.llvm_lock:
        llvm = llvm_module.import_llvm()
        machine = llvm.Target.from_triple(compiler._triple(llvm)).create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm_module._features(llvm), opt=3, reloc="pic"
        )
        machine.set_asm_verbosity(True)
        with llvm.parse_assembly(text) as module:
            module.triple, module.data_layout = machine.triple, str(machine.target_data)
            llvm_module._run_passes(llvm, machine, module, 3, source)
            code = machine.emit_assembly(module)
    place = re.search(r"^begin\.on\.(\d+):", text, re.MULTILINE)
    assert place is not None
    following = rf"^(few|mix|one|y)\.{place[1]}:"
    body = re.split(following, text[place.start() :], maxsplit=1, flags=re.MULTILINE)[0]
    labels = re.findall(r"^([\w.]+):", body, re.MULTILINE)
    blocks = re.split(r"^(?=(?:\.LBB\w+:|# %bb\.))", code, flags=re.MULTILINE)
    named = [(re.match(r".*# %([a-z][\w.]*)", block), block) for block in blocks]
    own = [
        block for found, block in named
        if found and any(found[1] == name or found[1].startswith(f"{name}.") for name in labels)
    ]  # fmt: skip
    whole, body = (re.sub(r" *#.*", "", part) for part in (code, "".join(own)))
    return whole, body


def accessed(body, store):
    """Return the bytes of buffers that vectors load or store in a text of x86's assembly."""
    total = 0
    for line in body.splitlines():
        code = re.sub(r"\{(%k\d|z)\}", "", line).rstrip()
        registers = re.findall(r"%([xyz])mm", code)
        is_vector = registers and not re.match(r"\s*v?\w+s[sd]\s", code)
        if is_vector and re.search(r"\(%r(?!sp|ip)", code) and "{1to" not in code:
            total += (code.endswith(")") is store) * _NBYTES[max(registers)]
    return total


_NBYTES = {"x": 16, "y": 32, "z": 64}  # of a register


# What a row says of a kernel, how many whole vectors of all lanes the body loads and stores (None:
# any number), and what the machine code has and lacks.
Claim = namedtuple(
    "Claim", "kernel kind name how loads stores has lacks", defaults=(None, None, (), "")
)


ONE_BY_ONE = r"\bv?(gather|pgather|pinsr|insertps|movss|movsd|movd\b)"
BY_LANES = r"kortest|kmov|vtestps|v?ptest|movmsk"  # lanes are asked where they go
SHUFFLES = r"v?p?(perm|shuf|unpck|blend)\w*\s"
MASKED = BY_LANES, r"\{%k\d\}|maskmov|blendv|andn?ps"
CLAIMS = [
    Claim(saxpy, "load", "x", "linear: one vector", 2, 1, lacks=ONE_BY_ONE),
    Claim(gathers, "load", "x", "gathered: an address for each lane", None, 1,
          (r"gather[dq](?:ps|d)\s|\b(?:v?movss|v?insertps|v?pinsrd|vmovd)\s.*\(%r",)),
    Claim(scatters, "store", "y", "lane by lane", None, 0,
          (r"v?(movss|movl|extractps|movd)\s+.*%\w+, \(%r\w+,%r\w+,4\)",)),
    Claim(scales, "load", "x", "uniform: one scalar", 1, 1,
          (r"vbroadcastss\s.*\(%r|\{1to\d+\}|shufps",)),
    Claim(evens, "load", "x", "stride 2: a vector and a shuffle", None, 1, (SHUFFLES,), "gather"),
    Claim(greys, "load", "x", "part of one load at stride 3", None, 1, (SHUFFLES,), "gather"),
    Claim(signs, "branch", "", "both sides run, lanes choose", None, None,
          (r"blendv|blendm|\{%k\d\}|v?andn?ps|maxps|minps",), r"kortest|vtestps|ptest|movmsk"),
    Claim(some, "store", "y", "linear: one vector, under a mask", None, None, MASKED),
    Claim(powers, "loop", "", "masked: lanes leave it one by one", None, None, MASKED),
    Claim(sparse, "load", "x", "one thread at a time", lacks=r"\bv?(mul|add|fn?m\w+)p[sd]\b"),
]  # fmt: skip


@needs_avx2
@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.kernel.name}-{claim.kind}")
def test_the_machine_code_is_as_it_says(claim):
    assert claim.how in of(claim.kernel, claim.kind, claim.name)
    (whole, body), width = assembly(claim.kernel), explained("", claim.kernel).width
    text = body if width > 1 else whole
    for store, count in ((False, claim.loads), (True, claim.stores)):
        assert count is None or accessed(body, store) == count * 4 * width, body
    assert all(re.search(needed, text) for needed in claim.has), text
    assert not claim.lacks or not re.search(claim.lacks, text), text


# -- the rows


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_every_loop_branch_and_access_has_a_row(kernel):
    renderer = NotingRenderer()
    renderer.render(kernel.lower())
    gangs = renderer.written
    bodies = [item for body in gangs.bodies.values() for item, _ in walk(body)]
    nodes = {item if isinstance(item, UOp) else item.node for item in bodies}
    regions = regions_of(gangs)
    nodes |= {node for node in gangs.kernel.uops if not regions[node] or gangs.widths.whole == 1}
    kinds = {"IF", "RANGE", "LOOP", "LOAD", "STORE", *ATOMIC_OPS}
    expected = {node for node in nodes if node.op in kinds}
    assert expected == gangs.notes.keys()
    assert sum(row.times for row in explained(kernel.name, kernel).rows) == len(expected)


def test_each_row_begins_with_words_that_the_page_explains():
    table = PAGE.partition("| the last column |")[2].partition("\n\n")[0]
    words = tuple(", ".join(re.findall(r"^\| ([a-z, ]+) \|", table, re.MULTILINE)).split(", "))
    hows = {
        row.how
        for kernel in (*KERNELS, in_subgroups)
        for row in explained(kernel.name, kernel).rows
    }
    assert len(words) == 19 and [how for how in hows if not how.startswith(words)] == []


def test_nodes_of_a_line_that_are_alike_are_one_row():
    (row,) = [row for row in explained("greys", greys).rows if row.kind == "load"]
    assert (row.times, row.name, row.how) == (3, "x", "part of one load at stride 3")
    assert row.text.strip() == "y[i] = x[3 * i] + x[3 * i + 1] + x[3 * i + 2]"
    assert Path(__file__).read_text(encoding="utf-8").splitlines()[row.line - 1] == row.text


def test_a_row_has_one_or_for_the_lanes_that_part():
    parted = "linear: one vector; where lanes part: lane by lane where a test fails"
    assert of(columns, "store", "y") == [parted]


def test_a_loop_that_is_written_out_has_a_row():
    rows = [row for row in explained("fours", fours).rows if row.kind == "loop"]
    assert [(row.how, row.times) for row in rows] == [("written out: each iteration by itself", 1)]
    assert "part of one store at stride 4" in of(fours, "store", "y")


def test_a_kernel_with_barriers_has_regions():
    found = explained("bins", rows_of_blocks)
    assert (found.regions, found.width > 1) == (3, True)
    rows = [(row.region, row.kind, row.name) for row in found.rows]
    assert rows == [
        (1, "branch", ""), (1, "store", "bins"),
        (0, "loop", ""),
        (2, "branch", ""), (2, "load", "x"), (2, "atomic add", "bins"),
        (3, "branch", ""), (3, "load", "bins"), (3, "atomic max", "y"),
    ]  # fmt: skip
    assert found.rows[2].how == "once a block"


@hal.kernel
def in_subgroups(y: Out, x: In) -> None:
    i = hal.global_idx(0)
    y[i] = hal.shuffle(x[i], 3) + hal.shuffle_xor(x[i], 1) + hal.float32(hal.ballot(x[i] > 0))


def test_a_kernel_with_subgroups_has_gangs_of_their_size():
    found = explained("in_subgroups", in_subgroups)
    assert found.subgroup == found.width == found.rest_width and found.width in (8, 16)
    calls = {row.kind: row.how for row in found.rows if row.kind in ("shuffle", "ballot")}
    assert calls == {"shuffle": "one shuffle, by constants", "ballot": "the bits of a mask"}
    assert "one lane, as a scalar" in [row.how for row in found.rows]


def test_a_kernel_that_is_nested_deep_has_regions_and_rows(tmp_path):
    lines = ["t = hal.thread_idx(0)", "s = hal.shared(hal.float32, 64)", "s[t] = x[t]"]
    lines += ["hal.barrier()", *(f"{'  ' * n}if x[{n}] > 0:" for n in range(70))]
    lines += [f"{'  ' * 70}y[t] = s[63 - t]"]
    head = f"{IMPORTS}@hal.kernel\ndef f(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32]):\n"
    found = explained("deep", function(head, "\n".join(lines), tmp_path))
    assert found.width == 1 and found.why.startswith("blocks are nested deeper than")
    rows = [(row.region, row.kind, row.name) for row in found.rows]
    assert found.regions == 2 and len(rows) == 2 + 2 * 70 + 2
    assert rows[:2] == [(1, "load", "x"), (1, "store", "s")]
    assert rows[-2:] == [(2, "load", "s"), (2, "store", "y")]


# -- the command


FILE = """
import hal_core as hal

@hal.kernel
def scale(y: hal.Ptr[hal.float32], a: hal.float32, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = a * y[i]

@hal.kernel
def idle(n: hal.int32):
    pass

def filled(value):
    @hal.kernel
    def fill(y: hal.Ptr[hal.int32], n: hal.int32):
        for k in range(n):
            y[k] = value
    return fill

text = hal.Source("half", "...", "y: float32*, n: int32", language="c")

class Program:
    def __hal_source__(self, device):
        raise AssertionError("not asked")

other = Program()
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "kernels.py").write_text(FILE, encoding="utf-8")
    return str(tmp_path / "kernels.py")


def test_programs_read_json(file, capsys):
    assert main(["explain", f"{file}:scale", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert list(found) == [
        "kernel", "file", "width", "rest_width", "why", "subgroup", "regions", "rows",
    ]  # fmt: skip
    assert (found["kernel"], found["file"], found["why"]) == ("scale", file, "")
    assert found["width"] >= found["rest_width"] > 1 and found["regions"] == 1
    assert [list(row.values())[:5] for row in found["rows"]] == [
        [7, "if i < n:", 1, "branch", ""],
        [8, "y[i] = a * y[i]", 1, "load", "y"],
        [8, "y[i] = a * y[i]", 1, "store", "y"],
    ]
    assert list(found["rows"][0])[5:] == ["how", "times"]
    assert all(f"`{key}`" in PAGE for key in (*found, *found["rows"][0], "error"))


def test_all_kernels_of_a_file_are_explained(file, capsys):
    assert main(["explain", file, "--json"]) == 1
    scale, idle, text, other = json.loads(capsys.readouterr().out)
    assert scale["width"] > 1 and list(text) == ["kernel", "error"] and text["kernel"] == "text"
    assert main(["explain", file]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("scale: gangs of ")
    assert said[1].split() == ["line", "source", "what", "how", "it", "is", "written"]
    assert said[2].split()[:5] == ["7", "if", "i", "<", "n:"]
    assert idle["rows"] == [] and "idle: threads run one by one: nothing differs along x" in said
    assert said[-2:] == [text["error"], other["error"]]


def test_a_call_makes_a_kernel(file, capsys):
    assert main(["explain", f"{file}:filled(3)"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("filled(3): threads run one by one: nothing differs along x\n")


@pytest.mark.parametrize(
    ("name", "said"),
    [("text", r"explain text: only kernels of @hal\.kernel .*\(got 'Source'\)"),
     ("other", r"explain other: only kernels of @hal\.kernel .*\(got 'Program'\)"),
     ("missing", "no such kernel")],
)  # fmt: skip
def test_what_is_no_kernel_is_refused(file, name, said, capsys):
    assert main(["explain", f"{file}:{name}"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and re.search(said, err), err


def test_the_page_shows_what_is_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(processor, "vector_registers", lambda: (32, 64))  # of AVX-512
    example = PAGE.partition("## How the CPU runs a kernel")[2]
    code, shown = re.findall(r"^```(?:python|text)\n(.*?)^```", example, re.MULTILINE | re.DOTALL)
    path = tmp_path / "look_up.py"
    path.write_text(code, encoding="utf-8")
    assert main(["explain", str(path)]) == 0
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == shown.splitlines()
