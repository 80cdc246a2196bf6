// Entry points: memory, in the forms that HIP alone has.
#include "memory_copy.h"
#include "runtime.h"

using namespace sim;

namespace {

Address address_of(const void* pointer) { return reinterpret_cast<Address>(pointer); }

// A direction that is said must be the right one.
void check_direction(Address to, Address from, unsigned direction) {
    need(direction <= DEFAULT);
    if (direction == DEFAULT) return;
    auto on_device = [](Address address) {
        auto block = block_at(address);
        return block && !block->on_host();
    };
    const bool to_device = direction == HOST_TO_DEVICE || direction == DEVICE_TO_DEVICE;
    const bool from_device = direction == DEVICE_TO_HOST || direction == DEVICE_TO_DEVICE;
    // Pinned memory has a device address too.
    need(to_device ? block_at(to) != nullptr : !on_device(to));
    need(from_device ? block_at(from) != nullptr : !on_device(from));
}

Status copy_between(const char* name, void* to, const void* from, size_t nbytes, unsigned direction,
                    StreamHandle* stream = nullptr) {
    return enter_context(name, [&](Context& context, Lock& lock) {
        const Address target = address_of(to), source = address_of(from);
        if (nbytes) check_direction(target, source, direction);
        if (nbytes)
            copy_range(context, lock, name, any_place(target, nbytes), any_place(source, nbytes),
                       nbytes, stream);
    });
}

Status copy_peer(const char* name, void* to, int to_device, const void* from, int from_device,
                 size_t nbytes, StreamHandle* stream = nullptr) {
    return enter_context(name, [&](Context& context, Lock& lock) {
        Context &receiver = context_of_device(to_device), &sender = context_of_device(from_device);
        if (nbytes == 0) return;
        Place target = device_place(address_of(to), nbytes);
        Place source = device_place(address_of(from), nbytes);
        need(target.block->context == &receiver && source.block->context == &sender);
        copy_range(context, lock, name, target, source, nbytes, stream);
    });
}

}  // namespace

// 6.0 gave these other numbers.
unsigned sim::memory_type(bool on_host) {
    const bool new_numbers = driver().settings.version >= 60'000'000;
    return (on_host ? 0 : 1) + (new_numbers ? 1 : 0);
}

// No memory is no failure.
EXPORT Status hipMalloc(void** out, size_t nbytes) {
    return enter_context("hipMalloc", [&](Context& context, Lock& lock) {
        need(out != nullptr);
        *out = nullptr;
        if (nbytes == 0) return;
        *out = reinterpret_cast<void*>(allocate(lock, context, Kind::Device, nbytes)->address);
    });
}

EXPORT Status hipMemcpy(void* to, const void* from, size_t nbytes, unsigned direction) {
    return copy_between("hipMemcpy", to, from, nbytes, direction);
}

EXPORT Status hipMemcpyAsync(void* to, const void* from, size_t nbytes, unsigned direction,
                             StreamHandle stream) {
    return copy_between("hipMemcpyAsync", to, from, nbytes, direction, &stream);
}

EXPORT Status hipMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                 size_t nbytes, StreamHandle stream) {
    return copy_peer("hipMemcpyPeerAsync", to, to_device, from, from_device, nbytes, &stream);
}
