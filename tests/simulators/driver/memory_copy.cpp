// Carrying out copies, and the entry points for copies of plain ranges.
#include "memory_copy.h"

#include <cstring>

namespace sim {

void copy_range(Context& context, Lock& lock, const char* name, Place to, Place from, size_t nbytes,
                StreamHandle* handle) {
    bool between_devices = to.block && !to.block->on_host() && from.block && !from.block->on_host();
    auto stream = handle ? stream_of(context, *handle) : context.legacy;
    bool wait = (!handle && !between_devices) || to.pageable();
    std::shared_ptr<std::vector<uint8_t>> bytes;
    if (from.pageable() && !wait && !driver().late) {  // the caller may change its memory at once
        bytes = std::make_shared<std::vector<uint8_t>>(from.bytes, from.bytes + nbytes);
        from = {nullptr, bytes->data()};
    }
    Context& owner = stream->context;
    Point done = submit(*stream, {name, [=, &owner] {
                                      if (still_there(to, owner, name) &&
                                          still_there(from, owner, name))
                                          std::memmove(to.bytes, from.bytes, nbytes);
                                      (void)bytes;
                                  }});
    if (wait) wait_for(lock, done);
}

}  // namespace sim

using namespace sim;

namespace {

Status to_device(const char* name, Address to, const void* from, size_t nbytes,
                   StreamHandle* stream = nullptr) {
    return enter_context(name, [&](Context& context, Lock& lock) {
        if (nbytes == 0) return;
        copy_range(context, lock, name, device_place(to, nbytes), host_place(from, nbytes), nbytes,
                   stream);
    });
}

Status to_host(const char* name, void* to, Address from, size_t nbytes,
                 StreamHandle* stream = nullptr) {
    return enter_context(name, [&](Context& context, Lock& lock) {
        if (nbytes == 0) return;
        copy_range(context, lock, name, host_place(to, nbytes), device_place(from, nbytes), nbytes,
                   stream);
    });
}

Status on_device(const char* name, Address to, Address from, size_t nbytes,
                   StreamHandle* stream = nullptr) {
    return enter_context(name, [&](Context& context, Lock& lock) {
        if (nbytes == 0) return;
        Place target = device_place(to, nbytes), source = device_place(from, nbytes);
        need(!target.block->on_host() && !source.block->on_host());
        copy_range(context, lock, name, target, source, nbytes, stream);
    });
}

}  // namespace

EXPORT Status ENTRY(cuMemcpyHtoD_v2, hipMemcpyHtoD)(Address to, const void* from, size_t nbytes) {
    return to_device(NAME(cuMemcpyHtoD, hipMemcpyHtoD), to, from, nbytes);
}

EXPORT Status ENTRY(cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync)(Address to, const void* from, size_t nbytes,
                                     StreamHandle stream) {
    return to_device(NAME(cuMemcpyHtoDAsync, hipMemcpyHtoDAsync), to, from, nbytes, &stream);
}

EXPORT Status ENTRY(cuMemcpyDtoH_v2, hipMemcpyDtoH)(void* to, Address from, size_t nbytes) {
    return to_host(NAME(cuMemcpyDtoH, hipMemcpyDtoH), to, from, nbytes);
}

EXPORT Status ENTRY(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync)(void* to, Address from, size_t nbytes, StreamHandle stream) {
    return to_host(NAME(cuMemcpyDtoHAsync, hipMemcpyDtoHAsync), to, from, nbytes, &stream);
}

EXPORT Status ENTRY(cuMemcpyDtoD_v2, hipMemcpyDtoD)(Address to, Address from, size_t nbytes) {
    return on_device(NAME(cuMemcpyDtoD, hipMemcpyDtoD), to, from, nbytes);
}

EXPORT Status ENTRY(cuMemcpyDtoDAsync_v2, hipMemcpyDtoDAsync)(Address to, Address from, size_t nbytes,
                                     StreamHandle stream) {
    return on_device(NAME(cuMemcpyDtoDAsync, hipMemcpyDtoDAsync), to, from, nbytes, &stream);
}

