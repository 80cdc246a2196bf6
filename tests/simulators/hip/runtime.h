// What the runtime's own entry points share.
#pragma once

#include "context.h"

namespace sim {

// Of a copy; that of DEFAULT is told by the addresses.
enum Direction { HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, DEFAULT };

// The context of a device, which is made when it is first asked for.
Context& context_of_device(int ordinal);

// The thread's device.
int& current_device();

}  // namespace sim
