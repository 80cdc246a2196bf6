// Vector conversions: to integers they truncate and saturate, and a NaN gives 0.
#include <limits>

#include "arithmetic.h"

namespace gfx9 {
namespace {

template <class To>
To saturated(double value) {
    if (value != value) return 0;
    if (value <= double(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    if (value >= double(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    return To(value);
}

// Towards zero, which rounding to the nearest may have passed by.
Half towards_zero(float value) {
    const Half near = double(value);
    return value == value && std::fabs(float(near)) > std::fabs(value) ? Half(near.bits - 1, 0)
                                                                       : near;
}

template <int which>
float byte_of(uint32_t word) {
    return float(word >> (8 * which) & 0xff);
}

}  // namespace

void add_convert_rows(Table& table) {
    table.vector("v_cvt_f32_i32", [](int32_t a) { return float(a); });
    table.vector("v_cvt_f32_u32", [](uint32_t a) { return float(a); });
    table.vector("v_cvt_f64_i32", [](int32_t a) { return double(a); });
    table.vector("v_cvt_f64_u32", [](uint32_t a) { return double(a); });
    table.vector("v_cvt_i32_f32", [](float a) { return saturated<int32_t>(a); });
    table.vector("v_cvt_u32_f32", [](float a) { return saturated<uint32_t>(a); });
    table.vector("v_cvt_i32_f64", [](double a) { return saturated<int32_t>(a); });
    table.vector("v_cvt_u32_f64", [](double a) { return saturated<uint32_t>(a); });
    table.vector("v_cvt_rpi_i32_f32", [](float a) { return saturated<int32_t>(std::floor(a + 0.5)); });
    table.vector("v_cvt_flr_i32_f32", [](float a) { return saturated<int32_t>(std::floor(a)); });
    table.vector("v_cvt_f32_f64", [](double a) { return float(a); });
    table.vector("v_cvt_f64_f32", [](float a) { return double(a); });
    table.vector("v_cvt_f16_f32", [](float a) -> Half { return double(a); });
    table.vector("v_cvt_f32_f16", [](Half a) { return float(a); });
    table.vector("v_cvt_f16_u16", [](uint16_t a) -> Half { return double(a); });
    table.vector("v_cvt_f16_i16", [](int16_t a) -> Half { return double(a); });
    table.vector("v_cvt_u16_f16", [](Half a) { return saturated<uint16_t>(a); });
    table.vector("v_cvt_i16_f16", [](Half a) { return saturated<int16_t>(a); });
    table.vector("v_cvt_f32_ubyte0", [](uint32_t a) { return byte_of<0>(a); });
    table.vector("v_cvt_f32_ubyte1", [](uint32_t a) { return byte_of<1>(a); });
    table.vector("v_cvt_f32_ubyte2", [](uint32_t a) { return byte_of<2>(a); });
    table.vector("v_cvt_f32_ubyte3", [](uint32_t a) { return byte_of<3>(a); });
    table.vector("v_cvt_pkrtz_f16_f32", [](float a, float b) {
        return Packed<Half>{towards_zero(a), towards_zero(b)};
    });
}

}  // namespace gfx9
