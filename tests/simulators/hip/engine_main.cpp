// The engine as a command, for its tests. It answers requests, one behind the other, on standard
// input; each is a line and the bytes that it announces:
//
//   facts OBJECT 0                           what a runtime is told of the module
//   run OBJECT NBYTES KERNEL GX GY GZ BX BY BZ SHARED MOST
//
// OBJECT is the number of bytes of a code object, which follow the line. NBYTES of arguments follow
// those: "memory N" and N bytes, which are no argument yet; "inside K OFFSET", an address in the
// K-th of them; "value N" and N bytes. The answer is a line "KIND N" and N bytes: of a fault or a refusal the
// text; of "facts" lines; of a good run all memory.
#include <algorithm>
#include <cstring>
#include <iostream>
#include <sstream>

#include "engine.h"

namespace {

struct Allocation {
    uint64_t address;
    std::vector<uint8_t> bytes;
};

// Allocations with unused addresses between them.
class Flat : public gfx9::Memory {
public:
    uint64_t add(std::vector<uint8_t> bytes) {
        const uint64_t address = next_;
        next_ = (next_ + bytes.size() + 4096) / 256 * 256 + 256;
        all.push_back({address, std::move(bytes)});
        return address;
    }

    void* at(uint64_t address, uint64_t nbytes, bool) override {
        for (Allocation& each : all) {
            const uint64_t offset = address - each.address;
            if (offset <= each.bytes.size() && nbytes <= each.bytes.size() - offset)
                return each.bytes.data() + offset;
        }
        return nullptr;
    }

    std::vector<Allocation> all;

private:
    uint64_t next_ = 0x7f0000000100;
};

std::vector<uint8_t> read_bytes(std::istream& from, size_t nbytes) {
    std::vector<uint8_t> bytes(nbytes);
    from.read(reinterpret_cast<char*>(bytes.data()), std::streamsize(nbytes));
    return bytes;
}

void answer(const std::string& kind, const std::string& bytes) {
    std::cout << kind << ' ' << bytes.size() << '\n' << bytes << std::flush;
}

std::string facts(const gfx9::Module& module) {
    std::ostringstream text;
    text << "module " << module.target << '\n';
    for (const gfx9::Function& each : module.functions) {
        text << "kernel " << each.name << " params " << each.params_nbytes << " shared "
             << each.shared_nbytes << " private " << each.private_nbytes << " threads "
             << each.max_threads << " vectors " << each.vector_registers << '\n';
        for (const gfx9::Param& param : each.params)
            text << "param " << param.kind << ' ' << param.offset << ' ' << param.nbytes << '\n';
    }
    for (const gfx9::Variable& each : module.variables)
        text << "variable " << each.name << ' ' << each.nbytes << '\n';
    for (const std::string& each : module.unknown) text << "unknown: " << each << '\n';
    return text.str();
}

const char* name_of(gfx9::Fault fault) {
    constexpr const char* names[] = {"none", "out-of-bounds", "misaligned", "trap",
                                     "illegal", "deadlock", "timeout"};
    return names[int(fault)];
}

// The parts: arguments go where the metadata says, memory becomes allocations.
std::vector<uint8_t> read_arguments(const gfx9::Function& function, Flat& memory,
                                    std::istream& from) {
    std::vector<uint8_t> params(function.params_nbytes);
    size_t number = 0;
    auto give = [&](const void* value, size_t nbytes) {
        const gfx9::Param& param = function.params.at(number++);
        std::memcpy(&params[param.offset], value, std::min<size_t>(nbytes, param.nbytes));
    };
    for (std::string line; std::getline(from, line);) {
        std::string kind;
        std::istringstream words(line);
        size_t first = 0, second = 0;
        words >> kind >> first >> second;
        if (kind == "memory") memory.add(read_bytes(from, first));
        if (kind == "value") give(read_bytes(from, first).data(), first);
        if (kind == "inside") {
            const uint64_t address = memory.all.at(first).address + second;
            give(&address, sizeof address);
        }
    }
    return params;
}

void run(gfx9::Module& module, const gfx9::Function& function, std::istream& words,
         std::istream& arguments) {
    gfx9::Launch launch{};
    launch.function = &function;
    for (uint32_t& size : launch.grid) words >> size;
    for (uint32_t& size : launch.block) words >> size;
    words >> launch.dynamic_shared_nbytes >> launch.most_instructions;
    Flat memory;
    const auto params = read_arguments(function, memory, arguments);
    const size_t given = memory.all.size();
    module.place(memory.add(module.image));
    memory.all.back().bytes = module.image;  // with its addresses filled in
    launch.params = params.data();
    const gfx9::Outcome outcome = gfx9::run(module, launch, memory);
    if (outcome.fault != gfx9::Fault::None) return answer(name_of(outcome.fault), outcome.message);
    std::string all;
    for (size_t number = 0; number < given; ++number)
        all.append(memory.all[number].bytes.begin(), memory.all[number].bytes.end());
    answer("memory", all);
}

void carry_out(const std::string& line) {
    std::istringstream words(line);
    std::string what, kernel, log;
    size_t nbytes = 0, rest = 0;
    words >> what >> nbytes >> rest;
    const auto object = read_bytes(std::cin, nbytes);
    const auto given = read_bytes(std::cin, rest);
    const auto module = gfx9::Module::load(object.data(), object.size(), log);
    if (!module) return answer("refused", log);
    if (what == "facts") return answer("facts", facts(*module));
    words >> kernel;
    const gfx9::Function* function = module->find(kernel);
    if (!function) return answer("refused", "no kernel " + kernel);
    std::istringstream arguments(std::string(given.begin(), given.end()));
    try {
        run(*module, *function, words, arguments);
    } catch (const std::out_of_range&) {
        answer("refused", "other arguments than the kernel has");
    }
}

}  // namespace

int main() {
    std::ios::sync_with_stdio(false);
    for (std::string line; std::getline(std::cin, line);) carry_out(line);
}
