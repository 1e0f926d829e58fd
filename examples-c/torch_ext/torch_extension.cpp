#include "torch_extension.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jitlock.h"

namespace {

std::string read(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    if (!file)
        throw ExtensionUnavailable(path + ": " + std::strerror(errno));
    return text.str();
}

// FNV-1a: a name, not a proof.
std::string fingerprint(const std::string &text) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (unsigned char c : text)
        hash = (hash ^ c) * 0x100000001b3;
    std::ostringstream digits;
    digits << std::hex << hash;
    return digits.str();
}

bool is_there(const std::string &path) { return access(path.c_str(), R_OK) == 0; }

class Lock {
public:
    Lock(const std::string &cache, std::int64_t timeout_ms) {
        jitlock_options_t options = JITLOCK_OPTIONS_INIT;
        options.timeout_ms = timeout_ms;
        // Compilers that outlive us keep the lock.
        options.flags = JITLOCK_INHERIT;
        if (jitlock_acquire_with(cache.c_str(), &options, &lock_) != JITLOCK_OK)
            throw ExtensionUnavailable(jitlock_last_error_message());
    }
    ~Lock() {
        if (lock_ != JITLOCK_NONE)
            (void)!jitlock_release(lock_);
    }
    Lock(const Lock &) = delete;
    Lock &operator=(const Lock &) = delete;

    void check(jitlock_status_t status) const {
        if (status != JITLOCK_OK)
            throw ExtensionUnavailable(jitlock_last_error_message());
    }
    bool previous_owner_died() const {
        jitlock_info_t info = {};
        info.struct_size = sizeof info;
        check(jitlock_info(lock_, &info));
        return info.previous_owner == JITLOCK_PREVIOUS_DIED;
    }
    void clear() const { check(jitlock_clear_held(lock_)); }
    void remove_stale_baton(const std::string &build_dir, std::int64_t timeout_ms) const {
        check(jitlock_remove_stale_baton(lock_, build_dir.c_str(), timeout_ms));
    }
    // Somebody may have deleted the lock file, and built beside us.
    void release() {
        jitlock_t lock = lock_;
        lock_ = JITLOCK_NONE;
        check(jitlock_release(lock));
    }

private:
    jitlock_t lock_ = JITLOCK_NONE;
};

// Beside its place, and then renamed: whoever looks without the lock sees all of it or none.
void compile(const TorchExtension &extension, const std::string &directory, const std::string &library) {
    if (mkdir(extension.cache.c_str(), 0777) != 0 && errno != EEXIST)
        throw ExtensionUnavailable(extension.cache + ": " + std::strerror(errno));
    if (mkdir(directory.c_str(), 0777) != 0 && errno != EEXIST)
        throw ExtensionUnavailable(directory + ": " + std::strerror(errno));
    std::string partial = library + "." + std::to_string(getpid());
    std::string command = "exec c++ '" + extension.source + "' " + extension.flags + " -o '" + partial + "'";
    if (std::system(command.c_str()) != 0 || std::rename(partial.c_str(), library.c_str()) != 0) {
        std::remove(partial.c_str());
        throw ExtensionUnavailable(extension.source + " cannot be compiled");
    }
}

} // namespace

std::string TorchExtension::build_directory() const {
    return cache + "/" + fingerprint(torch_version + '\0' + flags + '\0' + read(source));
}

void *TorchExtension::load() const {
    std::string directory = build_directory(), library = directory + "/extension.so";
    // A warm cache needs no lock: what is there is whole.
    if (force_rebuild || !is_there(library)) {
        Lock lock(cache, timeout_ms);
        if (force_rebuild) {
            watch("forced: the cache is deleted");
            lock.clear();
        } else if (lock.previous_owner_died()) {
            watch("the last builder died: only whole extensions are believed");
        }
        // Torch's Python loader may build in the same directory, or have been killed there.
        lock.remove_stale_baton(directory, timeout_ms);
        // Somebody may have built it while we waited.
        if (!is_there(library)) {
            watch("building " + library);
            compile(*this, directory, library);
        }
        lock.release();
    }
    void *loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!loaded)
        throw ExtensionUnavailable(dlerror());
    watch("loaded " + library);
    return loaded;
}
