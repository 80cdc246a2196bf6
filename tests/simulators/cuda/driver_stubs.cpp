// Functions that must be there for PyCUDA to load, or that callers ask about, and that do nothing.
#include "driver.h"
#include "cuda_api.h"

// Whatever a caller passes is left where it is: the caller takes its arguments away itself.
#define NOT_SUPPORTED(name)                                                                  \
    EXPORT CUresult name() {                                                                 \
        return sim::enter(#name, [](sim::Lock&) { sim::refuse(sim::NOT_SUPPORTED); }); \
    }

// arrays and textures
NOT_SUPPORTED(cuArray3DCreate_v2)
NOT_SUPPORTED(cuArray3DGetDescriptor_v2)
NOT_SUPPORTED(cuArrayCreate_v2)
NOT_SUPPORTED(cuArrayDestroy)
NOT_SUPPORTED(cuArrayGetDescriptor_v2)
NOT_SUPPORTED(cuMemcpyAtoA_v2)
NOT_SUPPORTED(cuMemcpyAtoD_v2)
NOT_SUPPORTED(cuMemcpyAtoH_v2)
NOT_SUPPORTED(cuMemcpyDtoA_v2)
NOT_SUPPORTED(cuMemcpyHtoA_v2)
NOT_SUPPORTED(cuModuleGetSurfRef)
NOT_SUPPORTED(cuModuleGetTexRef)
NOT_SUPPORTED(cuParamSetTexRef)
NOT_SUPPORTED(cuSurfRefGetArray)
NOT_SUPPORTED(cuSurfRefSetArray)
NOT_SUPPORTED(cuTexObjectCreate)
NOT_SUPPORTED(cuTexObjectDestroy)
NOT_SUPPORTED(cuTexRefCreate)
NOT_SUPPORTED(cuTexRefDestroy)
NOT_SUPPORTED(cuTexRefGetAddressMode)
NOT_SUPPORTED(cuTexRefGetAddress_v2)
NOT_SUPPORTED(cuTexRefGetArray)
NOT_SUPPORTED(cuTexRefGetFilterMode)
NOT_SUPPORTED(cuTexRefGetFlags)
NOT_SUPPORTED(cuTexRefGetFormat)
NOT_SUPPORTED(cuTexRefSetAddress2D_v3)
NOT_SUPPORTED(cuTexRefSetAddressMode)
NOT_SUPPORTED(cuTexRefSetAddress_v2)
NOT_SUPPORTED(cuTexRefSetArray)
NOT_SUPPORTED(cuTexRefSetFilterMode)
NOT_SUPPORTED(cuTexRefSetFlags)
NOT_SUPPORTED(cuTexRefSetFormat)

// linking, other processes, profiling
NOT_SUPPORTED(cuIpcCloseMemHandle)
NOT_SUPPORTED(cuIpcGetEventHandle)
NOT_SUPPORTED(cuIpcGetMemHandle)
NOT_SUPPORTED(cuIpcOpenEventHandle)
NOT_SUPPORTED(cuIpcOpenMemHandle_v2)
NOT_SUPPORTED(cuLinkAddData_v2)
NOT_SUPPORTED(cuLinkAddFile_v2)
NOT_SUPPORTED(cuLinkComplete)
NOT_SUPPORTED(cuLinkCreate_v2)
NOT_SUPPORTED(cuLinkDestroy)
NOT_SUPPORTED(cuProfilerInitialize)
NOT_SUPPORTED(cuProfilerStart)
NOT_SUPPORTED(cuProfilerStop)

// graphs of other kinds, cooperative launches, virtual memory, stream memory operations
NOT_SUPPORTED(cuGraphInstantiateWithParams)
NOT_SUPPORTED(cuLaunchCooperativeKernel)
NOT_SUPPORTED(cuMemAddressReserve)
NOT_SUPPORTED(cuMemAdvise)
NOT_SUPPORTED(cuMemCreate)
NOT_SUPPORTED(cuMemGetAllocationGranularity)
NOT_SUPPORTED(cuMemPrefetchAsync)
NOT_SUPPORTED(cuStreamBeginCapture_v2)
NOT_SUPPORTED(cuStreamEndCapture)
NOT_SUPPORTED(cuStreamGetCaptureInfo_v2)
