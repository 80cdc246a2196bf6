// Carrying out a launch: block after block, each wave until it waits or ends.
#include <algorithm>

#include "instruction.h"

namespace gfx9 {
namespace {

constexpr uint32_t MOST_SHARED = 64 << 10, MOST_PRIVATE = 128 << 10;
constexpr uint8_t FRESH = 0xA7;  // what registers and shared memory hold that nobody has written

// The dispatch packet as kernels read it. Source: HSA runtime specification, section 2.9.
struct Packet {
    uint16_t header = 0, dimensions = 3;
    uint16_t block[3] = {}, unused = 0;
    uint32_t threads[3] = {};
    uint32_t private_nbytes = 0, shared_nbytes = 0;
    uint64_t code = 0, params = 0, unused_too = 0, signal = 0;
};
static_assert(sizeof(Packet) == PACKET_NBYTES);

// Hidden arguments by what they are. Source: LLVM's AMDGPU usage, "Code Object V5 Metadata".
uint64_t hidden_value(const std::string& kind, const Launch& launch) {
    for (int axis = 0; axis < 3; ++axis) {
        const std::string end = std::string("_") + char('x' + axis);
        if (kind == "hidden_block_count" + end) return launch.grid[axis];
        if (kind == "hidden_group_size" + end) return launch.block[axis];
    }
    if (kind == "hidden_grid_dims") return 3;
    if (kind == "hidden_shared_base") return SHARED_APERTURE;
    if (kind == "hidden_private_base") return PRIVATE_APERTURE;
    if (kind == "hidden_dynamic_lds_size") return launch.dynamic_shared_nbytes;
    return 0;  // offsets, remainders, and services of the host that are not here
}

class Grid {
public:
    Grid(const Module& module, const Launch& launch, Memory& memory)
        : module_(module), launch_(launch), memory_(memory) {
        const Function& is = *launch.function;
        params_.assign(launch.params, launch.params + is.params_nbytes);
        params_.resize((is.params_nbytes + 63) / 64 * 64, FRESH);  // compilers read whole quarters
        for (const Param& param : is.params) {
            if (!param.hidden()) continue;
            const uint64_t value = hidden_value(param.kind, launch);
            std::memcpy(&params_[param.offset], &value, std::min<size_t>(param.nbytes, sizeof value));
        }
        for (int axis = 0; axis < 3; ++axis) {
            packet_.block[axis] = uint16_t(launch.block[axis]);
            packet_.threads[axis] = launch.grid[axis] * launch.block[axis];
        }
        packet_.shared_nbytes = is.shared_nbytes + launch.dynamic_shared_nbytes;
        packet_.params = reinterpret_cast<uint64_t>(params_.data());
        threads_ = launch.block[0] * launch.block[1] * launch.block[2];
        waves_.resize((threads_ + LANES - 1) / LANES);
        for (auto& wave : waves_) wave = std::make_unique<Wave>();
    }

    Outcome run() {
        const Function& is = *launch_.function;
        if (is.private_nbytes > MOST_PRIVATE)
            return {Fault::Illegal, "the kernel has more private memory than a thread may have"};
        if (packet_.shared_nbytes > MOST_SHARED || is.shared_nbytes > MOST_SHARED)
            return {Fault::Illegal, "the kernel has more shared memory than a block may have"};
        const auto& at = module_.program->at;
        if (is.descriptor.entry / 4 >= at.size() || at[is.descriptor.entry / 4] == ~0u)
            return {Fault::Illegal, "the kernel begins where no instruction does"};
        for (uint32_t z = 0; z < launch_.grid[2]; ++z)
            for (uint32_t y = 0; y < launch_.grid[1]; ++y)
                for (uint32_t x = 0; x < launch_.grid[0]; ++x) {
                    Outcome outcome = block(x, y, z);
                    if (outcome.fault != Fault::None) return outcome;
                }
        return {};
    }

private:
    const Module& module_;
    const Launch& launch_;
    Memory& memory_;
    std::vector<uint8_t> params_;
    Packet packet_;
    uint32_t threads_;
    uint64_t instructions_ = 0;
    std::vector<std::unique_ptr<Wave>> waves_;
    Group group_;

    Outcome block(uint32_t x, uint32_t y, uint32_t z) {
        group_.launch = &launch_;
        group_.program = module_.program.get();
        group_.memory = &memory_;
        group_.image = module_.program->image;
        group_.id[0] = x, group_.id[1] = y, group_.id[2] = z;
        group_.params = params_.data();
        group_.params_nbytes = params_.size();
        group_.packet = reinterpret_cast<const uint8_t*>(&packet_);
        group_.shared.assign(packet_.shared_nbytes, FRESH);
        for (uint32_t number = 0; number < waves_.size(); ++number) start(*waves_[number], number);
        while (true) {
            bool going = false;
            for (auto& wave : waves_) {
                if (wave->state == State::Ended) continue;
                wave->state = State::Running;
                Outcome outcome = step(*wave);
                if (outcome.fault != Fault::None) return outcome;
                going |= wave->state != State::Ended;
            }
            if (!going) return {};  // else all that are left have come to the barrier
        }
    }

    // Source: LLVM's AMDGPU usage, "Initial Kernel Execution State".
    void start(Wave& wave, uint32_t number) {
        const Descriptor& is = launch_.function->descriptor;
        const uint32_t vectors = ((is.rsrc1 & 63) + 1) * 4;
        std::memset(wave.v, FRESH, vectors * sizeof wave.v[0]);
        std::memset(wave.s, FRESH, sizeof wave.s);
        wave.group = &group_;
        wave.state = State::Running;
        wave.scc = false;
        wave.moved = 0;
        wave.first = number * LANES;
        wave.own.assign(uint64_t(launch_.function->private_nbytes) * LANES, FRESH);
        wave.pc = group_.program->at[is.entry / 4];
        const uint32_t active = std::min<uint32_t>(LANES, threads_ - wave.first);
        wave.set_pair(EXEC, active == LANES ? ~0ull : (1ull << active) - 1);
        set_scalars(wave, is);
        for (uint32_t lane = 0; lane < active; ++lane) {
            const uint32_t thread = wave.first + lane, *block = launch_.block;
            wave.v[0][lane] = thread % block[0];
            wave.v[1][lane] = thread / block[0] % block[1];
            wave.v[2][lane] = thread / block[0] / block[1];
        }
    }

    void set_scalars(Wave& wave, const Descriptor& is) {
        int next = 0;
        if (is.properties & 1) wave.set_pair(2, PRIVATE_BUFFER);
        const uint64_t pairs[] = {0, reinterpret_cast<uint64_t>(&packet_), 0,
                                  reinterpret_cast<uint64_t>(params_.data()), 0, 0};
        for (int bit = 0; bit < 6; ++bit) {
            if (!(is.properties >> bit & 1)) continue;
            wave.set_pair(next, pairs[bit]);
            next += bit == 0 ? 4 : 2;  // the first is a buffer's description, of private memory
        }
        next = int(is.rsrc2 >> 1 & 31);
        for (int axis = 0; axis < 3; ++axis)
            if (is.rsrc2 >> (7 + axis) & 1) wave.s[next++] = group_.id[axis];
        if (is.rsrc2 >> 10 & 1) wave.s[next++] = 0;
        if (is.rsrc2 & 1) wave.s[next] = 0;  // where the wave's private memory begins in the buffer
    }

    // Until the wave waits or ends.
    Outcome step(Wave& wave) {
        const auto& code = group_.program->code;
        const Instruction* is = nullptr;
        try {
            while (wave.state == State::Running) {
                if (wave.pc >= code.size()) throw Stop{Fault::Illegal, "runs beyond the code", -1};
                is = &code[wave.pc++];
                if (++instructions_ * LANES > launch_.most_instructions && launch_.most_instructions)
                    throw Stop{Fault::Timeout, "more instructions than a launch may take", -1};
                if (wave.moved && is->text[0] == 'v') run_moved(wave, *is);
                else is->run(wave, *is);
            }
        } catch (const Stop& stop) {
            return {stop.fault, described(stop, wave, is)};
        }
        return {};
    }

    static void run_moved(Wave& wave, Instruction is) {
        auto move = [&](Operand& operand, int bit) {
            if (!(wave.moved >> bit & 1) || operand.kind != Kind::Vector) return;
            operand.index = uint16_t(operand.index + wave.moved_by);
            if (operand.index + operand.count > VECTORS)
                throw Stop{Fault::Illegal, "a vector register that does not exist", -1};
        };
        for (int source = 0; source < 3; ++source) move(is.in[source], source);
        move(is.out, 3);
        is.run(wave, is);
    }

    std::string described(const Stop& stop, const Wave& wave, const Instruction* is) const {
        const uint32_t thread = wave.first + uint32_t(std::max(stop.lane, 0)), *block = launch_.block;
        auto triple = [](uint32_t x, uint32_t y, uint32_t z) {
            return "(" + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) + ")";
        };
        return stop.message + ", in \"" + (is ? is->text : "") + "\" of " +
               (stop.lane < 0 ? "the wave of thread " : "thread ") +
               triple(thread % block[0], thread / block[0] % block[1], thread / block[0] / block[1]) +
               " of block " + triple(group_.id[0], group_.id[1], group_.id[2]);
    }
};

}  // namespace

Outcome run(const Module& module, const Launch& launch, Memory& memory) {
    return Grid(module, launch, memory).run();
}

}  // namespace gfx9
