// From the bytes of a code object, which is an ELF file, to a module.
#include <elf.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "disassembler.h"
#include "engine.h"
#include "instruction.h"
#include "metadata.h"

namespace gfx9 {
namespace {

constexpr int MACHINE = 224;             // AMDGPU
constexpr uint32_t GFX906 = 0x2f;        // of e_flags
constexpr uint32_t METADATA = 32;        // type of a note
constexpr uint32_t RELATIVE64 = 13;      // type of a relocation
constexpr uint64_t MOST_NBYTES = 1 << 28, MOST_PARAMS = 1 << 16;

[[noreturn]] void refuse(const std::string& why) { throw std::runtime_error(why); }

}  // namespace

// Reads with every offset checked.
class Loader {
public:
    Loader(Module& module, const uint8_t* bytes, uint64_t nbytes)
        : module_(module), bytes_(bytes), nbytes_(nbytes) {}

    void whole() {
        check_header();
        for (uint16_t number = 0; number < header_.e_phnum; ++number) read_segment(number);
        if (module_.functions.empty() && metadata_.fields.empty()) refuse("it has no metadata");
        find_symbols();
        for (const Value& kernel : metadata_["amdhsa.kernels"].list) add_kernel(kernel);
        decode_code();
    }

private:
    Module& module_;
    const uint8_t* bytes_;
    uint64_t nbytes_;
    Elf64_Ehdr header_{};
    Value metadata_;
    std::map<std::string, Elf64_Sym> symbols_;
    std::vector<std::pair<uint64_t, uint64_t>> code_;  // place and size of what can be executed

    template <class T>
    T at(uint64_t offset) const {
        if (offset > nbytes_ || sizeof(T) > nbytes_ - offset) refuse("it ends too early");
        T value;
        std::memcpy(&value, bytes_ + offset, sizeof value);
        return value;
    }

    const uint8_t* range(uint64_t offset, uint64_t nbytes) const {
        if (offset > nbytes_ || nbytes > nbytes_ - offset) refuse("it ends too early");
        return bytes_ + offset;
    }

    template <class T>
    T in_image(uint64_t offset) const {
        const auto& image = module_.image;
        if (offset > image.size() || sizeof(T) > image.size() - offset) refuse("a symbol lies outside");
        T value;
        std::memcpy(&value, image.data() + offset, sizeof value);
        return value;
    }

    void check_header() {
        header_ = at<Elf64_Ehdr>(0);
        if (std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0 || header_.e_machine != MACHINE)
            refuse("it is no AMD code object");
        if ((header_.e_flags & 0xff) != GFX906) refuse("it is for another target than gfx906");
    }

    void read_segment(uint16_t number) {
        const auto segment = at<Elf64_Phdr>(header_.e_phoff + uint64_t(number) * header_.e_phentsize);
        if (segment.p_type == PT_NOTE) read_notes(segment.p_offset, segment.p_filesz);
        if (segment.p_type != PT_LOAD) return;
        if (segment.p_memsz > MOST_NBYTES || segment.p_vaddr > MOST_NBYTES ||
            segment.p_filesz > segment.p_memsz)
            refuse("a segment is too large");
        const uint64_t end = segment.p_vaddr + segment.p_memsz;
        if (module_.image.size() < end) module_.image.resize(end);
        std::memcpy(module_.image.data() + segment.p_vaddr, range(segment.p_offset, segment.p_filesz),
                    segment.p_filesz);
        if (segment.p_flags & PF_X) code_.push_back({segment.p_vaddr, segment.p_filesz});
    }

    void read_notes(uint64_t place, uint64_t nbytes) {
        for (const uint64_t end = place + nbytes; place + sizeof(Elf64_Nhdr) <= end;) {
            const auto note = at<Elf64_Nhdr>(place);
            const uint64_t name = place + sizeof note;
            const uint64_t content = name + (note.n_namesz + 3ull) / 4 * 4;
            if (note.n_type == METADATA && note.n_namesz == 7 &&
                std::memcmp(range(name, 7), "AMDGPU", 7) == 0)
                metadata_ = read_metadata(range(content, note.n_descsz), note.n_descsz);
            place = content + (note.n_descsz + 3ull) / 4 * 4;
        }
        module_.target = metadata_["amdhsa.target"].text;
    }

    void find_symbols() {
        for (uint16_t number = 0; number < header_.e_shnum; ++number) {
            const auto section = at<Elf64_Shdr>(header_.e_shoff + uint64_t(number) * header_.e_shentsize);
            if (section.sh_type == SHT_RELA) read_relocations(section);
            if (section.sh_type != SHT_DYNSYM) continue;
            const auto names = at<Elf64_Shdr>(header_.e_shoff + uint64_t(section.sh_link) * header_.e_shentsize);
            for (uint64_t place = 0; place + sizeof(Elf64_Sym) <= section.sh_size; place += sizeof(Elf64_Sym)) {
                const auto symbol = at<Elf64_Sym>(section.sh_offset + place);
                const char* name = reinterpret_cast<const char*>(range(names.sh_offset + symbol.st_name, 1));
                const uint64_t room = nbytes_ - names.sh_offset - symbol.st_name;
                add_symbol(std::string(name, strnlen(name, room)), symbol);
            }
        }
    }

    void add_symbol(const std::string& name, const Elf64_Sym& symbol) {
        symbols_[name] = symbol;
        const bool descriptor = name.size() > 3 && name.compare(name.size() - 3, 3, ".kd") == 0;
        if (ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT && symbol.st_size && !descriptor)
            module_.variables.push_back({name, symbol.st_value, symbol.st_size});
    }

    void read_relocations(const Elf64_Shdr& section) {
        for (uint64_t place = 0; place + sizeof(Elf64_Rela) <= section.sh_size; place += sizeof(Elf64_Rela)) {
            const auto relocation = at<Elf64_Rela>(section.sh_offset + place);
            if (ELF64_R_TYPE(relocation.r_info) != RELATIVE64) refuse("a relocation is of an unknown kind");
            in_image<uint64_t>(relocation.r_offset);
            relocations.push_back({relocation.r_offset, uint64_t(relocation.r_addend)});
        }
    }

    void add_kernel(const Value& is) {
        Function function;
        function.name = is[".name"].text;
        function.params_nbytes = uint32_t(is[".kernarg_segment_size"].number);
        function.shared_nbytes = uint32_t(is[".group_segment_fixed_size"].number);
        function.private_nbytes = uint32_t(is[".private_segment_fixed_size"].number);
        function.vector_registers = uint32_t(is[".vgpr_count"].number);
        function.scalar_registers = uint32_t(is[".sgpr_count"].number);
        if (function.params_nbytes > MOST_PARAMS) refuse("its arguments are too large");
        if (is[".max_flat_workgroup_size"].number)
            function.max_threads = uint32_t(is[".max_flat_workgroup_size"].number);
        const auto& required = is[".reqd_workgroup_size"].list;
        for (size_t axis = 0; axis < required.size() && axis < 3; ++axis)
            function.required[axis] = uint32_t(required[axis].number);
        for (const Value& param : is[".args"].list) {
            const Param made{param[".value_kind"].text, uint32_t(param[".offset"].number), uint32_t(param[".size"].number)};
            if (uint64_t(made.offset) + made.nbytes > function.params_nbytes)
                refuse("an argument lies outside");
            function.params.push_back(made);
        }
        function.descriptor = descriptor_of(is[".symbol"].text);
        module_.functions.push_back(function);
    }

    // Source: LLVM's AMDGPU usage, "Code Object V3 Kernel Descriptor".
    Descriptor descriptor_of(const std::string& symbol) {
        auto found = symbols_.find(symbol);
        if (found == symbols_.end()) refuse("the kernel descriptor " + symbol + " is missing");
        const uint64_t place = found->second.st_value;
        Descriptor descriptor;
        descriptor.entry = place + in_image<uint64_t>(place + 16);
        descriptor.rsrc1 = in_image<uint32_t>(place + 48);
        descriptor.rsrc2 = in_image<uint32_t>(place + 52);
        descriptor.properties = in_image<uint16_t>(place + 56);
        return descriptor;
    }

    void decode_code() {
        Program& program = *module_.program;
        program.at.assign(module_.image.size() / 4 + 1, ~0u);
        for (auto [place, nbytes] : code_) {
            std::string log;
            const auto lines = disassemble(module_.image.data() + place, nbytes, log);
            if (lines.empty() && nbytes) refuse(log);
            for (const Line& line : lines) {
                program.at[place / 4] = uint32_t(program.code.size());
                program.code.push_back(decoded(line, place));
                place += line.nbytes;
            }
        }
    }

    // What the engine does not know is an error where a wave comes to it.
    Instruction decoded(const Line& line, uint64_t place) {
        try {
            return decode(line.text, place, line.nbytes);
        } catch (const Stop& stop) {
            auto& known = module_.unknown;
            if (std::find(known.begin(), known.end(), stop.message) == known.end())
                known.push_back(stop.message);
            Instruction is;
            is.text = stop.message;
            is.place = place;
            is.nbytes = line.nbytes;
            is.run = [](Wave&, const Instruction& is) { throw Stop{Fault::Illegal, is.text, -1}; };
            return is;
        }
    }

public:
    std::vector<std::pair<uint64_t, uint64_t>> relocations;
};

Module::Module() : program(std::make_unique<Program>()) {}
Module::~Module() = default;

std::unique_ptr<Module> Module::load(const uint8_t* bytes, uint64_t nbytes, std::string& log) {
    std::unique_ptr<Module> made(new Module);
    try {
        Loader loader(*made, bytes, nbytes);
        loader.whole();
        made->program->relocations = loader.relocations;
    } catch (const std::runtime_error& error) {
        log = error.what();
        return nullptr;
    }
    return made;
}

void Module::place(uint64_t address) {
    program->image = address;
    for (auto [place, addend] : program->relocations) {
        const uint64_t value = address + addend;
        std::memcpy(image.data() + place, &value, sizeof value);
    }
}

const Function* Module::find(const std::string& name) const {
    for (const Function& function : functions)
        if (function.name == name) return &function;
    return nullptr;
}

uint64_t nbytes_of_object(const uint8_t* bytes) {
    Elf64_Ehdr header;
    if (std::memcmp(bytes, ELFMAG, SELFMAG) != 0) return 0;
    std::memcpy(&header, bytes, sizeof header);
    return header.e_shoff + uint64_t(header.e_shnum) * header.e_shentsize;
}

}  // namespace gfx9
