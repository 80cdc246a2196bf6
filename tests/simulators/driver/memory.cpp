// Where blocks are, and who may touch them.
#include "memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <map>

namespace sim {
namespace {

constexpr uint64_t ALIGNMENT = 512;
constexpr uint64_t GAP = 4096;  // beyond every block: running over the end meets no neighbour
constexpr uint64_t DIRTIED = 4 << 20;

std::map<uint64_t, std::shared_ptr<Block>>& blocks() {
    static auto& made = *new std::map<uint64_t, std::shared_ptr<Block>>;
    return made;
}

uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

// Addresses go up until the end of the range, so that a freed one stays free for long.
uint64_t find_address(Device& device, uint64_t nbytes) {
    uint64_t extent = ALIGNMENT + round_up(nbytes, GAP) + GAP;
    for (int turn = 0; turn < 2; ++turn) {
        uint64_t start = device.next;
        while (start + extent <= device.end) {
            auto after = blocks().lower_bound(start);
            if (after == blocks().end() || after->first >= start + extent) {
                device.next = round_up(start + extent, GAP);
                return start + ALIGNMENT;  // and no better aligned than a real driver promises
            }
            start = round_up(after->first + after->second->nbytes, GAP) + GAP;
        }
        device.next = device.base;
    }
    refuse(OUT_OF_MEMORY);
}

// Fresh memory holds anything: a kernel that counts on zeros is to be found out.
uint8_t* fresh_bytes(uint64_t nbytes) {
    constexpr int FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* bytes = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, FLAGS, -1, 0);
    need(bytes != MAP_FAILED, OUT_OF_MEMORY);
    std::memset(bytes, 0xA7, std::min(nbytes, DIRTIED));
    return static_cast<uint8_t*>(bytes);
}

bool is_device_address(uint64_t address) {
    for (auto& device : driver().devices)
        if (address >= device->base && address < device->end) return true;
    return false;
}

Place place_in(const std::shared_ptr<Block>& block, uint64_t address, uint64_t nbytes) {
    need(block->holds(address, nbytes));
    return {block, block->bytes + (address - block->address)};
}

}  // namespace

Block::~Block() {
    munmap(bytes, nbytes);
}

std::shared_ptr<Pool> new_pool(Device& device) {
    auto pool = std::make_shared<Pool>(device);
    driver().pools.live[reinterpret_cast<uintptr_t>(pool->handle)] = pool;
    return pool;
}

std::shared_ptr<Block> allocate(Lock&, Context& context, Kind kind, uint64_t nbytes) {
    Device& device = context.device;
    need(nbytes > 0);
    bool on_host = kind == Kind::Pinned;
    need(on_host || nbytes <= driver().settings.memory_nbytes - device.used_nbytes,
         OUT_OF_MEMORY);
    uint8_t* bytes = fresh_bytes(nbytes);
    uint64_t address = reinterpret_cast<uint64_t>(bytes);
    if (kind != Kind::Managed && !on_host) address = find_address(device, nbytes);
    auto block = std::make_shared<Block>(kind, &context, address, nbytes, bytes);
    blocks()[address] = block;
    if (!on_host) device.used_nbytes += nbytes;
    return block;
}

void trim(Pool& pool, uint64_t nbytes) {
    uint64_t all = pool.used_nbytes;
    for (auto& kept : pool.kept) all += kept.nbytes;
    for (auto kept = pool.kept.begin(); kept != pool.kept.end() && all > nbytes;) {
        if (kept->waited_for) {
            all -= kept->nbytes;
            pool.device.used_nbytes -= kept->nbytes;
        }
        kept = kept->waited_for ? pool.kept.erase(kept) : kept + 1;
    }
}

void waited_for(const Stream& stream) {
    for (auto& [handle, pool] : driver().pools.live) {
        for (auto& kept : pool->kept) kept.waited_for |= kept.stream == &stream;
        trim(*pool, pool->release_threshold);
    }
}

void release(const std::shared_ptr<Block>& block) {
    if (!block->live) return;
    block->live = false;
    blocks().erase(block->address);
    if (!block->on_host() && !block->kept) block->context->device.used_nbytes -= block->nbytes;
    if (block->pool && !block->kept) block->pool->used_nbytes -= block->nbytes;
    forget_cached_blocks();
}

uint64_t release_blocks(Context& context) {
    std::vector<std::shared_ptr<Block>> mine;
    for (auto& [address, block] : blocks())
        if (block->context == &context) mine.push_back(block);
    uint64_t forgotten = 0;
    for (auto& block : mine) {
        if (block->kind != Kind::Variable && block->kind != Kind::Array) ++forgotten;
        release(block);
    }
    return forgotten;
}

std::shared_ptr<Block> block_at(uint64_t address) {
    auto after = blocks().upper_bound(address);
    if (after == blocks().begin()) return nullptr;
    auto& block = std::prev(after)->second;
    return address - block->address < block->nbytes ? block : nullptr;
}

std::shared_ptr<Block> owned_block(uint64_t address) {
    auto found = blocks().find(address);
    need(found != blocks().end());
    auto block = found->second;
    need(block->kind == Kind::Device || block->kind == Kind::Managed);
    need(!block->free_under_way);
    return block;
}

Place device_place(uint64_t address, uint64_t nbytes) {
    auto block = block_at(address);
    need(block != nullptr && !block->free_under_way);
    return place_in(block, address, nbytes);
}

Place host_place(const void* pointer, uint64_t nbytes) {
    uint64_t address = reinterpret_cast<uint64_t>(pointer);
    need(pointer && !is_device_address(address));
    auto block = block_at(address);
    if (block && block->holds(address, nbytes)) return place_in(block, address, nbytes);
    return {nullptr, const_cast<uint8_t*>(static_cast<const uint8_t*>(pointer))};
}

Place any_place(uint64_t address, uint64_t nbytes) {
    if (block_at(address) || is_device_address(address)) return device_place(address, nbytes);
    return host_place(reinterpret_cast<const void*>(address), nbytes);
}

bool still_there(const Place& place, Context& context, const char* name) {
    Lock lock(driver().mutex);
    if (place.pageable() || place.block->live) return true;
    fail(context, ILLEGAL_ADDRESS, std::string(name) + ": the memory was freed before");
    return false;
}

BlockCount count_blocks() {
    BlockCount count;
    for (auto& [address, block] : blocks()) {
        if (block->on_host()) ++count.host_blocks;
        if (block->kind != Kind::Device && block->kind != Kind::Managed) continue;
        ++count.device_blocks;
        count.device_nbytes += block->nbytes;
    }
    return count;
}

}  // namespace sim
