// Device memory as an engine sees it. Every access of a kernel to global memory asks.
#pragma once

#include <cstdint>

class KernelMemory {
public:
    virtual ~KernelMemory() = default;
    // Host pointer to that many bytes, all of one live allocation of the context; null: a fault.
    virtual void* at(uint64_t address, uint64_t nbytes, bool write) = 0;
};
