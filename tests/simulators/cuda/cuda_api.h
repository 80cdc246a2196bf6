// The driver interface as its callers compile it: the types, constants and records that we serve.
// Names are the vendor's, since that is what users look up; the text is ours.
#pragma once

#include "status.h"

using CUcontext = sim::ContextHandle;
using CUstream = sim::StreamHandle;
using CUevent = sim::EventHandle;
using CUmodule = sim::ModuleHandle;
using CUfunction = sim::FunctionHandle;
using CUkernel = struct CUkern_st*;
using CUmemoryPool = sim::PoolHandle;
using CUarray = sim::ArrayHandle;

using CUdevice = int;
using CUdeviceptr = unsigned long long;

using CUresult = sim::Status;

// -- flags

constexpr unsigned CU_CTX_SCHED_BLOCKING_SYNC = 4, CU_CTX_MAP_HOST = 8;

// The `extra` way of giving a launch its arguments.
constexpr uintptr_t CU_LAUNCH_PARAM_END = 0, CU_LAUNCH_PARAM_BUFFER_POINTER = 1,
                    CU_LAUNCH_PARAM_BUFFER_SIZE = 2;

enum CUmemorytype : unsigned {
    CU_MEMORYTYPE_HOST = 1,
    CU_MEMORYTYPE_DEVICE = 2,
    CU_MEMORYTYPE_ARRAY = 3,
    CU_MEMORYTYPE_UNIFIED = 4,
};

enum CUjit_option : unsigned {
    CU_JIT_WALL_TIME = 2,
    CU_JIT_INFO_LOG_BUFFER = 3,
    CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES = 4,
    CU_JIT_ERROR_LOG_BUFFER = 5,
    CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
    CU_JIT_LAST_KNOWN = 35,
};

enum CUfunction_attribute : unsigned {
    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
    CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
    CU_FUNC_ATTRIBUTE_PTX_VERSION = 5,
    CU_FUNC_ATTRIBUTE_BINARY_VERSION = 6,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    CU_FUNC_ATTRIBUTE_COUNT = 16,
};

// -- records

struct CUuuid {
    char bytes[16];
};

// The same layout serves the peer form, where `reserved` is the context.
struct CUDA_MEMCPY3D {
    size_t srcXInBytes, srcY, srcZ, srcLOD;
    CUmemorytype srcMemoryType;
    const void* srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    void* srcReserved;
    size_t srcPitch, srcHeight;
    size_t dstXInBytes, dstY, dstZ, dstLOD;
    CUmemorytype dstMemoryType;
    void* dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    void* dstReserved;
    size_t dstPitch, dstHeight;
    size_t WidthInBytes, Height, Depth;
};

struct CUDA_KERNEL_NODE_PARAMS {
    CUfunction func;
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    void **kernelParams, **extra;
    CUkernel kern;
    CUcontext ctx;
};

struct CUDA_MEMSET_NODE_PARAMS {
    CUdeviceptr dst;
    size_t pitch;
    unsigned value, elementSize;
    size_t width, height;
};
