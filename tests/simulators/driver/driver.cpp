// Coming up, going down, and what a forked child gets.
#include "driver.h"

#include <pthread.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>

#include "context.h"
#include "faults.h"
#include "memory.h"

namespace sim {

thread_local bool in_callback = false;
thread_local int capture_mode = CAPTURE_GLOBAL;

// Never destroyed: workers are running when the process ends.
Driver& driver() {
    static Driver& made = *new Driver;
    return made;
}

namespace {

constexpr size_t UNUSED_FOR = 8;  // so many others go before a handle is given out again

thread_local const char* called = "";

}  // namespace

uintptr_t next_handle() {
    auto& retired = driver().retired;
    if (retired.size() <= UNUSED_FOR) return driver().next_handle += 16;
    uintptr_t handle = retired.front();
    retired.pop_front();
    return handle;
}

// Some handles are addresses.
bool of_ours(uintptr_t handle) {
    return handle > driver().first_handle && handle <= driver().next_handle;
}

void retire(uintptr_t handle) {
    if (of_ours(handle)) driver().retired.push_back(handle);
}

void note_stale(const void* handle) {
    if (of_ours(reinterpret_cast<uintptr_t>(handle))) ++driver().stale[called];
}

void mind_capture(bool holds, Status otherwise) {
    if (!holds && driver().capturing) ++driver().spoiled;
    need(holds, otherwise);
}

namespace {

// What the vendors call potentially unsafe while a stream is captured in global mode.
bool unsafe_in_capture(const char* name) {
    static const std::set<std::string> unsafe{
        "EventQuery", "EventSynchronize", "StreamQuery", "StreamSynchronize", "CtxSynchronize",
        "DeviceSynchronize", "MemAlloc", "Malloc", "MemFree", "Free", "MemHostAlloc", "HostMalloc",
        "MemFreeHost", "HostFree"};
    return unsafe.count(name + sizeof PREFIX - 1);
}

}  // namespace

void arrive(const char* name) {
    called = name;
    // Before any lock: in a child they may be held by threads that are not there.
    need(!driver().forked, NOT_INITIALIZED);
    need(!driver().ended, DEINITIALIZED);
    need(!in_callback, NOT_PERMITTED);
    if (!driver().initialized) wake();
    Status wanted = arrived(name);
    if (!slow_on_stream(name)) std::this_thread::sleep_for(delay_of(name));
    need(wanted == SUCCESS, wanted);
    bool minds = driver().capturing && capture_mode != CAPTURE_RELAXED;
    mind_capture(!minds || !unsafe_in_capture(name), STREAM_CAPTURE_UNSUPPORTED);
}

Device& device_at(int ordinal) {
    auto& devices = driver().devices;
    need(ordinal >= 0 && size_t(ordinal) < devices.size(), INVALID_DEVICE);
    return *devices[ordinal];
}

namespace {

uint64_t reserve(uint64_t nbytes) {
    constexpr int FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* region = mmap(nullptr, nbytes, PROT_NONE, FLAGS, -1, 0);
    need(region != MAP_FAILED, OPERATING_SYSTEM);
    return reinterpret_cast<uint64_t>(region);
}

// Devices from the first number on that does not exist are hidden.
int visible(int devices) {
    for (const char* name : VISIBLE) {
        const char* text = std::getenv(name);
        if (!text) continue;
        int count = 0;
        while (*text) {
            char* rest;
            long ordinal = std::strtol(text, &rest, 10);
            if (rest == text || ordinal < 0 || ordinal >= devices) break;
            ++count;
            text = *rest == ',' ? rest + 1 : rest;
        }
        devices = std::min(devices, count);
    }
    return devices;
}

// Work in flight is cut short, as a device is when its process goes. Runs before the destructors of
// anything that was made while the library was loaded.
void end() {
    Driver& all = driver();
    if (all.forked) return;
    all.ended = true;
    forget_cached_blocks();
    Lock lock(all.mutex);
    all.progress.notify_all();
    all.progress.wait_for(lock, std::chrono::seconds(2), [&] { return all.running == 0; });
}

void start() {
    Driver& all = driver();
    all.settings = read_settings();
    read_failures(setting("FAIL"));
    read_delays(setting("DELAY"));
    if (auto seed = setting("SHUFFLE")) {
        all.shuffled = true;
        all.chance.seed(std::strtoull(seed, nullptr, 0));
    }
    int count = visible(all.settings.devices);
    need(count > 0, NO_DEVICE);
    all.first_handle = all.next_handle = reserve(1ull << 30);
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        auto device = std::make_unique<Device>();
        device->ordinal = ordinal;
        // Much more than there is memory, so that a freed address stays unused for long.
        uint64_t extent = std::max<uint64_t>(64ull << 30, 8 * all.settings.memory_nbytes);
        device->base = device->next = reserve(extent);
        device->end = device->base + extent;
        device->default_pool = device->pool = new_pool(*device);
        all.devices.push_back(std::move(device));
    }
    pthread_atfork(nullptr, nullptr, [] { driver().forked = true; });
    std::atexit(end);
}

}  // namespace

const char* setting(const char* name) {
    const char* text = std::getenv((std::string(SETTINGS) + name).c_str());
    return text && *text ? text : nullptr;
}

Settings read_settings() {
    Settings settings;
    static_cast<VendorSettings&>(settings).read();
    if (auto text = setting("DEVICES")) settings.devices = std::atoi(text);
    if (auto text = setting("MEMORY")) settings.memory_nbytes = std::strtoull(text, nullptr, 0);
    if (auto text = setting("INSTRUCTIONS"))
        settings.most_instructions = std::strtoull(text, nullptr, 0);
    return settings;
}

void initialize() {
    Lock lock(driver().mutex);
    if (driver().initialized) return;
    start();
    driver().initialized = true;
}

}  // namespace sim

// Calls that were given the handle of a thing that is gone, as lines of "name count"; the text is
// valid until this thread's next call.
EXPORT const char* sim_stale() {
    using namespace sim;
    thread_local std::string text;
    Lock lock(driver().mutex);
    text.clear();
    for (auto& [name, count] : driver().stale) text += name + " " + std::to_string(count) + "\n";
    return text.c_str();
}

// From now on asynchronous copies read pageable memory when their turn comes, which the vendor's
// guide leaves open; 0: before they return.
EXPORT void sim_read_late(int on) {
    using namespace sim;
    Lock lock(driver().mutex);
    driver().late = on;
}

// From now on a fault stays until the process ends, as the vendor's guide says of every one; 0 ends
// that, and takes away the faults that stayed.
EXPORT void sim_sticky(int on) {
    using namespace sim;
    Lock lock(driver().mutex);
    driver().sticky = on;
    for (auto& device : driver().devices) device->fault = SUCCESS;
}
