// The order of work, and the threads that carry it out.
#include <algorithm>
#include <thread>

#include "faults.h"
#include "memory.h"
#include "stream.h"

namespace sim {

bool Point::reached() const { return stream->completed >= number; }

void give_turn() {
    Driver& all = driver();
    if (!all.shuffled || all.turn) return;
    std::vector<const Stream*> able;
    for (auto& context : all.contexts)
        for (auto& stream : context->streams)
            if (stream->may_go_on()) able.push_back(stream.get());
    if (able.empty()) return;
    // By their handles, as a set of pointers has another order in each process.
    std::sort(able.begin(), able.end(), [](auto a, auto b) { return a->handle < b->handle; });
    all.turn = able[all.chance() % able.size()];
    all.progress.notify_all();
}

bool Stream::may_go_on() const {
    if (queue.empty()) return false;
    auto& after = queue.front().after;
    return std::all_of(after.begin(), after.end(), [](auto& point) { return point.reached(); });
}

namespace {

void carry_out(Lock& lock, const Work& work) {
    Driver& all = driver();
    ++all.running;
    lock.unlock();
    auto delay = delay_of(work.name);
    if (delay.count()) std::this_thread::sleep_for(delay);
    work.run();
    lock.lock();
    --all.running;
}

// Ends when its stream is closed and empty, or never: nothing is joined while the process ends.
void worker(std::shared_ptr<Stream> stream) {
    Driver& all = driver();
    Lock lock(all.mutex);
    auto ready = [&] {
        if (all.ended) return false;
        if (stream->queue.empty()) return stream->closing;
        return stream->may_go_on() && (!all.shuffled || all.turn == stream.get());
    };
    while (true) {
        all.progress.wait(lock, ready);
        if (stream->queue.empty()) return;
        Work work = std::move(stream->queue.front());
        stream->queue.pop_front();
        if (work.always || stream->context.error == SUCCESS) carry_out(lock, work);
        ++stream->completed;
        if (all.turn == stream.get()) all.turn = nullptr;
        if (all.waiting) give_turn();
        all.progress.notify_all();
    }
}

void start(Stream& stream) {
    try {
        std::thread(worker, stream.shared_from_this()).detach();
    } catch (const std::system_error&) {
        refuse(OPERATING_SYSTEM);
    }
    stream.started = true;
}

}  // namespace

Point submit(Stream& stream, Work work) {
    if (!stream.started) start(stream);
    Context& context = stream.context;
    auto wait_on = [&](const std::shared_ptr<Stream>& other) {
        if (!other->idle()) work.after.push_back({other, other->submitted});
    };
    if (&stream == context.legacy.get()) {
        for (auto& other : context.streams)
            if (other.get() != &stream && other->blocking()) wait_on(other);
    } else if (stream.blocking()) {
        wait_on(context.legacy);
    }
    stream.queue.push_back(std::move(work));
    ++stream.submitted;
    driver().progress.notify_all();
    return {stream.shared_from_this(), stream.submitted};
}

void wait_for(Lock& lock, const Point& point) {
    wait_until(lock, [&] { return point.reached() || driver().ended; });
    need(!driver().ended, DEINITIALIZED);
    waited_for(*point.stream);
    check(point.stream->context);
}

void wait_for_all(Lock& lock, Context& context) {
    std::vector<Point> points;
    for (auto& stream : context.streams) points.push_back({stream, stream->submitted});
    for (auto& point : points)
        wait_until(lock, [&] { return point.reached() || driver().ended; });
    need(!driver().ended, DEINITIALIZED);
    for (auto& point : points) waited_for(*point.stream);
    check(context);
}

}  // namespace sim

// From now on streams take turns in an order by chance, as any that they and their events allow may
// be; nothing is done while nobody waits or asks. 0: each goes on as soon as it can.
EXPORT void sim_shuffle(uint64_t seed) {
    using namespace sim;
    Lock lock(driver().mutex);
    driver().shuffled = seed != 0;
    driver().turn = nullptr;
    driver().chance.seed(seed);
    driver().progress.notify_all();
}
