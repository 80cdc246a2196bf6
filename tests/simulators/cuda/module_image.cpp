// What an image is: PTX of a version and for a device that this driver knows, or not.
#include <cstring>

#include "module.h"

namespace sim {
namespace {

// The value of `.name major.minor` or `.name sm_NN`, with the line it stands on.
struct Directive {
    std::string value;
    int line = 0;
};

Directive directive(const std::string& text, const std::string& name) {
    size_t start = 0;
    for (int line = 1; start < text.size(); ++line) {
        size_t end = std::min(text.find('\n', start), text.size());
        std::string row = text.substr(start, end - start);
        size_t at = row.find_first_not_of(" \t\r");
        if (at != std::string::npos && row.compare(at, name.size(), name) == 0) {
            size_t from = row.find_first_not_of(" \t", at + name.size());
            size_t to = from == std::string::npos ? from : row.find_first_of(" \t\r,/", from);
            if (from != std::string::npos) return {row.substr(from, to - from), line};
        }
        start = end + 1;
    }
    return {};
}

int tenths(const std::string& version) {
    size_t dot = version.find('.');
    int minor = dot == std::string::npos ? 0 : std::atoi(version.c_str() + dot + 1);
    return std::atoi(version.c_str()) * 10 + minor;
}

// PTX ISA notes: each driver's own version and those before it.
int newest_ptx(int driver_version) {
    int major = driver_version / 1000, minor = driver_version % 1000 / 10;
    constexpr int OF_12[] = {80, 81, 82, 83, 84, 85, 85, 86, 87, 88};
    if (major < 12) return major == 11 ? 70 + std::min(minor, 8) : 65;
    if (major == 12) return OF_12[std::min(minor, 9)];
    return 90 + 10 * (major - 13) + minor;
}

std::string ptxas(int line, const std::string& what) {
    return "ptxas application ptx input, line " + std::to_string(line) + "; fatal   : " + what +
           "\nptxas fatal   : Ptx assembly aborted due to errors\n";
}

void check_version(const std::string& text, Options& options) {
    Directive version = directive(text, ".version");
    int newest = newest_ptx(driver().settings.driver_version);
    if (tenths(version.value) <= newest) return;
    options.log_error(ptxas(version.line, "Unsupported .version " + version.value +
                                              "; current version is '" +
                                              std::to_string(newest / 10) + "." +
                                              std::to_string(newest % 10) + "'"));
    refuse(UNSUPPORTED_PTX_VERSION);
}

// `sm_90a` runs on 9.0 alone; `sm_90` on that and all that came after.
void check_target(const std::string& text, Options& options) {
    Directive target = directive(text, ".target");
    if (target.value.rfind("sm_", 0) != 0) return;  // the parser says what is wrong
    int asked = std::atoi(target.value.c_str() + 3);
    int here = driver().settings.cc_major * 10 + driver().settings.cc_minor;
    bool exact = target.value.back() == 'a' || target.value.back() == 'f';
    if (exact ? asked == here : asked <= here) return;
    options.log_error(ptxas(target.line, exact ? "target " + target.value + " is not this device's"
                                               : "SM version specified by .target is higher than "
                                                 "default SM version assumed"));
    refuse(NO_BINARY_FOR_GPU);
}

// The major version that made it: the ninth byte is the version of the ABI, and CUDA 13 began the
// eighth one.
int cuda_of_machine_code(const char* elf) { return elf[8] >= 8 ? 5 + elf[8] : 12; }

}  // namespace

std::string text_of(const void* image) {
    need(image != nullptr);
    constexpr char FATBIN[] = "\x50\xED\x55\xBA";
    auto start = static_cast<const char*>(image);
    if (std::strncmp(start, "\x7f" "ELF", 4) == 0)  // of a newer CUDA it is not even looked at
        refuse(cuda_of_machine_code(start) > driver().settings.driver_version / 1000
                   ? INVALID_IMAGE
                   : NO_BINARY_FOR_GPU);
    need(std::strncmp(start, FATBIN, 4) != 0, NO_BINARY_FOR_GPU);
    std::string text = start;
    need(directive(text, ".version").line != 0, INVALID_IMAGE);
    return text;
}

std::unique_ptr<ptx::Module> parse(const std::string& text, Options& options) {
    check_version(text, options);
    check_target(text, options);
    std::string log;
    auto code = ptx::Module::parse(text, log);
    if (!code) {
        options.log_error(log.empty() ? "the text is not valid PTX\n" : log);
        options.log_info("");
    }
    need(code != nullptr, INVALID_PTX);
    options.log_error("");
    options.log_info(log);
    return code;
}

Options::Options(unsigned count, const unsigned* names, void** values)
    : count(count), names(names), values(values) {
    need(count == 0 || (names && values));
    for (unsigned index = 0; index < count; ++index) {
        need(names[index] <= CU_JIT_LAST_KNOWN);
        if (names[index] == CU_JIT_WALL_TIME) {
            float milliseconds = 0.5f;
            std::memcpy(&values[index], &milliseconds, sizeof milliseconds);
        }
    }
}

void Options::log_error(const std::string& text) {
    log(CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, text);
}

void Options::log_info(const std::string& text) {
    log(CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, text);
}

// The size goes in as the buffer's and comes out as the text's.
void Options::log(unsigned buffer, unsigned size, const std::string& text) {
    char* to = nullptr;
    void** room = nullptr;
    for (unsigned index = 0; index < count; ++index) {
        if (names[index] == buffer) to = static_cast<char*>(values[index]);
        if (names[index] == size) room = &values[index];
    }
    if (!to || !room) return;
    size_t most = reinterpret_cast<uintptr_t>(*room) & 0xffffffff;
    if (most == 0) return;
    size_t length = std::min(text.size(), most - 1);
    std::memcpy(to, text.data(), length);
    to[length] = '\0';
    *room = reinterpret_cast<void*>(length ? length + 1 : 0);
}

}  // namespace sim
