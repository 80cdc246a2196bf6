// Modules and their kernels.
#pragma once

#include <map>

#include "cuda_api.h"
#include "graph.h"
#include "memory.h"

namespace sim {

struct Module {
    Context& context;
    CUmodule handle;
    std::unique_ptr<ptx::Module> code;
    std::map<std::string, std::shared_ptr<Block>> variables{};
    std::map<std::string, CUfunction> functions{};

    Module(Context& context, std::unique_ptr<ptx::Module> code)
        : context(context), handle(new_handle<CUmodule>()), code(std::move(code)) {}
};

struct Function {
    std::shared_ptr<Module> module;
    const ptx::Function* code;
    uint32_t dynamic_shared_nbytes;  // the most a launch may ask for

    Function(std::shared_ptr<Module> module, const ptx::Function* code);
};

// What was given as a JIT option, and where the logs are to go.
class Options {
public:
    Options(unsigned count, const unsigned* names, void** values);

    void log_error(const std::string& text);
    void log_info(const std::string& text);

private:
    unsigned count;
    const unsigned* names;
    void** values;

    void log(unsigned buffer, unsigned size, const std::string& text);
};

// The text of a PTX image; refuses what no such device could run.
std::string text_of(const void* image);
std::unique_ptr<ptx::Module> parse(const std::string& text, Options& options);

std::shared_ptr<Module> load(Lock& lock, Context& context, const std::string& text,
                             Options& options);
void unload(Lock& lock, const std::shared_ptr<Module>& module);
CUfunction function_of(const std::shared_ptr<Module>& module, const char* name);

std::shared_ptr<Function> function_at(CUfunction handle);

struct Shape {
    unsigned grid[3], block[3];
    unsigned dynamic_shared_nbytes;
};

// Arguments as an array of pointers, or as the `extra` list of keys and values.
void launch(Context& context, const char* name, const std::shared_ptr<Function>& function,
            const Shape& shape, CUstream stream, void** arguments, void** extra);

// The same as a node of a graph.
Task launch_task(Context& context, const std::shared_ptr<Function>& function, const Shape& shape,
                 void** arguments, void** extra);

// Shared memory of a block, in bytes: what every kernel may have, the most it may ask for, all.
constexpr uint32_t SHARED_DEFAULT = 48 << 10, SHARED_MOST = 227 << 10, SHARED_ALL = 228 << 10;
constexpr uint32_t SHARED_RESERVED = 1 << 10, REGISTERS_ALL = 65536;
constexpr uint32_t THREADS_ALL = 2048, BLOCKS_ALL = 32, PROCESSORS = 16;

}  // namespace sim
