"""PTX by hand, for what the tests of the driver launch. Each text has one entry of its name."""

HEAD = ".version 7.0\n.target sm_50\n.address_size 64\n"
INDEX = """
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    mul.wide.u32 %rd2, %r4, 4;
"""


def entry(name, params, body, *, before="", after=""):
    """A whole text; `after` stands between the parameters and the body."""
    return f"""{HEAD}{before}
.visible .entry {name}({params}) {after}
{{
    .reg .b32 %r<16>;
    .reg .b64 %rd<16>;
    .reg .pred %p<4>;
{body}
    ret;
}}
"""


# to[i] = value + i
FILL = entry(
    "fill",
    ".param .u64 to, .param .u32 value",
    f"""{INDEX}
    ld.param.u64 %rd1, [to];
    ld.param.u32 %r5, [value];
    add.u32 %r6, %r5, %r4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r6;
""",
)


TRAP = entry("trap", "", "    trap;")

FOREVER = entry("forever", "", "again:\n    add.u32 %r1, %r1, 1;\n    bra again;")

ASSERT = entry(
    "fails",
    "",
    """    {
    .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;
    mov.u64 %rd1, what;
    cvta.global.u64 %rd2, %rd1;
    st.param.b64 [a], %rd2;
    st.param.b64 [b], %rd2;
    mov.u32 %r1, 7;
    st.param.b32 [c], %r1;
    st.param.b64 [d], %rd2;
    mov.u64 %rd3, 1;
    st.param.b64 [e], %rd3;
    call.uni __assertfail, (a, b, c, d, e);
    }""",
    before=".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, "
    ".param .b64 d, .param .b64 e);\n"
    ".global .align 1 .b8 what[5] = {119, 104, 97, 116, 0};",
)
