// Memory as kernels see it: asked at every access, so it keeps the blocks it met last.
#include "memory.h"

namespace sim {
namespace {

// Raised when a block goes or a right is withdrawn.
std::atomic<uint64_t> generation{0};

class View : public KernelMemory {
public:
    explicit View(Context& context) : context(context) {}

    void* at(uint64_t address, uint64_t nbytes, bool) override {
        uint64_t now = generation.load(std::memory_order_relaxed);
        if (now == seen)
            for (auto& block : met)
                if (block && address - block->address < block->nbytes)
                    return within(*block, address, nbytes);
        return look_up(address, nbytes, now);
    }

    const KernelImage* image(uint64_t object) override {
        if (object == last && generation.load(std::memory_order_relaxed) == seen_last)
            return &seen_image->image;
        Lock lock(driver().mutex);
        seen_last = generation.load(std::memory_order_relaxed);
        auto found = driver().images.find(reinterpret_cast<void*>(object));
        if (!found || !found->array->block->live || found->array->block->context != &context)
            return nullptr;
        last = object;
        seen_image = found;
        return &found->image;
    }

private:
    Context& context;
    uint64_t last = 0, seen_last = ~0ull;  // the object met last, and when
    std::shared_ptr<ImageObject> seen_image;
    uint64_t seen = ~0ull;
    std::shared_ptr<Block> met[4];
    unsigned next = 0;

    static void* within(const Block& block, uint64_t address, uint64_t nbytes) {
        return block.holds(address, nbytes) ? block.bytes + (address - block.address) : nullptr;
    }

    bool may_touch(const Block& block) const {
        if (block.on_host() || block.kind == Kind::Managed) return true;
        if (block.context == &context || context.peers.count(block.context)) return true;
        if (!block.pool) return false;
        for (int device : block.pool->shared_with)
            if (device == context.device.ordinal) return true;
        return false;
    }

    void* look_up(uint64_t address, uint64_t nbytes, uint64_t now) {
        if (driver().ended) return nullptr;
        Lock lock(driver().mutex);
        if (context.error != SUCCESS) return nullptr;
        if (now != seen) {
            for (auto& block : met) block = nullptr;
            seen = now;
        }
        auto block = block_at(address);
        if (!block || !may_touch(*block)) return nullptr;
        met[next++ % 4] = block;
        return within(*block, address, nbytes);
    }
};

}  // namespace

void forget_cached_blocks() { ++generation; }

std::unique_ptr<KernelMemory> memory_of(Context& context) { return std::make_unique<View>(context); }

}  // namespace sim
