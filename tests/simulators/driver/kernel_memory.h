// Device memory as an engine sees it. Every access of a kernel to global memory asks.
#pragma once

#include <cstdint>

// An image as kernels see it, through a texture or a surface object.
struct KernelImage {
    uint8_t* bytes = nullptr;
    uint32_t axes = 0, size[3] = {1, 1, 1};  // width, height, depth
    uint32_t channels = 0, nbytes = 0;       // of a pixel: its parts, and the bytes of each
    char kind = 'u';                         // of a part: u, i or f
    bool surface = false;                    // else a texture
    bool normalised = false;                 // integers are read as floats of -1 or 0 to 1

    uint32_t pixel_nbytes() const { return channels * nbytes; }
    uint64_t row_nbytes() const { return uint64_t(size[0]) * pixel_nbytes(); }
    uint8_t* row(uint64_t y, uint64_t z) const { return bytes + (z * size[1] + y) * row_nbytes(); }
};

class KernelMemory {
public:
    virtual ~KernelMemory() = default;
    // Host pointer to that many bytes, all of one live allocation of the context; null: a fault.
    virtual void* at(uint64_t address, uint64_t nbytes, bool write) = 0;
    // The image of a live object of the context; null: a fault.
    virtual const KernelImage* image(uint64_t) { return nullptr; }
};
