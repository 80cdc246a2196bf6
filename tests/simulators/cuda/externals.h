// Functions that a module may call without having them: vprintf and __assertfail.
#pragma once

#include <string>

#include "machine.h"

namespace ptx {

bool is_external(const std::string& name);

// What is wrong with the declaration of one; null: nothing.
const char* external_problem(const Routine& routine);

// Carries the call out in the frame of the caller.
void call_external(Thread& thread, const Instruction& call, const Routine& routine);

}  // namespace ptx
