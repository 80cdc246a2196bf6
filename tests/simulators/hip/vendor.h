// What the driver in `tests/simulators/driver` is told of its vendor.
#pragma once

// The vendor's own name of an entry point, and as text.
#define ENTRY(cuda, hip) hip
#define NAME(cuda, hip) #hip

namespace sim {

constexpr char PREFIX[] = "hip", SETTINGS[] = "SIM_HIP_";
constexpr const char* VISIBLE[] = {"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
                                   "CUDA_VISIBLE_DEVICES"};
constexpr unsigned ARRAY_MOST[3][3] = {{16384}, {16384, 16384}, {16384, 16384, 8192}};
constexpr bool REPLAYS_IN_TURN = false;  // those of one graph, on two streams
// Of pinned memory: portable, mapped, write-combined; the caller's node, coherent or not.
constexpr unsigned HOST_FLAGS = 7 | 0xe0000000;

struct VendorSettings {
    int version = 60342134;      // of the runtime: major, two digits of minor, five of patch
    bool fault_aborts = false;   // a memory fault ends the process, as ROCm does

    void read();
};

}  // namespace sim
