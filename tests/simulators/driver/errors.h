// How the inside of the driver says no: it throws the code, and the entry point returns it.
#pragma once

#include "status.h"

namespace sim {

struct Refused {
    Status code;
};

[[noreturn]] inline void refuse(Status code) { throw Refused{code}; }

inline void need(bool holds, Status otherwise = INVALID_VALUE) {
    if (!holds) refuse(otherwise);
}

}  // namespace sim
