#include "machine.h"

#include <cstdio>

namespace ptx {

namespace {

constexpr size_t most_calls = 4096;
constexpr uint8_t unwritten = 0xa5;  // local memory that nobody has written

std::string hexadecimal(uint64_t value) {
    char text[24];
    std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
    return text;
}

[[noreturn]] void out_of_bounds(const char* where, uint64_t address, uint32_t nbytes,
                                uint64_t limit) {
    raise(Fault::OutOfBounds, std::to_string(nbytes) + " bytes at " + hexadecimal(address) +
                                  " of " + where + " memory, which has " + std::to_string(limit) +
                                  " bytes");
}

uint8_t* inside(std::vector<uint8_t>& bytes, const char* where, uint64_t address, uint32_t nbytes) {
    if (address > bytes.size() || nbytes > bytes.size() - address) {
        out_of_bounds(where, address, nbytes, bytes.size());
    }
    return bytes.data() + address;
}

uint8_t* global(Thread& thread, uint64_t address, uint32_t nbytes, bool write) {
    void* found = thread.block->memory.at(address, nbytes, write);
    if (found == nullptr) {
        raise(Fault::OutOfBounds, std::string(write ? "writes " : "reads ") +
                                      std::to_string(nbytes) + " bytes at " + hexadecimal(address) +
                                      ", which no allocation holds");
    }
    return static_cast<uint8_t*>(found);
}

uint8_t* launch_param(Thread& thread, uint64_t address, uint32_t nbytes, bool write) {
    const Launch& launch = thread.block->launch;
    if (write) raise(Fault::OutOfBounds, "writes a parameter of the kernel");
    const uint64_t limit = launch.function->params_nbytes;
    if (address > limit || nbytes > limit - address)
        out_of_bounds("parameter", address, nbytes, limit);
    return const_cast<uint8_t*>(launch.params) + address;  // read alone
}

}  // namespace

void raise(Fault fault, const std::string& what) { throw Raised{fault, what}; }

uint8_t* resolve(Thread& thread, Space space, uint64_t address, uint32_t nbytes, uint32_t alignment,
                 bool write) {
    if (address % alignment != 0) {
        raise(Fault::Misaligned, "an address that is no multiple of " + std::to_string(alignment) +
                                     ": " + hexadecimal(address));
    }
    switch (space) {
        case Space::global:
        case Space::constant:
            return global(thread, address, nbytes, write);
        case Space::shared:
            return inside(thread.block->shared, "shared", address, nbytes);
        case Space::local:
            return inside(thread.local, "local", address, nbytes);
        default:
            break;
    }
    const uint64_t within = address & within_window;
    switch (address & ~within_window) {
        case shared_window: return inside(thread.block->shared, "shared", within, nbytes);
        case local_window: return inside(thread.local, "local", within, nbytes);
        case param_window: return launch_param(thread, within, nbytes, write);
        default: return global(thread, address, nbytes, write);
    }
}

uint32_t special_of(const Thread& thread, Special special) {
    const Block& block = *thread.block;
    const Launch& launch = block.launch;
    const uint32_t lane = thread.lane;
    const uint32_t warps = (block.size + warp_size - 1) / warp_size;
    const uint32_t below = (1u << lane) - 1, own = 1u << lane;
    switch (special) {
        case Special::tid_x: return thread.place[0];
        case Special::tid_y: return thread.place[1];
        case Special::tid_z: return thread.place[2];
        case Special::ntid_x: return launch.block[0];
        case Special::ntid_y: return launch.block[1];
        case Special::ntid_z: return launch.block[2];
        case Special::ctaid_x: return block.place[0];
        case Special::ctaid_y: return block.place[1];
        case Special::ctaid_z: return block.place[2];
        case Special::nctaid_x: return launch.grid[0];
        case Special::nctaid_y: return launch.grid[1];
        case Special::nctaid_z: return launch.grid[2];
        case Special::laneid: return lane;
        case Special::warpid: return thread.warp;
        case Special::nwarpid: return warps;
        case Special::smid: return 0;
        case Special::nsmid: return 1;
        case Special::gridid: return 0;
        case Special::lanemask_eq: return own;
        case Special::lanemask_le: return below | own;
        case Special::lanemask_lt: return below;
        case Special::lanemask_ge: return ~below;
        case Special::lanemask_gt: return ~(below | own);
        case Special::total_smem_size: return static_cast<uint32_t>(block.shared.size());
        case Special::dynamic_smem_size: return launch.dynamic_shared_nbytes;
    }
    return 0;
}

void enter(Thread& thread, const Routine& routine) {
    const std::vector<uint64_t>& frame = thread.block->frames[routine.number];
    const size_t registers_at = thread.registers.size(), local_at = thread.local.size();
    if (local_at + routine.local_nbytes > most_local || thread.callers.size() > most_calls) {
        raise(Fault::Illegal, "a stack that is full, in a call of " + routine.name);
    }
    thread.registers.insert(thread.registers.end(), frame.begin(), frame.end());
    if (routine.local_nbytes != 0) thread.local.resize(local_at + routine.local_nbytes, unwritten);
    thread.routine = &routine;
    thread.registers_at = registers_at;
    thread.local_at = local_at;
    thread.r = thread.registers.data() + registers_at;
    thread.next = routine.code.data();
    if (local_at != 0) {
        for (const uint32_t slot : routine.locals) thread.r[slot] += local_at;
    }
}

}  // namespace ptx
