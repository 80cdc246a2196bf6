#include "externals.h"

#include <algorithm>
#include <cstdio>

namespace ptx {

namespace {

// The n-th argument of a call, which stands behind the result.
uint64_t argument(Thread& t, const Instruction& call, const Routine& called, size_t number) {
    const size_t place = called.results.size() + number;
    const uint32_t* operand = &t.routine->lists[call.list + 2 * place];
    uint64_t value = 0;
    const void* from = operand[0] != 0
                           ? static_cast<const void*>(t.local.data() + t.local_at + operand[1])
                           : static_cast<const void*>(&t.r[operand[1]]);
    std::memcpy(&value, from, std::min<size_t>(called.params[number].nbytes, sizeof value));
    return value;
}

std::string text_at(Thread& t, uint64_t address) {
    std::string text;
    while (text.size() < 65536) {
        const char c = static_cast<char>(*resolve(t, Space::generic, address++, 1, 1, false));
        if (c == '\0') return text;
        text += c;
    }
    raise(Fault::OutOfBounds, "a text that does not end");
}

// Arguments of printf stand one behind the other, each aligned to its size.
class Printer {
public:
    Printer(Thread& t, uint64_t arguments) : t_(t), next_(arguments) {}

    int print(const std::string& format) {
        size_t here = 0;
        while (here < format.size()) {
            if (format[here] != '%') text_ += format[here++];
            else here = conversion(format, here);
        }
        std::fwrite(text_.data(), 1, text_.size(), stderr);
        return count_;
    }

private:
    uint64_t take(uint32_t nbytes) {
        next_ = (next_ + nbytes - 1) / nbytes * nbytes;
        uint64_t value = 0;
        std::memcpy(&value, resolve(t_, Space::generic, next_, nbytes, nbytes, false), nbytes);
        next_ += nbytes;
        ++count_;
        return value;
    }

    template <class T>
    void write(const std::string& pattern, T value) {
        char part[512];
        std::snprintf(part, sizeof part, pattern.c_str(), value);
        text_ += part;
    }

    // Rebuilds the conversion from the parts that are known, so that nothing else reaches snprintf.
    size_t conversion(const std::string& format, size_t start) {
        size_t here = start + 1;
        std::string pattern = "%";
        const auto accept = [&](const char* marks) {
            while (here < format.size() && std::strchr(marks, format[here]) != nullptr)
                pattern += format[here++];
        };
        accept("-+ #0");
        width(format, here, pattern);
        if (here < format.size() && format[here] == '.') {
            pattern += format[here++];
            width(format, here, pattern);
        }
        size_t longs = 0;
        for (; here < format.size() && std::strchr("lhzjt", format[here]) != nullptr; ++here) {
            longs += format[here] == 'l' || format[here] == 'z' || format[here] == 'j' ||
                     format[here] == 't';
        }
        if (here >= format.size()) return here;
        emit(pattern, format[here], longs != 0);
        return here + 1;
    }

    void width(const std::string& format, size_t& here, std::string& pattern) {
        if (here < format.size() && format[here] == '*') {
            pattern += std::to_string(static_cast<int32_t>(take(4)) % 256);
            ++here;
        }
        size_t digits = 0;
        for (; here < format.size() && format[here] >= '0' && format[here] <= '9'; ++here) {
            if (++digits <= 2) pattern += format[here];
        }
    }

    void emit(const std::string& pattern, char kind, bool is_long) {
        if (kind == '%') {
            text_ += '%';
        } else if (std::strchr("di", kind) != nullptr) {
            const uint64_t value = take(is_long ? 8 : 4);
            write(pattern + "lld",
                  is_long ? static_cast<long long>(value) : static_cast<int32_t>(value));
        } else if (std::strchr("uxXo", kind) != nullptr) {
            write(pattern + "ll" + kind, static_cast<unsigned long long>(take(is_long ? 8 : 4)));
        } else if (std::strchr("fFeEgGaA", kind) != nullptr) {
            const uint64_t bits = take(8);
            double value;
            std::memcpy(&value, &bits, sizeof value);
            write(pattern + kind, value);
        } else if (kind == 'c') {
            write(pattern + kind, static_cast<int>(take(4)));
        } else if (kind == 's') {
            const std::string text = text_at(t_, take(8));
            if (pattern == "%") text_ += text;
            else write(pattern + kind, text.c_str());
        } else if (kind == 'p') {
            write("0x%llx", static_cast<unsigned long long>(take(8)));
        }
    }

    Thread& t_;
    uint64_t next_;
    std::string text_;
    int count_ = 0;
};

void print(Thread& t, const Instruction& call, const Routine& called) {
    const std::string format = text_at(t, argument(t, call, called, 0));
    const int count = Printer(t, argument(t, call, called, 1)).print(format);
    if (called.results.empty()) return;
    const uint32_t* result = &t.routine->lists[call.list];
    const uint64_t value = static_cast<uint32_t>(count);
    void* to = result[0] != 0 ? static_cast<void*>(t.local.data() + t.local_at + result[1])
                              : static_cast<void*>(&t.r[result[1]]);
    std::memcpy(to, &value, called.results[0].nbytes);
}

[[noreturn]] void fail(Thread& t, const Instruction& call, const Routine& called) {
    const std::string what = text_at(t, argument(t, call, called, 0));
    const std::string file = text_at(t, argument(t, call, called, 1));
    const uint64_t line = argument(t, call, called, 2);
    raise(Fault::Assert,
          "assertion failed: " + what + " (" + file + ", line " + std::to_string(line) + ")");
}

}  // namespace

bool is_external(const std::string& name) { return name == "vprintf" || name == "__assertfail"; }

const char* external_problem(const Routine& routine) {
    const bool prints = routine.name == "vprintf";
    if (routine.params.size() != (prints ? 2u : 5u) ||
        routine.results.size() > (prints ? 1u : 0u)) {
        return "a declaration with other parameters than the function has";
    }
    for (const Formal& result : routine.results) {
        if (result.nbytes != 4) return "a result that is no .b32";
    }
    return nullptr;
}

void call_external(Thread& thread, const Instruction& call, const Routine& routine) {
    if (routine.name == "vprintf") print(thread, call, routine);
    else fail(thread, call, routine);
}

}  // namespace ptx
