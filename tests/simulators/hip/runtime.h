// What the runtime's own entry points share.
#pragma once

#include "context.h"

namespace sim {

// The context of a device, which is made when it is first asked for.
Context& context_of_device(int ordinal);

// The thread's device.
int& current_device();

}  // namespace sim
