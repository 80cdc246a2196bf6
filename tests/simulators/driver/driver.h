// The whole state of the driver, and the door that every entry point goes through.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "status.h"
#include "errors.h"
#include "settings.h"

namespace sim {

struct Array;
struct Context;
struct Event;
struct Exec;
struct Graph;
struct Function;
struct ImageObject;
struct Module;
struct Pool;
struct Stream;

using Lock = std::unique_lock<std::mutex>;

// Read from SIM_VENDOR_* when the driver starts.
struct Settings : VendorSettings {
    int devices = 2;
    uint64_t memory_nbytes = 2ull << 30;  // of each device
    uint64_t most_instructions = 4'000'000'000;  // of a launch; then it has timed out
};

struct Device {
    int ordinal = 0;
    Status fault = SUCCESS;  // of a context that is gone, where a test wants it to stay
    uint64_t used_nbytes = 0;
    uint64_t base = 0, end = 0;    // its addresses: reserved, and never to be touched
    uint64_t next = 0;
    Context* primary = nullptr;
    unsigned retained = 0, primary_flags = 0;
    std::shared_ptr<Pool> default_pool, pool;
};

// Counts a call that was given the handle of a thing that is gone.
void note_stale(const void* handle);
void retire(uintptr_t handle);

// Opaque values that no host access survives.
template <class T>
class Handles {
public:
    std::unordered_map<uintptr_t, std::shared_ptr<T>> live;

    std::shared_ptr<T> find(const void* handle) const {
        auto found = live.find(reinterpret_cast<uintptr_t>(handle));
        return found == live.end() ? nullptr : found->second;
    }
    std::shared_ptr<T> get(const void* handle) const {
        auto found = find(handle);
        if (!found) note_stale(handle);
        need(found != nullptr, INVALID_HANDLE);
        return found;
    }
    void remove(const void* handle) { remove(live.find(reinterpret_cast<uintptr_t>(handle))); }
    auto remove(typename decltype(live)::iterator entry) {
        if (entry == live.end()) return entry;
        retire(entry->first);
        return live.erase(entry);
    }
};

// One lock for all state. Whoever waits for the device waits on `progress`, which gives it up.
struct Driver {
    std::mutex mutex;
    std::condition_variable progress;
    std::atomic<bool> initialized{false}, ended{false}, forked{false};

    Settings settings;
    std::vector<std::unique_ptr<Device>> devices;
    std::vector<std::unique_ptr<Context>> contexts;  // destroyed ones too: their handles are known
    Handles<Stream> streams;
    Handles<Event> events;
    Handles<Module> modules;
    Handles<Function> functions;
    Handles<Pool> pools;
    Handles<Graph> graphs;
    Handles<Exec> execs;
    Handles<Array> arrays;
    Handles<ImageObject> images;
    uint64_t abandoned = 0;  // what was still alive when its context went
    uintptr_t first_handle = 0, next_handle = 0;
    std::deque<uintptr_t> retired;          // handles of what is gone, the oldest first
    std::map<std::string, uint64_t> stale;  // calls that were given one
    bool late = false;     // pageable memory is read when the copy's turn comes
    bool sticky = false;   // a fault stays with the process, whatever becomes of its context
    unsigned running = 0;  // pieces of work that are being carried out
    bool shuffled = false;  // streams take turns by chance, and only while somebody asks or waits
    std::mt19937_64 chance;
    const Stream* turn = nullptr;  // whose next piece of work is carried out
    unsigned waiting = 0;          // threads that wait for the device
    std::atomic<StreamHandle> capturing{nullptr};  // a stream that another library captures
    std::atomic<unsigned> spoiled{0};              // calls that have made the capture invalid
};

Driver& driver();

// The oldest one that is gone, once there are a few: then a stale handle is most often caught, and
// at times, as with the vendor's, it is something else's.
uintptr_t next_handle();

template <class T>
T new_handle() {
    return reinterpret_cast<T>(next_handle());
}

// Refuses unless the driver is up; counts, fails and delays the call as a test asked for.
void arrive(const char* name);

// Starts the driver, once. Refuses where there is no device.
void initialize();
Settings read_settings();

// What a call does that comes before the driver has started: the vendor refuses it, or starts.
void wake();

// The context that this thread works in, with no error from earlier work. The vendor's.
Context& current(bool even_failed = false);

// Refuses where earlier work left the context unusable.
void check(const Context& context);

Device& device_at(int ordinal);

template <class Body>
Status answer(Body&& body) {
    try {
        body();
        return SUCCESS;
    } catch (const Refused& refused) {
        return refused.code;
    } catch (const std::bad_alloc&) {
        return OUT_OF_MEMORY;
    }
}

// Every entry point: `return enter("vendorName", [&](Lock& lock) { ... });`
template <class Body>
Status enter(const char* name, Body&& body) {
    return answer([&] {
        arrive(name);
        Lock lock(driver().mutex);
        body(lock);
    });
}

// ... and those that need a context.
template <class Body>
Status enter_context(const char* name, Body&& body) {
    return enter(name, [&](Lock& lock) { body(current(), lock); });
}

// True in a stream's callback, which may not call the driver.
extern thread_local bool in_callback;

// Refuses what is against another library's capture, and counts that as spoiling it.
void mind_capture(bool holds, Status otherwise);

// How this thread minds the captures of others.
extern thread_local int capture_mode;

// Where streams are shuffled: lets one of those that may go on carry out a piece of work.
void give_turn();

// Waits until `holds` does; work goes on meanwhile.
template <class Condition>
void wait_until(Lock& lock, Condition holds) {
    ++driver().waiting;
    give_turn();
    driver().progress.wait(lock, holds);
    --driver().waiting;
}

}  // namespace sim
