// How the inside of the driver says no: it throws the code, and the entry point returns it.
#pragma once

#include "cuda_api.h"

namespace sim {

struct Refused {
    CUresult code;
};

[[noreturn]] inline void refuse(CUresult code) { throw Refused{code}; }

inline void need(bool holds, CUresult otherwise = CUDA_ERROR_INVALID_VALUE) {
    if (!holds) refuse(otherwise);
}

}  // namespace sim
