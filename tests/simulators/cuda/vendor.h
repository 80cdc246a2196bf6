// What the driver in `tests/simulators/driver` is told of its vendor.
#pragma once

#include "engine.h"

// The vendor's own name of an entry point, and as text.
#define ENTRY(cuda, hip) cuda
#define NAME(cuda, hip) #cuda

namespace sim {

constexpr char PREFIX[] = "cu", SETTINGS[] = "SIM_CUDA_";
constexpr const char* VISIBLE[] = {"CUDA_VISIBLE_DEVICES"};

constexpr bool REPLAYS_IN_TURN = true;  // those of one graph, on any streams

// Pixels of arrays of one, two and three axes: those of surfaces, which textures exceed.
constexpr unsigned ARRAY_MOST[3][3] = {{32768}, {131072, 65536}, {16384, 16384, 16384}};

constexpr unsigned HOST_FLAGS = 7;  // of pinned memory: portable, mapped, write-combined

struct VendorSettings {
    int cc_major = 99, cc_minor = 0;      // no compiler knows it: callers fall back to PTX
    int driver_version = 12090;
    ptx::Schedule schedule = ptx::Schedule::RunToBarrier;

    void read();
};

}  // namespace sim
