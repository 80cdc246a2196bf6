// The child of disassembler.cpp: reads a size and so many bytes of code, writes lines of size and
// text, then an empty one; until its input ends. Source: ROCm's amd_comgr.h.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

using Read = uint64_t (*)(uint64_t, char*, uint64_t, void*);
using Print = void (*)(const char*, void*);
using Annotate = void (*)(uint64_t, void*);
using Create = int (*)(const char*, Read, Print, Annotate, uint64_t*);
using Disassemble = int (*)(uint64_t, uint64_t, void*, uint64_t*);

struct Code {
    std::vector<char> bytes;
    std::string text;
};

uint64_t read_code(uint64_t from, char* to, uint64_t nbytes, void* data) {
    const auto& bytes = static_cast<Code*>(data)->bytes;
    if (from >= bytes.size()) return 0;
    nbytes = nbytes < bytes.size() - from ? nbytes : bytes.size() - from;
    std::memcpy(to, bytes.data() + from, nbytes);
    return nbytes;
}

void keep(const char* text, void* data) {
    const size_t start = std::strspn(text, " \t");
    static_cast<Code*>(data)->text = text + start;
}

void* library() {
    for (const char* name : {"libamd_comgr.so.3", "libamd_comgr.so.2"})
        if (void* found = dlopen(name, RTLD_NOW)) return found;
    return nullptr;
}

void answer(Disassemble disassemble, uint64_t info, Code& code) {
    for (uint64_t place = 0; place < code.bytes.size();) {
        uint64_t nbytes = 0;
        // What is no instruction is one that nobody knows.
        if (disassemble(info, place, &code, &nbytes) != 0) nbytes = 4, code.text = "(no instruction)";
        std::printf("%d %s\n", int(nbytes), code.text.c_str());
        place += nbytes;
    }
    std::printf("\n");
    std::fflush(stdout);
}

}  // namespace

int main() {
    void* comgr = library();
    if (!comgr) return 1;
    const auto create =
        reinterpret_cast<Create>(dlsym(comgr, "amd_comgr_create_disassembly_info"));
    const auto disassemble =
        reinterpret_cast<Disassemble>(dlsym(comgr, "amd_comgr_disassemble_instruction"));
    uint64_t info = 0, nbytes = 0;
    if (!create || !disassemble ||
        create("amdgcn-amd-amdhsa--gfx906", read_code, keep, [](uint64_t, void*) {}, &info) != 0)
        return 1;
    while (std::fread(&nbytes, sizeof nbytes, 1, stdin) == 1) {
        Code code{std::vector<char>(nbytes), ""};
        if (std::fread(code.bytes.data(), 1, nbytes, stdin) != nbytes) return 1;
        answer(disassemble, info, code);
    }
}
