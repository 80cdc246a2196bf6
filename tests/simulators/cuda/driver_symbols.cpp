// How callers find functions: by name, and by the version of the interface they were written for.
#include <dlfcn.h>

#include <cstring>

#include "event.h"
#include "memory.h"
#include "module.h"

EXPORT CUresult cuInit(unsigned flags);

using namespace sim;

namespace {

// Functions of which there is more than one form: the version that brought each, oldest first.
struct Form {
    const char* name;
    int since;
    const char* symbol;
};

constexpr Form FORMS[] = {
    {"cuDeviceGetUuid", 9020, "cuDeviceGetUuid"},
    {"cuDeviceGetUuid", 11040, "cuDeviceGetUuid_v2"},
    {"cuCtxCreate", 3020, "cuCtxCreate_v2"},
    {"cuCtxCreate", 11040, "cuCtxCreate_v3"},
    {"cuCtxCreate", 12050, "cuCtxCreate_v4"},
    {"cuTexRefSetAddress2D", 4010, "cuTexRefSetAddress2D_v3"},
    {"cuEventElapsedTime", 2000, "cuEventElapsedTime"},
    {"cuEventElapsedTime", 12080, "cuEventElapsedTime_v2"},
    {"cuGetProcAddress", 11030, "cuGetProcAddress"},
    {"cuGetProcAddress", 12000, "cuGetProcAddress_v2"},
};

void* exported(const std::string& symbol) {
    static void* self = [] {
        Dl_info info{};
        dladdr(reinterpret_cast<void*>(&cuInit), &info);
        return dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    }();
    return self ? dlsym(self, symbol.c_str()) : nullptr;
}

enum Search { FOUND = 0, NO_SUCH_SYMBOL = 1, NOT_IN_THAT_VERSION = 2 };

void* look_up(const std::string& name, int version, Search& status) {
    const char* symbol = nullptr;
    bool known = false;
    for (const Form& form : FORMS) {
        if (name != form.name) continue;
        known = true;
        if (form.since <= version) symbol = form.symbol;
    }
    // Elsewhere the oldest form is of before 2010, and nothing asks for it any more.
    void* found = nullptr;
    if (known) found = symbol ? exported(symbol) : nullptr;
    else found = exported(name + "_v2") ? exported(name + "_v2") : exported(name);
    status = found ? FOUND : known ? NOT_IN_THAT_VERSION : NO_SUCH_SYMBOL;
    return found;
}

CUresult find(const char* name, void** out, int version, uint64_t flags, Search* status) {
    if (!name || !out || flags > 2) return INVALID_VALUE;
    Search found;
    *out = look_up(name, version, found);
    if (status) *status = found;
    if (status) return SUCCESS;
    return found == FOUND ? SUCCESS : NOT_FOUND;
}

}  // namespace

EXPORT CUresult cuGetProcAddress(const char* name, void** out, int version, uint64_t flags) {
    return find(name, out, version, flags, nullptr);
}

EXPORT CUresult cuGetProcAddress_v2(const char* name, void** out, int version, uint64_t flags,
                                    Search* status) {
    return find(name, out, version, flags, status);
}

// The vendor's own libraries ask for tables that nobody documents, and live without them.
EXPORT CUresult cuGetExportTable(const void** out, const CUuuid*) {
    if (out) *out = nullptr;
    return NOT_FOUND;
}
