// Entry points: what a device is. The numbers are those of a Radeon Instinct MI50, scaled down.
#include <cstdio>
#include <cstring>
#include <map>

#include "module.h"
#include "runtime.h"

using namespace sim;

namespace {

constexpr char ARCHITECTURE[] = "gfx906:sramecc+:xnack-";
constexpr int PROCESSORS = 16, WAVE = 64, CLOCK = 1'725'000, MEMORY_CLOCK = 1'000'000;

std::string title(const Device& device) {
    return "Software HIP device " + std::to_string(device.ordinal);
}

// Source: hipDeviceAttribute_t of hip_runtime_api.h since 5.0.
const std::map<int, int>& attributes() {
    static const auto& table = *new std::map<int, int>{
        {0, 1},                                    // ECC
        {2, 2},                                    // copy engines
        {3, 1},                                    // maps host memory
        {5, CLOCK},
        {8, 1},                                    // concurrent kernels
        {16, 0},                                   // integrated
        {19, 4 << 20},                             // second-level cache
        {23, 9}, {61, 0},                          // major and minor of gfx9
        {26, 1024}, {27, 1024}, {28, 1024},        // block
        {29, 2147483647}, {30, 65536}, {31, 65536},  // grid
        {39, 16384}, {43, 16384}, {44, 16384},     // images
        {49, 16384}, {50, 16384}, {51, 8192},
        {56, 1024},                                // threads of a block
        {59, 4096}, {60, MEMORY_CLOCK},
        {63, PROCESSORS},
        {70, 0}, {71, 0},
        {74, int(SHARED_MOST)},
        {82, 512},
        {87, WAVE},
        {88, 1},                                   // memory pools
        {10014, 1},                                // has images
    };
    return table;
}

constexpr int LAST_ATTRIBUTE = 20'000;

// The layout before 6.0, as far as it was filled in. Source: hip_runtime_api.h of 5.2.
struct OldProperties {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock;
    int regsPerBlock, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
    int clockRate, memoryClockRate, memoryBusWidth;
    size_t totalConstMem;
    int major, minor, multiProcessorCount, l2CacheSize, maxThreadsPerMultiProcessor, computeMode;
    int clockInstructionRate;
    unsigned arch;
    int concurrentKernels, pciDomainID, pciBusID, pciDeviceID;
    size_t maxSharedMemoryPerMultiProcessor;
    int isMultiGpuBoard, canMapHostMemory, gcnArch;
    char gcnArchName[256];
    int rest[68];
};

// The one since 6.0. Source: hip_runtime_api.h of 6.0.
struct Properties {
    char name[256], uuid[16], luid[8];
    unsigned luidDeviceNodeMask;
    size_t totalGlobalMem, sharedMemPerBlock;
    int regsPerBlock, warpSize;
    size_t memPitch;
    int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate;
    size_t totalConstMem;
    int major, minor;
    size_t textureAlignment, texturePitchAlignment;
    int deviceOverlap, multiProcessorCount, kernelExecTimeoutEnabled, integrated, canMapHostMemory;
    int computeMode, images[40];
    size_t surfaceAlignment;
    int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver;
    int asyncEngineCount, unifiedAddressing, memoryClockRate, memoryBusWidth, l2CacheSize;
    int persistingL2CacheMaxSize, maxThreadsPerMultiProcessor, flags[3];
    size_t sharedMemPerMultiprocessor;
    int regsPerMultiprocessor, more[11];
    size_t sharedMemPerBlockOptin;
    int others[4];
    size_t reservedSharedMemPerBlock;
    int abilities[13], reserved[63], hipReserved[32];
    char gcnArchName[256];
    size_t maxSharedMemoryPerMultiProcessor;
    int clockInstructionRate;
    unsigned arch;
    void *hdpMemFlushCntl, *hdpRegFlushCntl;
    int cooperative[4], isLargeBar, asicRevision;
};
static_assert(sizeof(Properties) == 1472 && offsetof(Properties, gcnArchName) == 1160);

template <class Layout>
void fill_in(Layout& out, const Device& device) {
    std::memset(&out, 0, sizeof out);
    std::snprintf(out.name, sizeof out.name, "%s", title(device).c_str());
    std::snprintf(out.gcnArchName, sizeof out.gcnArchName, "%s", ARCHITECTURE);
    out.totalGlobalMem = driver().settings.memory_nbytes;
    out.sharedMemPerBlock = out.maxSharedMemoryPerMultiProcessor = SHARED_MOST;
    out.regsPerBlock = 65536, out.warpSize = WAVE;
    out.maxThreadsPerBlock = 1024;
    for (int axis = 0; axis < 3; ++axis) {
        out.maxThreadsDim[axis] = 1024;
        out.maxGridSize[axis] = axis ? 65536 : 2147483647;
    }
    out.clockRate = CLOCK, out.memoryClockRate = MEMORY_CLOCK, out.memoryBusWidth = 4096;
    out.major = 9, out.minor = 0;
    out.multiProcessorCount = PROCESSORS;
    out.l2CacheSize = 4 << 20, out.maxThreadsPerMultiProcessor = 2560;
    out.concurrentKernels = out.canMapHostMemory = 1;
    out.pciBusID = device.ordinal + 1;
}

template <class Layout>
Status properties(const char* name, Layout* out, int ordinal) {
    return enter(name, [&](Lock&) {
        need(out != nullptr);
        fill_in(*out, device_at(ordinal));
    });
}

void copy_text(char* out, int room, const std::string& text) {
    need(out && room > 0);
    std::snprintf(out, size_t(room), "%s", text.c_str());
}

}  // namespace

EXPORT Status hipGetDeviceProperties(OldProperties* out, int ordinal) {
    return properties("hipGetDeviceProperties", out, ordinal);
}

EXPORT Status hipGetDevicePropertiesR0600(Properties* out, int ordinal) {
    return properties("hipGetDevicePropertiesR0600", out, ordinal);
}

EXPORT Status hipDeviceGetName(char* out, int room, int ordinal) {
    return enter("hipDeviceGetName",
                 [&](Lock&) { copy_text(out, room, title(device_at(ordinal))); });
}

EXPORT Status hipDeviceTotalMem(size_t* out, int ordinal) {
    return enter("hipDeviceTotalMem", [&](Lock&) {
        need(out != nullptr);
        device_at(ordinal);
        *out = driver().settings.memory_nbytes;
    });
}

EXPORT Status hipDeviceGetAttribute(int* out, int which, int ordinal) {
    return enter("hipDeviceGetAttribute", [&](Lock&) {
        need(out && which >= 0 && which <= LAST_ATTRIBUTE);
        device_at(ordinal);
        auto found = attributes().find(which);
        *out = found == attributes().end() ? 0 : found->second;
    });
}
