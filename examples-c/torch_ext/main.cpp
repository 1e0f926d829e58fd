// Computes with a torch extension if it can be had in time, and without one if not.
//
//     torch_ext [--force-rebuild] [--timeout SECONDS] CACHE SOURCE

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <dlfcn.h>

#include "jitlock.h"
#include "torch_extension.hpp"

using Kernel = void(const float *, float *, std::int64_t);

// The path that needs no compiler.
static void fallback(const float *x, float *y, std::int64_t n) {
    for (std::int64_t i = 0; i < n; i++)
        y[i] = x[i] / (1 + std::exp(-x[i]));
}

static int usage(const char *wrong) {
    std::fprintf(stderr, "torch_ext: %s; usage: torch_ext [--force-rebuild] [--timeout SECONDS] CACHE SOURCE\n", wrong);
    return 2;
}

int main(int count, char **arguments) {
    TorchExtension extension;
    extension.flags = EXTENSION_FLAGS;
    extension.torch_version = TORCH_VERSION;
    extension.timeout_ms = JITLOCK_TIMEOUT_DEFAULT;
    extension.watch = [](const std::string &event) { std::printf("%s\n", event.c_str()); };
    std::vector<std::string> words;
    for (int i = 1; i < count; i++) {
        if (!std::strcmp(arguments[i], "--force-rebuild")) {
            extension.force_rebuild = true;
        } else if (!std::strcmp(arguments[i], "--timeout") && i + 1 < count) {
            char *end;
            double seconds = std::strtod(arguments[++i], &end);
            if (*end || !(seconds >= 0 && seconds < 1e9))
                return usage("the timeout is no number of seconds");
            extension.timeout_ms = static_cast<std::int64_t>(seconds * 1000);
        } else {
            words.push_back(arguments[i]);
        }
    }
    if (words.size() != 2)
        return usage("a cache and a source are wanted");
    extension.cache = words[0];
    extension.source = words[1];

    Kernel *run = fallback;
    try {
        run = reinterpret_cast<Kernel *>(dlsym(extension.load(), "run"));
        if (!run)
            throw ExtensionUnavailable("the extension has no function `run`");
    } catch (const ExtensionUnavailable &error) {
        std::printf("taking the fallback: %s\n", error.what());
        run = fallback;
    }
    std::vector<float> x(1000), y(x.size()), right(x.size());
    for (std::size_t i = 0; i < x.size(); i++)
        x[i] = (static_cast<float>(i) - 500) / 50;
    run(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
    fallback(x.data(), right.data(), static_cast<std::int64_t>(x.size()));
    float worst = 0;
    for (std::size_t i = 0; i < x.size(); i++)
        worst = std::max(worst, std::abs(y[i] - right[i]));
    std::printf("%s: largest difference %g\n", run == fallback ? "by the fallback" : "by torch", static_cast<double>(worst));
    return worst < 1e-5f ? 0 : 1;
}
