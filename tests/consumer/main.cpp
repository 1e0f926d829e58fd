// A program of somebody else's, built against an installed jitlock.

#include <jitlock.hpp>

#include <cstdio>

int main(int, char **arguments) {
    bool built = false;
    jitlock::build_once(arguments[1], std::chrono::seconds(10), [&] { return built; }, [&] { built = true; });
    std::printf("%s %d\n", jitlock_version(), built);
    return built ? 0 : 1;
}
