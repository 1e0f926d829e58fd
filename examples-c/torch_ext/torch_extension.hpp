// C++ torch extensions, compiled when they are first needed, into a cache that any number of processes share, torch's own
// Python loader among them. Copy this and torch_extension.cpp as the start of a loader of your own.

#ifndef TORCH_EXTENSION_HPP
#define TORCH_EXTENSION_HPP

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

struct TorchExtension {
    std::string cache;  // the root of all extensions: its lock is the lock of all builds
    std::string source;
    std::string flags;         // of the compiler
    std::string torch_version; // an extension works with the torch that it was built for
    bool force_rebuild = false;
    std::int64_t timeout_ms; // or JITLOCK_TIMEOUT_DEFAULT
    // Told what happens.
    std::function<void(const std::string &)> watch = [](const std::string &) {};

    // The loaded library, for dlsym. Throws ExtensionUnavailable: take the path that needs no compiler.
    void *load() const;

    // `cache`/<fingerprint of all that the result depends on>
    std::string build_directory() const;
};

struct ExtensionUnavailable : std::runtime_error {
    using std::runtime_error::runtime_error;
};

#endif
