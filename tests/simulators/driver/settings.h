// What the environment says of a driver; `settings.cpp` of each vendor reads its own part.
#pragma once

#include "vendor.h"

namespace sim {

// The text of SIM_VENDOR_NAME; null where it is not set.
const char* setting(const char* name);

}  // namespace sim
