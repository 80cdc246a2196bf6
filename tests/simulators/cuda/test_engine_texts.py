"""Texts that are not PTX, or no PTX of this engine: a log with the line, and never a crash."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest
from engine_kernel import entry
from engine_runner import Engine, shared_engine

REGISTERS = "    .reg .f16 %hf<4>; .reg .u32 %u<4>; .reg .f64 %fd<4>;\n    .shared .b32 sh[8];"


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return shared_engine(tmp_path_factory)


def form(line: str) -> str:
    text = entry(f"{REGISTERS}\n    {line}", before=".global .u32 gv[4];")
    return text.replace("sm_80", "sm_90").replace("8.0", "8.6")


RIGHT = """
add.f32 %f1, %f2, 1.5;
add.f32 %f1, %f2, 0d3FF0000000000000;
add.f64 %fd1, %fd2, 0f3F800000;
mov.b32 %r1, 0f3F800000;
add.f32 %r1, %r2, %r3;
add.s32 %u1, %r2, %r3;
add.rn.bf16 %h1, %h2, %h3;
add.f16 %hf1, %hf2, %h1;
mov.b16 %h1, %hf1;
mov.u32 %r1, (2+3)*4 - -1;
mov.u32 %r1, WARP_SZ;
mov.u64 %rd1, gv+4;
mov.u32 %r1, sh;
mov.pred %p1, 1;
mov.b64 %rd1, {%r1, %r2};
mov.b64 {%r1, _}, %rd1;
mov.b64 {%h1, %h2, %h3, %h4}, %rd1;
cvt.u64.u32 %rd1, %tid.x;
cvt.rz.bf16.f16 %h1, %h2;
cvt.u8.u32 %r1, %r2;
selp.b16 %h1, %h2, %h3, !%p1;
setp.eq.f32 %p1|%p2, %f1, 0f00000000;
setp.lt.and.f32 %p1|%p2, %f1, %f2, !%p3;
abs.ftz.f16 %h1, %h2;
ex2.approx.ftz.bf16 %h1, %h2;
min.xorsign.abs.f32 %f1, %f2, %f3;
st.shared.u32 [sh+4], 5;
ld.shared.u32 %r1, [%r2];
ld.local.u32 %r1, [16];
ld.global.f32 %rd1, [%rd2];
ld.global.nc.L1::no_allocate.L2::128B.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];
ld.relaxed.gpu.global.u32 %r1, [%rd1];
st.release.sys.global.u32 [%rd1], %r1;
atom.global.add.s32 %r1, [%rd2], %r3;
atom.cas.b16 %h1, [%rd1], %h2, %h3;
atom.add.noftz.f16x2 %r1, [%rd2], %r2;
barrier.sync 0;
bar.sync %r1, %r2;
fence.sc.gpu;
fence.gpu;
vote.sync.ballot.b32 %r1, !%p1, -1;
@%p1 ret.uni;
""".strip().splitlines()

WRONG = """
frobnicate.b32 %r1, %r2;
add.frob.f32 %f1, %f2, %f3;
add.u32 %r1, %r2;
add.u32 %r1, %r2, %r3, %r4;
add.u32 %r1, %r2, %r99;
add.u32 %r1, %r2, nothing;
add.u32 5, %r2, %r3;
add.f32 %f1, %f2, 1;
mov.f32 %f1, 1;
add.f32 %u1, %r2, %r3;
add.u32 %f1, %r2, %r3;
add.u32 %rd1, %rd2, %rd3;
add.u32 %r1, %tid.x, %r2;
add.sat.bf16 %h1, %h2, %h3;
add.sat.s16 %h1, %h2, %h3;
add.cc.f32 %f1, %f2, %f3;
mul.u32 %r1, %r2, %r3;
mad.f32 %f1, %f2, %f3, %f4;
fma.f32 %f1, %f2, %f3, %f4;
fma.rn.sat.relu.f16 %h1, %h2, %h3, %h4;
div.f32 %f1, %f2, %f3;
div.rn.sat.f32 %f1, %f2, %f3;
sqrt.f32 %f1, %f2;
sqrt.approx.f64 %fd1, %fd2;
rcp.approx.f64 %fd1, %fd2;
neg.u32 %r1, %r2;
abs.u32 %r1, %r2;
ex2.approx.bf16 %h1, %h2;
mov.f16 %h1, %h2;
mov.b8 %r1, %r2;
mov.u32 %r1, %foo;
mov.b32 %r1, {%h1, %r2};
mov.b64 %rd1, {%r1};
cvt.f32.s32 %f1, %r1;
cvt.u32.f32 %r1, %f1;
cvt.rn.u32.f32 %r1, %f1;
cvt.rni.u32.u32 %r1, %r2;
cvt.rn.f64.f32 %fd1, %f1;
cvt.rn.f32.f32 %f1, %f2;
cvt.sat.s64.u8 %rd1, %r1;
cvt.ftz.f64.f64 %fd1, %fd2;
set.lt.s16.s32 %h1, %r1, %r2;
setp.lo.s32 %p1, %r1, %r2;
setp.lt.b32 %p1, %r1, %r2;
setp.ltu.s32 %p1, %r1, %r2;
slct.ftz.b32.s32 %r1, %r2, %r3, %r1;
lop3.b32 %r1, %r2, %r3, %r4, %r5;
prmt.b32.f5e %r1, %r2, %r3, %r4;
ld.global.f16 %h1, [%rd1];
ld.global.u8 %f1, [%rd1];
ld.global.v3.u32 {%r1, %r2, %r3}, [%rd1];
ld.global.v2.u32 %r1, [%rd1];
ld.volatile.global.v4.u64 {%rd1, %rd2, %rd3, %rd4}, [%rd5];
ld.global.u32 %r1, %rd1;
ld.global.u32 %r1, [1234];
ld.global.u32 %r1, [%rd1-4];
ld.global.u32 %r1, [%rd1+%rd2];
ld.global.u32 %r1, [sh];
ld.relaxed.global.u32 %r1, [%rd1];
st.const.u32 [%rd1], %r1;
st.global.u32 [%rd1], %f1;
st.param.u32 [to], %r1;
atom.global.add.s64 %rd1, [%rd2], %rd3;
atom.global.min.f32 %f1, [%rd2], %f3;
atom.add.f16 %h1, [%rd2], %h2;
red.global.exch.b32 [%rd1], %r1;
bar.sync 16;
bar.sync 0, 33;
bar.sync;
bar.sync.aligned 0;
shfl.down.b32 %r1, %r2, 1, 31;
vote.all.pred %p1, %p2;
bra nowhere;
call nobody;
ret %r1;
@%r1 ret;
@ ret;
.reg .b32 %r1; .reg .b32 %again; .reg .b32 %again;
.shared .b32 big[13000];
twice: twice: ret;
mov.u32 %r1, 0xfffffffffffffffff;
mov.u32 %r1, 1 / 0;
mov.u32 %r1, 0f3F80;
""".strip().splitlines()


@pytest.mark.parametrize("line", RIGHT)
def test_right_forms(engine: Engine, line: str) -> None:
    assert engine.logs([form(line)]) == ["ok"]


@pytest.mark.parametrize("line", WRONG)
def test_wrong_forms(engine: Engine, line: str) -> None:
    (log,) = engine.logs([form(line)])
    text = form(line)
    place = 1 + text[: text.index(f"    {line}")].count("\n")
    # What is wrong as a whole is found at the end.
    whole = line.startswith((".shared", "bra nowhere"))
    assert (
        log.startswith("line ")
        if whole
        else log.startswith((f"line {place}:", f"line {place + 1}:"))
    )


def _ptxas() -> str | None:
    """On the path, or in the wheel `nvidia-cuda-nvcc-cu12`."""
    found = importlib.util.find_spec("nvidia")
    places = found.submodule_search_locations if found else None
    in_wheel = (path for place in places or () for path in Path(place).glob("*/bin/ptxas"))
    return shutil.which("ptxas") or next(map(str, in_wheel), None)


PTXAS = _ptxas()
# Where ptxas is kinder: it divides by zero, and takes sums that say nothing to it.
KINDER = {"mov.u32 %r1, 1 / 0;", "mov.u32 %r1, %foo;"}


@pytest.mark.skipif(
    PTXAS is None, reason="ptxas is not installed (pip install nvidia-cuda-nvcc-cu12)"
)
def test_ptxas_judges_alike(tmp_path: Path) -> None:
    differ = []
    for line in (*RIGHT, *(line for line in WRONG if line not in KINDER)):
        path = tmp_path / "form.ptx"
        path.write_text(form(line))
        command = [str(PTXAS), "-arch", "sm_90", str(path), "-o", str(tmp_path / "form.cubin")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if (done.returncode == 0) != (line in RIGHT):
            differ.append(f"{line}: {done.stderr}")
    assert not differ, "\n".join(differ)
