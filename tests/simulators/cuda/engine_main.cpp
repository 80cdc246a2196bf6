// The engine as a command, for its tests.
//
//   engine facts FILE             what a driver is told of the module
//   engine run FILE KERNEL GX GY GZ BX BY BZ SHARED SCHEDULE MOST
//
// `run` reads what is in memory and the parameters, one behind the other: "memory N" and N bytes,
// which are no parameter yet; "inside K OFFSET", an address in the K-th of them; "value N" and N
// bytes. It writes all memory back. SCHEDULE is run-to-barrier or lockstep. A text that is not
// accepted is status 1, a fault 2, with the reason on standard error.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>

#include "engine.h"

namespace {

struct Allocation {
    uint64_t address;
    std::vector<uint8_t> bytes;
};

// Allocations with unused addresses between them.
class Flat : public ptx::Memory {
public:
    uint64_t add(std::vector<uint8_t> bytes, uint64_t alignment = 256) {
        next_ = (next_ + alignment - 1) / alignment * alignment;
        const uint64_t address = next_;
        next_ += bytes.size() + 4096;
        all.push_back({address, std::move(bytes)});
        return address;
    }

    void* at(uint64_t address, uint64_t nbytes, bool) override {
        if (void* found = within(last_, address, nbytes)) return found;
        for (size_t number = 0; number < all.size(); ++number) {
            if (void* found = within(number, address, nbytes)) {
                last_ = number;
                return found;
            }
        }
        return nullptr;
    }

    std::vector<Allocation> all;

private:
    void* within(size_t number, uint64_t address, uint64_t nbytes) {
        if (number >= all.size()) return nullptr;
        Allocation& each = all[number];
        const uint64_t offset = address - each.address;
        if (address < each.address || offset > each.bytes.size() ||
            nbytes > each.bytes.size() - offset)
            return nullptr;
        return each.bytes.data() + offset;
    }

    uint64_t next_ = 1ull << 33;
    size_t last_ = 0;
};

const char* name_of(ptx::Fault fault) {
    constexpr const char* names[] = {"None", "OutOfBounds", "Misaligned", "Trap",
                                     "Assert", "Illegal", "Deadlock", "Timeout"};
    return names[static_cast<int>(fault)];
}

std::string text_of(const char* path) {
    std::ifstream stream(path, std::ios::binary);
    std::ostringstream text;
    text << stream.rdbuf();
    return text.str();
}

std::vector<uint8_t> bytes_from(std::istream& in, size_t nbytes) {
    std::vector<uint8_t> bytes(nbytes);
    in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(nbytes));
    return bytes;
}

int facts(const ptx::Module& module) {
    std::cout << "module " << module.version << " " << module.target << "\n";
    for (const ptx::Function& each : module.functions) {
        std::cout << "entry " << each.name << " params " << each.params_nbytes << " shared "
                  << each.shared_nbytes << " local " << each.local_nbytes << " registers "
                  << each.registers << " threads " << each.max_threads << " required "
                  << each.required[0] << " " << each.required[1] << " " << each.required[2] << "\n";
    }
    for (const ptx::Variable& each : module.variables) {
        std::cout << "variable " << each.name << " " << each.nbytes << " " << each.alignment
                  << (each.constant ? " constant" : "") << "\n";
    }
    return 0;
}

std::vector<uint8_t> parameters(const ptx::Function& function, Flat& memory) {
    std::vector<uint8_t> block(function.params_nbytes + 8);
    const size_t first = memory.all.size();
    size_t number = 0;
    std::string line;
    while (std::getline(std::cin, line)) {
        std::istringstream words(line);
        std::string kind;
        uint64_t nbytes = 0, offset = 0;
        words >> kind >> nbytes >> offset;
        if (kind == "memory") {
            memory.add(bytes_from(std::cin, nbytes));
            continue;
        }
        std::vector<uint8_t> value(8);
        if (kind == "value") {
            value = bytes_from(std::cin, nbytes);
        } else {
            const uint64_t address = memory.all.at(first + nbytes).address + offset;
            std::memcpy(value.data(), &address, sizeof address);
        }
        const ptx::Param& param = function.params.at(number++);
        std::copy_n(value.begin(), std::min<size_t>(value.size(), param.nbytes),
                    block.begin() + param.offset);
    }
    return block;
}

int run(ptx::Module& module, char** words) {
    const ptx::Function* function = module.find(words[0]);
    if (function == nullptr) {
        std::cerr << "no entry " << words[0] << "\n";
        return 64;
    }
    Flat memory;
    for (ptx::Variable& each : module.variables) {
        each.address = memory.add(std::vector<uint8_t>(each.nbytes), each.alignment);
    }
    for (size_t number = 0; number < module.variables.size(); ++number) {
        memory.all[number].bytes = initial_bytes(module, module.variables[number]);
    }
    const std::vector<uint8_t> params = parameters(*function, memory);
    const auto number = [&](int place) { return static_cast<uint32_t>(std::stoul(words[place])); };
    const bool lockstep = std::string(words[8]) == "lockstep";
    const ptx::Launch launch{function,
                             {number(1), number(2), number(3)},
                             {number(4), number(5), number(6)},
                             number(7),
                             params.data(),
                             lockstep ? ptx::Schedule::Lockstep : ptx::Schedule::RunToBarrier,
                             std::stoull(words[9])};
    const ptx::Outcome outcome = ptx::run(module, launch, memory);
    for (size_t place = module.variables.size(); place < memory.all.size(); ++place) {
        const std::vector<uint8_t>& bytes = memory.all[place].bytes;
        std::cout.write(reinterpret_cast<const char*>(bytes.data()),
                        static_cast<std::streamsize>(bytes.size()));
    }
    if (outcome.fault == ptx::Fault::None) return 0;
    std::cerr << name_of(outcome.fault) << ": " << outcome.message << "\n";
    return 2;
}

}  // namespace

int main(int count, char** words) {
    const std::string verb = count > 1 ? words[1] : "";
    if ((verb != "facts" || count != 3) && (verb != "run" || count != 13)) {
        std::cerr << "facts FILE or run FILE KERNEL ... expected\n";
        return 64;
    }
    std::string log;
    const auto module = ptx::Module::parse(text_of(words[2]), log);
    if (module == nullptr) {
        std::cerr << log << "\n";
        return 1;
    }
    return verb == "facts" ? facts(*module) : run(*module, words + 3);
}
