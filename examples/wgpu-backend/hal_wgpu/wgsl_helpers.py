"""Functions that kernels in WGSL call, each behind those that it calls itself."""

HELPERS = {
    # A function's parameter is no constant, so an infinity is not refused.
    "hal_float": """
fn hal_float(bits: u32) -> f32 { return bitcast<f32>(bits); }
""",
    # On bits, as compilers of WGSL may assume that there are no NaN.
    "hal_isnan": """
fn hal_isnan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
""",
    "hal_min": """
fn hal_min(a: f32, b: f32) -> f32 { if (b < a) { return b; } return a; }
""",
    "hal_max": """
fn hal_max(a: f32, b: f32) -> f32 { if (b > a) { return b; } return a; }
""",
    "hal_floordiv_i32": """
fn hal_floordiv_i32(a: i32, b: i32) -> i32 {
    if (b == 0) { return 0; }
    if (b == -1) { return -a; }
    let q = a / b;
    return select(q, q - 1, q * b != a && (a < 0) != (b < 0));
}
""",
    "hal_mod_i32": """
fn hal_mod_i32(a: i32, b: i32) -> i32 {
    if (b == 0 || b == -1) { return 0; }
    let r = a % b;
    return select(r, r + b, r != 0 && (r < 0) != (b < 0));
}
""",
    "hal_truncdiv_i32": """
fn hal_truncdiv_i32(a: i32, b: i32) -> i32 {
    if (b == 0) { return 0; }
    if (b == -1) { return -a; }
    return a / b;
}
""",
    "hal_truncmod_i32": """
fn hal_truncmod_i32(a: i32, b: i32) -> i32 {
    if (b == 0 || b == -1) { return 0; }
    return a % b;
}
""",
    "hal_floordiv_u32": """
fn hal_floordiv_u32(a: u32, b: u32) -> u32 { if (b == 0u) { return 0u; } return a / b; }
""",
    "hal_mod_u32": """
fn hal_mod_u32(a: u32, b: u32) -> u32 { if (b == 0u) { return 0u; } return a % b; }
""",
    "hal_f32_to_i32": """
fn hal_f32_to_i32(x: f32) -> i32 {
    if (hal_isnan(x)) { return 0; }
    if (x >= 2147483648.0) { return 2147483647; }
    if (x <= -2147483648.0) { return i32(-2147483648); }
    return i32(x);
}
""",
    "hal_f32_to_u32": """
fn hal_f32_to_u32(x: f32) -> u32 {
    if (hal_isnan(x) || x <= 0.0) { return 0u; }
    if (x >= 4294967296.0) { return 4294967295u; }
    return u32(x);
}
""",
    "hal_float16_to_f32": """
fn hal_float16_to_f32(h: u32) -> f32 {
    let sign = (h & 0x8000u) << 16u;
    let rest = h & 0x7fffu;
    if (rest >= 0x7c00u) { return bitcast<f32>(sign | 0x7f800000u | ((rest & 0x3ffu) << 13u)); }
    if (rest >= 0x400u) { return bitcast<f32>(sign | ((rest << 13u) + 0x38000000u)); }
    return bitcast<f32>(sign | bitcast<u32>(f32(rest) * 0x1p-24f));
}
""",
    "hal_f32_to_float16": """
fn hal_f32_to_float16(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let sign = (bits >> 16u) & 0x8000u;
    let rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) { return sign | 0x7e00u; }
    if (rest >= 0x477ff000u) { return sign | 0x7c00u; }
    if (rest < 0x38800000u) { return sign | u32(round(bitcast<f32>(rest) * 0x1p24f)); }
    return sign | ((rest - 0x38000000u + 0xfffu + ((rest >> 13u) & 1u)) >> 13u);
}
""",
    "hal_bfloat16_to_f32": """
fn hal_bfloat16_to_f32(h: u32) -> f32 { return bitcast<f32>(h << 16u); }
""",
    "hal_f32_to_bfloat16": """
fn hal_f32_to_bfloat16(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    if (hal_isnan(x)) { return (bits >> 16u) | 0x40u; }
    return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}
""",
    # Long division of the mantissas: the remainder is exact.
    "hal_fmod": """
fn hal_fmod(a: f32, b: f32) -> f32 {
    var x = abs(a);
    let y = abs(b);
    if (hal_isnan(a) || hal_isnan(b) || y == 0.0 || bitcast<u32>(x) >= 0x7f800000u) {
        return hal_float(0x7fc00000u);
    }
    if (bitcast<u32>(y) >= 0x7f800000u) { return a; }
    loop {
        if (x < y) { break; }
        var step = y;
        let low = bitcast<u32>(y);
        let apart = (bitcast<u32>(x) >> 23u) - (low >> 23u);
        if ((low >> 23u) != 0u) { step = bitcast<f32>(low + (apart << 23u)); }
        if (step > x) { step = step * 0.5; }
        x = x - step;
    }
    return bitcast<f32>(bitcast<u32>(x) | (bitcast<u32>(a) & 0x80000000u));
}
""",
    # WGSL's own is the less exact the larger x is: x = n ln 2 + r.
    "hal_exp": """
fn hal_exp(x: f32) -> f32 {
    if (hal_isnan(x)) { return x; }
    let n = round(clamp(x, -110.0, 90.0) * 1.44269504);
    let r = (clamp(x, -110.0, 90.0) - n * 0.693359375) + n * 2.12194440e-4;
    let half = i32(n) / 2;
    let rest = i32(n) - half;
    return exp(r) * bitcast<f32>((half + 127) << 23u) * bitcast<f32>((rest + 127) << 23u);
}
""",
    "hal_tanh": """
fn hal_tanh(x: f32) -> f32 {
    let z = x * x;
    if (z < 0.390625) {
        let p = ((-5.70498873e-3 * z + 2.06390888e-2) * z - 5.37397156e-2) * z + 1.33314422e-1;
        return x + x * (z * (p * z - 3.33332819e-1));
    }
    return sign(x) * (1.0 - 2.0 / (hal_exp(2.0 * abs(x)) + 1.0));
}
""",
    # WGSL's own knows no base below 0, no infinity and no NaN.
    "hal_pow": """
fn hal_pow(x: f32, y: f32) -> f32 {
    let infinity = hal_float(0x7f800000u);
    if (x == 1.0 || y == 0.0) { return 1.0; }
    if (hal_isnan(x) || hal_isnan(y)) { return hal_float(0x7fc00000u); }
    let whole = trunc(y) == y;
    let odd = whole && abs(y) < 16777216.0 && (i32(y) & 1) == 1;
    let sign = select(1.0, -1.0, odd && (bitcast<u32>(x) >> 31u) == 1u);
    let base = abs(x);
    if (base == 0.0 || base == infinity) {
        return sign * select(infinity, 0.0, (base == 0.0) == (y > 0.0));
    }
    if (abs(y) == infinity) {
        if (base == 1.0) { return 1.0; }
        return select(infinity, 0.0, (base < 1.0) == (y > 0.0));
    }
    if (x < 0.0 && !whole) { return hal_float(0x7fc00000u); }
    return sign * pow(base, y);
}
""",
}
