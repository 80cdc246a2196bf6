// What a test asks the driver to do wrong: calls that fail, calls that are slow. Also counts calls.
#pragma once

#include <chrono>
#include <string>

#include "status.h"

namespace sim {

// Counts a call; gives the code that a test wants from it, or SUCCESS.
Status arrived(const char* name);

// How long a call of this name is to take beyond what it needs. What a stream carries out is slow
// there, so that its caller goes on; everything else is slow for its caller.
std::chrono::microseconds delay_of(const char* name);
bool slow_on_stream(const char* name);

// The text of the last kernel fault, for sim_message.
void set_message(const std::string& text);

// "cuMemAlloc:3:2,cuLaunchKernel:1:719" and "cuMemcpyHtoD:5000", as in the environment.
void read_failures(const char* text);
void read_delays(const char* text);

}  // namespace sim
