// Statuses, handles and flags that drivers have in common: CUDA's, which HIP shares.
#pragma once

#include <cstddef>
#include <cstdint>

#include "vendor.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace sim {

enum Status : int {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    DEINITIALIZED = 4,
    DEVICE_UNAVAILABLE = 46,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    PEER_ACCESS_UNSUPPORTED = 217,
    INVALID_PTX = 218,
    UNSUPPORTED_PTX_VERSION = 222,
    FILE_NOT_FOUND = 301,
    OPERATING_SYSTEM = 304,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_OUT_OF_RESOURCES = 701,
    LAUNCH_TIMEOUT = 702,
    PEER_ACCESS_ALREADY_ENABLED = 704,
    PEER_ACCESS_NOT_ENABLED = 705,
    PRIMARY_CONTEXT_ACTIVE = 708,
    CONTEXT_IS_DESTROYED = 709,
    ASSERT = 710,
    ILLEGAL_INSTRUCTION = 715,
    MISALIGNED_ADDRESS = 716,
    LAUNCH_FAILED = 719,
    NOT_PERMITTED = 800,
    NOT_SUPPORTED = 801,
    STREAM_CAPTURE_UNSUPPORTED = 900,
    STREAM_CAPTURE_IMPLICIT = 906,
    CAPTURED_EVENT = 907,
    UNKNOWN = 999,
};

// One spelling for every opaque handle would let a stream pass for an event.
using ContextHandle = struct OpaqueContext*;
using StreamHandle = struct OpaqueStream*;
using EventHandle = struct OpaqueEvent*;
using ModuleHandle = struct OpaqueModule*;
using FunctionHandle = struct OpaqueFunction*;
using PoolHandle = struct OpaquePool*;
using ArrayHandle = struct OpaqueArray*;

using Address = unsigned long long;

// Streams that exist without being made.
constexpr uintptr_t LEGACY_STREAM = 1, PER_THREAD_STREAM = 2;

constexpr unsigned NON_BLOCKING = 1;                     // of a stream
constexpr int CAPTURE_GLOBAL = 0, CAPTURE_RELAXED = 2;    // how a thread minds captures
constexpr unsigned DISABLE_TIMING = 2, INTERPROCESS = 4;  // of an event
constexpr unsigned MAPPED = 2;                           // of pinned memory
constexpr unsigned ATTACH_GLOBAL = 1, ATTACH_HOST = 2;    // of managed memory

enum PointerAttribute : unsigned {
    POINTER_CONTEXT = 1,
    POINTER_MEMORY_TYPE = 2,
    POINTER_IS_MANAGED = 8,
    POINTER_DEVICE_ORDINAL = 9,
};

enum PoolAttribute : unsigned {
    POOL_RELEASE_THRESHOLD = 4,
    POOL_RESERVED_MEM_CURRENT = 5,
    POOL_RESERVED_MEM_HIGH = 6,
    POOL_USED_MEM_CURRENT = 7,
    POOL_USED_MEM_HIGH = 8,
};

struct PoolPlace {
    int type;  // 1: a device
    int id;
};

struct PoolFacts {
    int allocType;    // 1: pinned
    int handleTypes;  // 0: none
    PoolPlace location;
    void* win32SecurityAttributes;
    size_t maxSize;
    unsigned short usage;
    unsigned char reserved[54];
};

struct PoolAccess {
    PoolPlace location;
    int flags;  // 0: none, 1: read, 3: read and write
};

using HostFunction = void (*)(void*);

}  // namespace sim
