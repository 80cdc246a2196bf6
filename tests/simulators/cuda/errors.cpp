// Every code's name and sentence. Where no sentence is written the name says it.
#include "errors.h"
#include "cuda_api.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string>

namespace {

struct Code {
    const char* name;
    std::string sentence;
};

std::string from_name(const char* name) {
    std::string words = std::string(name).substr(std::string("CUDA_ERROR_").size());
    std::transform(words.begin(), words.end(), words.begin(),
                   [](unsigned char c) { return c == '_' ? ' ' : char(std::tolower(c)); });
    return words;
}

std::map<int, Code> codes_by_number() {
    std::map<int, Code> codes;
    codes[0] = {"CUDA_SUCCESS", "no error"};
    auto add = [&](int code, const char* name, const char* sentence = nullptr) {
        codes[code] = {name, sentence ? sentence : from_name(name)};
    };
    add(1, "CUDA_ERROR_INVALID_VALUE", "invalid argument");
    add(2, "CUDA_ERROR_OUT_OF_MEMORY");
    add(3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error");
    add(4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down");
    add(5, "CUDA_ERROR_PROFILER_DISABLED");
    add(6, "CUDA_ERROR_PROFILER_NOT_INITIALIZED");
    add(7, "CUDA_ERROR_PROFILER_ALREADY_STARTED");
    add(8, "CUDA_ERROR_PROFILER_ALREADY_STOPPED");
    add(34, "CUDA_ERROR_STUB_LIBRARY");
    add(36, "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER");
    add(46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable");
    add(47, "CUDA_ERROR_MULTICAST_RESOURCE_FULL");
    add(100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected");
    add(101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal");
    add(102, "CUDA_ERROR_DEVICE_NOT_LICENSED");
    add(200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid");
    add(201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context");
    add(202, "CUDA_ERROR_CONTEXT_ALREADY_CURRENT");
    add(205, "CUDA_ERROR_MAP_FAILED");
    add(206, "CUDA_ERROR_UNMAP_FAILED");
    add(207, "CUDA_ERROR_ARRAY_IS_MAPPED");
    add(208, "CUDA_ERROR_ALREADY_MAPPED");
    add(209, "CUDA_ERROR_NO_BINARY_FOR_GPU",
        "no kernel image is available for execution on the device");
    add(210, "CUDA_ERROR_ALREADY_ACQUIRED");
    add(211, "CUDA_ERROR_NOT_MAPPED");
    add(212, "CUDA_ERROR_NOT_MAPPED_AS_ARRAY");
    add(213, "CUDA_ERROR_NOT_MAPPED_AS_POINTER");
    add(214, "CUDA_ERROR_ECC_UNCORRECTABLE");
    add(215, "CUDA_ERROR_UNSUPPORTED_LIMIT");
    add(216, "CUDA_ERROR_CONTEXT_ALREADY_IN_USE");
    add(217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED");
    add(218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed");
    add(219, "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT");
    add(220, "CUDA_ERROR_NVLINK_UNCORRECTABLE");
    add(221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND");
    add(222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        "the provided PTX was compiled with an unsupported toolchain.");
    add(223, "CUDA_ERROR_JIT_COMPILATION_DISABLED");
    add(224, "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY");
    add(225, "CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC");
    add(226, "CUDA_ERROR_CONTAINED");
    add(227, "CUDA_ERROR_INSUFFICIENT_LOADER_VERSION");
    add(300, "CUDA_ERROR_INVALID_SOURCE");
    add(301, "CUDA_ERROR_FILE_NOT_FOUND");
    add(302, "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND");
    add(303, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED");
    add(304, "CUDA_ERROR_OPERATING_SYSTEM");
    add(400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle");
    add(401, "CUDA_ERROR_ILLEGAL_STATE");
    add(402, "CUDA_ERROR_LOSSY_QUERY");
    add(500, "CUDA_ERROR_NOT_FOUND", "named symbol not found");
    add(600, "CUDA_ERROR_NOT_READY", "device not ready");
    add(700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered");
    add(701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch");
    add(702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated");
    add(703, "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING");
    add(704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled");
    add(705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled");
    add(708, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE");
    add(709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed");
    add(710, "CUDA_ERROR_ASSERT", "device-side assert triggered");
    add(711, "CUDA_ERROR_TOO_MANY_PEERS");
    add(712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED");
    add(713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED");
    add(714, "CUDA_ERROR_HARDWARE_STACK_ERROR");
    add(715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered");
    add(716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address");
    add(717, "CUDA_ERROR_INVALID_ADDRESS_SPACE");
    add(718, "CUDA_ERROR_INVALID_PC");
    add(719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure");
    add(720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE");
    add(721, "CUDA_ERROR_TENSOR_MEMORY_LEAK");
    add(800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted");
    add(801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported");
    add(802, "CUDA_ERROR_SYSTEM_NOT_READY");
    add(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH");
    add(804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE");
    add(805, "CUDA_ERROR_MPS_CONNECTION_FAILED");
    add(806, "CUDA_ERROR_MPS_RPC_FAILURE");
    add(807, "CUDA_ERROR_MPS_SERVER_NOT_READY");
    add(808, "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED");
    add(809, "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED");
    add(810, "CUDA_ERROR_MPS_CLIENT_TERMINATED");
    add(811, "CUDA_ERROR_CDP_NOT_SUPPORTED");
    add(812, "CUDA_ERROR_CDP_VERSION_MISMATCH");
    add(900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED");
    add(901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED");
    add(902, "CUDA_ERROR_STREAM_CAPTURE_MERGE");
    add(903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED");
    add(904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED");
    add(905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION");
    add(906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT");
    add(907, "CUDA_ERROR_CAPTURED_EVENT");
    add(908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD");
    add(909, "CUDA_ERROR_TIMEOUT");
    add(910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE");
    add(911, "CUDA_ERROR_EXTERNAL_DEVICE");
    add(912, "CUDA_ERROR_INVALID_CLUSTER_SIZE");
    add(913, "CUDA_ERROR_FUNCTION_NOT_LOADED");
    add(914, "CUDA_ERROR_INVALID_RESOURCE_TYPE");
    add(915, "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION");
    add(916, "CUDA_ERROR_KEY_ROTATION");
    add(917, "CUDA_ERROR_STREAM_DETACHED");
    add(918, "CUDA_ERROR_GRAPH_RECAPTURE_FAILURE");
    add(919, "CUDA_ERROR_FABRIC_NOT_READY");
    add(999, "CUDA_ERROR_UNKNOWN", "unknown error");
    return codes;
}

// Never destroyed: callers ask for names while the process is ending.
const Code* find(CUresult code) {
    static const auto& codes = *new std::map<int, Code>(codes_by_number());
    auto found = codes.find(int(code));
    return found == codes.end() ? nullptr : &found->second;
}

}  // namespace

EXPORT CUresult cuGetErrorName(CUresult code, const char** out) {
    if (!out) return sim::INVALID_VALUE;
    const Code* known = find(code);
    *out = known ? known->name : nullptr;
    return known ? sim::SUCCESS : sim::INVALID_VALUE;
}

EXPORT CUresult cuGetErrorString(CUresult code, const char** out) {
    if (!out) return sim::INVALID_VALUE;
    const Code* known = find(code);
    *out = known ? known->sentence.c_str() : nullptr;
    return known ? sim::SUCCESS : sim::INVALID_VALUE;
}
