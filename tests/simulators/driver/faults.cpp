// Failures, delays and counts, and the `sim_*` functions that tests call through ctypes.
#include "faults.h"

#include <map>
#include <mutex>
#include <sstream>
#include <thread>
#include <vector>

namespace sim {
namespace {

struct Failure {
    uint64_t at;  // the call of that number fails
    Status code;
};

struct Entry {
    uint64_t calls = 0;
    std::vector<Failure> failures;
    std::chrono::microseconds delay{0};
};

// A lock of its own: counting must not wait for a driver call that waits for the device.
struct Table {
    std::mutex mutex;
    std::map<std::string, Entry> entries;
    std::string message;
};

Table& table() {
    static Table& made = *new Table;
    return made;
}

// `cuMemAlloc` and `cuMemAlloc_v2` are one function to whoever counts its calls.
std::string plain(const char* name) {
    std::string text = name ? name : "";
    size_t mark = text.rfind("_v");
    if (text == "cuGraphInstantiateWithFlags") return "cuGraphInstantiate";  // one function, too
    bool versioned = mark != std::string::npos && mark + 3 == text.size();
    return versioned ? text.substr(0, mark) : text;
}

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
    return parts;
}

}  // namespace
}  // namespace sim

using sim::table;

EXPORT void sim_fail(const char* name, uint64_t nth, int code) {
    std::lock_guard lock(table().mutex);
    sim::Entry& entry = table().entries[sim::plain(name)];
    if (nth > 0) entry.failures.push_back({entry.calls + nth, sim::Status(code)});
}

EXPORT void sim_delay(const char* name, uint64_t microseconds) {
    std::lock_guard lock(table().mutex);
    table().entries[sim::plain(name)].delay = std::chrono::microseconds(microseconds);
}

// Forgets failures and delays; counts go on.
EXPORT void sim_clear() {
    std::lock_guard lock(table().mutex);
    for (auto& [name, entry] : table().entries) {
        entry.failures.clear();
        entry.delay = {};
    }
}

EXPORT uint64_t sim_calls(const char* name) {
    std::lock_guard lock(table().mutex);
    auto found = table().entries.find(sim::plain(name));
    return found == table().entries.end() ? 0 : found->second.calls;
}

// All counts as lines of "name count"; the text is valid until this thread's next call.
EXPORT const char* sim_all_calls() {
    thread_local std::string text;
    std::lock_guard lock(table().mutex);
    text.clear();
    for (auto& [name, entry] : table().entries)
        if (entry.calls) text += name + " " + std::to_string(entry.calls) + "\n";
    return text.c_str();
}

// Failures that were asked for stay as many calls away as they were.
EXPORT void sim_reset_counts() {
    std::lock_guard lock(table().mutex);
    for (auto& [name, entry] : table().entries) {
        for (sim::Failure& failure : entry.failures) failure.at -= entry.calls;
        entry.calls = 0;
    }
}

EXPORT const char* sim_message() {
    thread_local std::string text;
    std::lock_guard lock(table().mutex);
    text = table().message;
    return text.c_str();
}

namespace sim {

Status arrived(const char* name) {
    std::lock_guard lock(table().mutex);
    Entry& entry = table().entries[plain(name)];
    ++entry.calls;
    for (auto failure = entry.failures.begin(); failure != entry.failures.end(); ++failure) {
        if (failure->at != entry.calls) continue;
        Status code = failure->code;
        entry.failures.erase(failure);
        return code;
    }
    return SUCCESS;
}

std::chrono::microseconds delay_of(const char* name) {
    std::lock_guard lock(table().mutex);
    return table().entries[plain(name)].delay;
}

bool slow_on_stream(const char* name) {
    const std::string text = std::string(name).substr(sizeof PREFIX - 1);
    for (const char* start :
         {"Memcpy", "Memset", "Launch", "ModuleLaunch", "EventRecord", "MemFreeAsync", "FreeAsync",
          "StreamWaitEvent", "GraphLaunch", "StreamAddCallback", "StreamDestroy"})
        if (text.rfind(start, 0) == 0) return true;
    return false;
}

void set_message(const std::string& text) {
    std::lock_guard lock(table().mutex);
    table().message = text;
}

void read_failures(const char* text) {
    for (const std::string& part : split(text ? text : "", ',')) {
        auto fields = split(part, ':');
        if (fields.size() == 3)
            sim_fail(fields[0].c_str(), std::stoull(fields[1]), std::stoi(fields[2]));
    }
}

void read_delays(const char* text) {
    for (const std::string& part : split(text ? text : "", ',')) {
        auto fields = split(part, ':');
        if (fields.size() == 2) sim_delay(fields[0].c_str(), std::stoull(fields[1]));
    }
}

}  // namespace sim
