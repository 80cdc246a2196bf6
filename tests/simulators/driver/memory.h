// Device memory: addresses that the host cannot touch, and the bytes behind them.
#pragma once

#include <vector>

#include "context.h"
#include "kernel_memory.h"
#include "stream.h"

namespace sim {

enum class Kind {
    Device,      // cuMemAlloc and its kin
    Variable,    // of a module: nobody's to free
    Managed,     // one address for host and device
    Pinned,      // host memory
    Array,       // of an image: its address is nobody's to use
};

struct Block {
    Kind kind;
    Context* context;
    uint64_t address, nbytes;
    uint8_t* bytes;          // for Managed and Pinned: where `address` says
    unsigned flags = 0;
    bool live = true;
    bool free_under_way = false;
    bool kept = false;  // its pool has the memory back, though its turn may not have come
    std::shared_ptr<Pool> pool{};

    Block(Kind kind, Context* context, uint64_t address, uint64_t nbytes, uint8_t* bytes)
        : kind(kind), context(context), address(address), nbytes(nbytes), bytes(bytes) {}
    Block(const Block&) = delete;
    ~Block();

    // Whether that many bytes from there on are all in it.
    bool holds(uint64_t from, uint64_t count) const {
        uint64_t offset = from - address;
        return offset <= nbytes && count <= nbytes - offset;
    }
    bool on_host() const { return kind == Kind::Pinned; }
};

// Memory freed in stream order, which counts as used until its stream was waited for.
struct Kept {
    uint64_t nbytes;
    const Stream* stream;
    bool waited_for;
};

struct Pool {
    Device& device;
    PoolHandle handle;
    uint64_t release_threshold = 0, used_nbytes = 0, used_high = 0, maximum = 0;
    int reuse[3] = {1, 1, 1};
    std::vector<int> shared_with{};  // devices that were given access
    std::vector<Kept> kept{};
    bool destroyed = false;

    explicit Pool(Device& device) : device(device), handle(new_handle<PoolHandle>()) {}
};

// Memory with a shape, and an object that kernels see it through.
struct Array {
    std::shared_ptr<Block> block;
    KernelImage shape;
    bool written;  // kernels may write it
};
struct ImageObject {
    std::shared_ptr<Array> array;
    KernelImage image;
    std::shared_ptr<Block> memory;  // where kernels read what it is, if not of the driver
};

// A place to copy from or to. Without a block it is the caller's own pageable memory.
struct Place {
    std::shared_ptr<Block> block;
    uint8_t* bytes;

    bool pageable() const { return !block; }
};

std::shared_ptr<Pool> new_pool(Device& device);

// Gives kept memory back to the device until the pool has no more than that, in use and kept.
void trim(Pool& pool, uint64_t nbytes);

// After a wait, pools keep of that stream's freed memory what their threshold allows.
void waited_for(const Stream& stream);

std::shared_ptr<Block> allocate(Lock&, Context& context, Kind kind, uint64_t nbytes);
void release(const std::shared_ptr<Block>& block);

// All of a context that is going; how many its user had not freed.
uint64_t release_blocks(Context& context);

// The live block that holds the address, or null.
std::shared_ptr<Block> block_at(uint64_t address);

// The block that starts there and is its user's to free.
std::shared_ptr<Block> owned_block(uint64_t address);

Place device_place(uint64_t address, uint64_t nbytes);
Place host_place(const void* pointer, uint64_t nbytes);
Place any_place(uint64_t address, uint64_t nbytes);

// Memory can be freed in another stream's order after work on it was asked for; then the work fails
// its context. Called by that work, without the lock.
bool still_there(const Place& place, Context& context, const char* name);

struct BlockCount {
    uint64_t device_blocks = 0, device_nbytes = 0, host_blocks = 0;
};
BlockCount count_blocks();

// Kernels keep the blocks they met; this makes them ask again.
void forget_cached_blocks();

// What the vendor calls memory of the host, or of a device.
unsigned memory_type(bool on_host);

// Memory as a kernel of this context sees it.
std::unique_ptr<KernelMemory> memory_of(Context& context);

}  // namespace sim
