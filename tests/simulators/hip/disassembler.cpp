#include "disassembler.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <mutex>

extern char** environ;

namespace gfx9 {
namespace {

// One child, asked by one thread at a time. It ends when its parent does.
class Child {
public:
    std::mutex mutex;
    FILE* stream = nullptr;
    pid_t owner = 0;  // a forked process starts its own

    bool started(std::string& log) {
        if (stream && owner == getpid()) return true;
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
        posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
        const std::string path = GFX9_DISASSEMBLER;  // said by the build
        char* arguments[] = {const_cast<char*>(path.c_str()), nullptr};
        pid_t child;
        const int status = posix_spawn(&child, path.c_str(), &actions, nullptr, arguments, environ);
        posix_spawn_file_actions_destroy(&actions);
        close(ends[1]);
        if (status != 0) log = path + " does not start";
        else stream = fdopen(ends[0], "r+"), owner = getpid();
        return status == 0;
    }
};

Child& child() {
    static Child& made = *new Child;
    return made;
}

}  // namespace

std::vector<Line> disassemble(const uint8_t* code, uint64_t nbytes, std::string& log) {
    std::lock_guard lock(child().mutex);
    std::vector<Line> lines;
    if (!child().started(log)) return lines;
    FILE* stream = child().stream;
    std::fwrite(&nbytes, sizeof nbytes, 1, stream);
    std::fwrite(code, 1, nbytes, stream);
    std::fflush(stream);
    char row[1024];
    while (std::fgets(row, sizeof row, stream)) {
        if (row[0] == '\n') return lines;
        char* rest;
        const auto size = uint32_t(std::strtoul(row, &rest, 10));
        std::string text = rest + 1;
        text.pop_back();
        lines.push_back({size, text});
    }
    std::fclose(stream);
    child().stream = nullptr;
    log = "AMD's disassembler ended (is libamd_comgr.so.2 installed?)";
    return {};
}

}  // namespace gfx9
