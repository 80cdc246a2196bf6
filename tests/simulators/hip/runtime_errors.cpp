// Entry points: every code's name and sentence.
#include <map>
#include <string>

#include "driver.h"

using namespace sim;

namespace {

struct Code {
    const char *name, *sentence;
};

// Source: hipError_t of hip_runtime_api.h.
const std::map<int, Code>& codes() {
    static const auto& table = *new std::map<int, Code>{
        {0, {"hipSuccess", "no error"}},
        {1, {"hipErrorInvalidValue", "invalid argument"}},
        {2, {"hipErrorOutOfMemory", "out of memory"}},
        {3, {"hipErrorNotInitialized", "initialization error"}},
        {4, {"hipErrorDeinitialized", "driver shutting down"}},
        {98, {"hipErrorInvalidDeviceFunction", "invalid device function"}},
        {100, {"hipErrorNoDevice", "no ROCm-capable device is detected"}},
        {101, {"hipErrorInvalidDevice", "invalid device ordinal"}},
        {200, {"hipErrorInvalidImage", "device kernel image is invalid"}},
        {201, {"hipErrorInvalidContext", "invalid device context"}},
        {209, {"hipErrorNoBinaryForGpu", "no kernel image is available for execution on the device"}},
        {215, {"hipErrorUnsupportedLimit", "limit is not supported on this architecture"}},
        {217, {"hipErrorPeerAccessUnsupported", "peer access is not supported between these two devices"}},
        {301, {"hipErrorFileNotFound", "file not found"}},
        {304, {"hipErrorOperatingSystem", "OS call failed or operation not supported on this OS"}},
        {400, {"hipErrorInvalidHandle", "invalid resource handle"}},
        {500, {"hipErrorNotFound", "named symbol not found"}},
        {600, {"hipErrorNotReady", "device not ready"}},
        {700, {"hipErrorIllegalAddress", "an illegal memory access was encountered"}},
        {701, {"hipErrorLaunchOutOfResources", "out of resources"}},
        {702, {"hipErrorLaunchTimeOut", "the launch timed out and was terminated"}},
        {704, {"hipErrorPeerAccessAlreadyEnabled", "peer access is already enabled"}},
        {705, {"hipErrorPeerAccessNotEnabled", "peer access has not been enabled"}},
        {709, {"hipErrorContextIsDestroyed", "context is destroyed"}},
        {710, {"hipErrorAssert", "device-side assert triggered"}},
        {712, {"hipErrorHostMemoryAlreadyRegistered", "part or all of the requested memory range is already mapped"}},
        {713, {"hipErrorHostMemoryNotRegistered", "pointer does not correspond to a registered memory region"}},
        {719, {"hipErrorLaunchFailure", "unspecified launch failure"}},
        {801, {"hipErrorNotSupported", "operation not supported"}},
        {900, {"hipErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"}},
        {906, {"hipErrorStreamCaptureImplicit", "operation would make the legacy stream depend on a capturing blocking stream"}},
        {907, {"hipErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream"}},
        {999, {"hipErrorUnknown", "unknown error"}},
    };
    return table;
}

}  // namespace

EXPORT const char* hipGetErrorName(int code) {
    auto found = codes().find(code);
    return found == codes().end() ? "hipErrorUnknown" : found->second.name;
}

EXPORT const char* hipGetErrorString(int code) {
    auto found = codes().find(code);
    return found == codes().end() ? "unknown error" : found->second.sentence;
}
