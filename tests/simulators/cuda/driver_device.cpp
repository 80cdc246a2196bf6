// Entry points: which devices there are, and what they can do.
#include <cstdio>
#include <cstring>
#include <map>

#include "module.h"

using namespace sim;

namespace {

// By the vendor's numbers. What is not here and is within the range that is known reads as zero.
const std::map<int, int>& attributes() {
    static const auto& table = *new std::map<int, int>{
        {1, 1024},         // threads of a block
        {2, 1024}, {3, 1024}, {4, 64},
        {5, 2147483647}, {6, 65535}, {7, 65535},
        {8, int(SHARED_DEFAULT)},
        {9, 65536},        // constant memory
        {10, 32},          // warp
        {11, 2147483647},  // pitch
        {12, int(REGISTERS_ALL)},
        {13, 1500000},     // clock, kHz
        {14, 512},         // texture alignment
        {15, 1},           // copies beside kernels
        {16, int(PROCESSORS)},
        {19, 1},           // maps host memory
        {21, 131072}, {22, 131072}, {23, 65536}, {24, 16384}, {25, 16384}, {26, 16384},
        {27, 32768}, {28, 32768}, {29, 2048},
        {30, 512},
        {31, 1},           // concurrent kernels
        {36, 2000000},     // memory clock, kHz
        {37, 256},         // bus width, bits
        {38, 4 << 20},     // second-level cache
        {39, int(THREADS_ALL)},
        {40, 2},           // copy engines
        {41, 1},           // unified addressing
        {51, 32},          // pitch alignment of textures
        {55, 32768}, {56, 131072}, {57, 65536}, {58, 16384}, {59, 16384}, {60, 16384},  // surfaces
        {78, 1},           // stream priorities
        {79, 1}, {80, 1},
        {81, int(SHARED_ALL)},
        {82, int(REGISTERS_ALL)},
        {83, 1},           // managed memory
        {87, 2},           // single to double
        {89, 1},           // managed memory beside kernels
        {90, 1},
        {91, 1},           // registered memory under its own address
        {97, int(SHARED_MOST)},
        {99, 1},           // registers host memory
        {106, int(BLOCKS_ALL)},
        {111, int(SHARED_RESERVED)},
        {115, 1},          // memory pools
        {126, 1},
        {134, -1},
    };
    return table;
}

constexpr int LAST_ATTRIBUTE = 160;

int attribute(const Device& device, int which) {
    need(which >= 1 && which <= LAST_ATTRIBUTE);
    switch (which) {
        case 33: return device.ordinal + 1;  // PCI bus
        case 75: return driver().settings.cc_major;
        case 76: return driver().settings.cc_minor;
        default: break;
    }
    auto found = attributes().find(which);
    return found == attributes().end() ? 0 : found->second;
}

std::string bus_id(const Device& device) {
    char text[32];
    std::snprintf(text, sizeof text, "0000:%02X:00.0", device.ordinal + 1);
    return text;
}

void copy_text(char* out, int room, const std::string& text) {
    need(out && room > 0);
    std::snprintf(out, size_t(room), "%s", text.c_str());
}

}  // namespace

EXPORT CUresult cuDeviceGetCount(int* out) {
    return enter("cuDeviceGetCount", [&](Lock&) {
        need(out != nullptr);
        *out = int(driver().devices.size());
    });
}

EXPORT CUresult cuDeviceGet(CUdevice* out, int ordinal) {
    return enter("cuDeviceGet", [&](Lock&) {
        need(out != nullptr);
        *out = device_at(ordinal).ordinal;
    });
}

EXPORT CUresult cuDeviceGetName(char* out, int room, CUdevice ordinal) {
    return enter("cuDeviceGetName", [&](Lock&) {
        copy_text(out, room, "Software CUDA device " + std::to_string(device_at(ordinal).ordinal));
    });
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t* out, CUdevice ordinal) {
    return enter("cuDeviceTotalMem", [&](Lock&) {
        need(out != nullptr);
        device_at(ordinal);
        *out = driver().settings.memory_nbytes;
    });
}

EXPORT CUresult cuDeviceGetAttribute(int* out, int which, CUdevice ordinal) {
    return enter("cuDeviceGetAttribute", [&](Lock&) {
        need(out != nullptr);
        *out = attribute(device_at(ordinal), which);
    });
}

EXPORT CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice ordinal) {
    return enter("cuDeviceComputeCapability", [&](Lock&) {
        need(major && minor);
        device_at(ordinal);
        *major = driver().settings.cc_major;
        *minor = driver().settings.cc_minor;
    });
}

EXPORT CUresult cuDeviceGetPCIBusId(char* out, int room, CUdevice ordinal) {
    return enter("cuDeviceGetPCIBusId",
                 [&](Lock&) { copy_text(out, room, bus_id(device_at(ordinal))); });
}
