// Entry points: coming up, and what SIM_CUDA_* says.
#include <cstdlib>
#include <cstring>

#include "cuda_api.h"
#include "driver.h"
#include "faults.h"

using namespace sim;

namespace {

// "12.9" and "12090" both.
int read_version(const char* text) {
    const char* dot = std::strchr(text, '.');
    return dot ? std::atoi(text) * 1000 + std::atoi(dot + 1) * 10 : std::atoi(text);
}

}  // namespace

void VendorSettings::read() {
    if (auto text = setting("CC")) {
        const char* dot = std::strchr(text, '.');
        cc_major = std::atoi(text);
        cc_minor = dot ? std::atoi(dot + 1) : 0;
    }
    if (auto text = setting("DRIVER")) driver_version = read_version(text);
    if (auto text = setting("SCHEDULE"))
        schedule = std::strcmp(text, "lockstep") == 0 ? ptx::Schedule::Lockstep
                                                      : ptx::Schedule::RunToBarrier;
}

void sim::wake() { refuse(NOT_INITIALIZED); }

EXPORT CUresult cuInit(unsigned flags) {
    return answer([&] {
        need(!driver().forked, NOT_INITIALIZED);
        need(!driver().ended, DEINITIALIZED);
        CUresult wanted = arrived("cuInit");
        need(wanted == SUCCESS, wanted);
        need(flags == 0);
        initialize();
    });
}

EXPORT CUresult cuDriverGetVersion(int* out) {
    return answer([&] {
        need(out != nullptr);
        CUresult wanted = arrived("cuDriverGetVersion");
        need(wanted == SUCCESS, wanted);
        *out = driver().initialized ? driver().settings.driver_version
                                    : read_settings().driver_version;
    });
}
