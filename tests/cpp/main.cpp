// What jitlock.hpp promises, each by one function. Takes a path for a cache; status 0 if all of it holds.

#include <jitlock.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

std::error_code code_of_other_unit();

#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                       \
            std::exit(1);                                                                                              \
        }                                                                                                              \
    } while (0)

using std::chrono::milliseconds;

static std::string cache;

static_assert(std::is_nothrow_move_constructible<jitlock::lock>::value, "moves");
static_assert(std::is_nothrow_move_assignable<jitlock::lock>::value, "moves");
static_assert(!std::is_copy_constructible<jitlock::lock>::value, "does not copy");
static_assert(std::is_nothrow_default_constructible<jitlock::lock>::value, "is none at first");
static_assert(std::is_nothrow_destructible<jitlock::lock>::value, "ends quietly");
static_assert(!std::is_convertible<std::string, jitlock::lock>::value, "is not taken by accident");

static void a_scope_holds_it_and_gives_it_back() {
    std::error_code code;
    {
        jitlock::lock held(cache, milliseconds(0), 0, code);
        REQUIRE(!code && held && held.owns_lock() && held.native_handle() != JITLOCK_NONE);
        REQUIRE(jitlock::query(cache, code).pid == getpid() && !code);
        std::thread([] {
            std::error_code busy;
            REQUIRE(!jitlock::try_acquire(cache, busy) && busy == jitlock::errc::timeout);
            REQUIRE(busy == std::errc::timed_out);
        }).join();
    }
    REQUIRE(jitlock::try_acquire(cache, code) && !code);
}

static void it_moves_and_leaves_nothing_behind() {
    std::error_code code;
    jitlock::lock first(cache, milliseconds(0), 0, code);
    jitlock::lock second(std::move(first));
    REQUIRE(!first && second);
    first = std::move(second);
    REQUIRE(first && !second);
    jitlock::lock &alias = first;
    first = std::move(alias);
    REQUIRE(first);
    first = jitlock::lock();
    REQUIRE(!first && jitlock::try_acquire(cache, code));
}

static void any_thread_gives_it_back() {
    std::error_code code;
    jitlock::lock held(cache, milliseconds(0), 0, code);
    std::thread([&] {
        std::error_code released;
        held.release(released);
        REQUIRE(!released);
    }).join();
    REQUIRE(jitlock::try_acquire(cache, code));
}

static void codes_have_names_texts_and_general_meanings() {
    std::error_code code;
    jitlock::lock held(cache, milliseconds(0), 0, code);
    jitlock::lock again(cache, jitlock::timeout::forever(), 0, code);
    REQUIRE(!again && code == jitlock::errc::deadlock && code == std::errc::resource_deadlock_would_occur);
    REQUIRE(std::string(code.category().name()) == "jitlock" && code.message() == jitlock_strerror(code.value()));
    REQUIRE(jitlock::last_error_message().find(cache) != std::string::npos);
    REQUIRE(code_of_other_unit() == jitlock::errc::timeout);
    REQUIRE(&code_of_other_unit().category() == &code.category());
    jitlock::lock none;
    none.release(code);
    REQUIRE(code == jitlock::errc::invalid_handle);
}

static void durations_are_rounded_up_and_never_overflow() {
    using jitlock::timeout;
    REQUIRE(timeout(milliseconds(7)).milliseconds() == 7);
    REQUIRE(timeout(std::chrono::microseconds(1)).milliseconds() == 1);
    REQUIRE(timeout(std::chrono::duration<double>(0.0015)).milliseconds() == 2);
    REQUIRE(timeout(std::chrono::seconds(-5)).milliseconds() == 0);
    REQUIRE(timeout(std::chrono::hours::max()).milliseconds() == std::numeric_limits<std::int64_t>::max());
    REQUIRE(timeout::forever().milliseconds() == JITLOCK_WAIT_FOREVER);
    REQUIRE(timeout::by_default().milliseconds() == JITLOCK_TIMEOUT_DEFAULT);
}

static void a_deleted_lock_file_is_told_at_the_release() {
    std::error_code code;
    jitlock::lock held(cache, milliseconds(0), 0, code);
    REQUIRE(unlink((cache + ".lock").c_str()) == 0);
    held.release(code);
    REQUIRE(code == jitlock::errc::lost && !held);
}

static void it_clears() {
    std::error_code code;
    REQUIRE(mkdir(cache.c_str(), 0777) == 0);
    jitlock::lock held(cache, milliseconds(0), 0, code);
    REQUIRE(held.info(code).previous_owner == JITLOCK_PREVIOUS_CLEAN && !code);
    held.remove_stale_baton(cache, milliseconds(0), code);
    REQUIRE(!code);
    held.clear(code);
    REQUIRE(!code && access(cache.c_str(), F_OK) != 0);
    held.release(code);
    jitlock::clear_cache(cache, milliseconds(0), code);
    REQUIRE(!code);
}

#ifdef JITLOCK_EXCEPTIONS
static void failures_are_thrown_with_their_details() {
    jitlock::lock held(cache);
    REQUIRE(!held.previous_owner_died());
    try {
        jitlock::lock again(cache, milliseconds(0));
        REQUIRE(false);
    } catch (const jitlock::error &error) {
        REQUIRE(error.code() == jitlock::errc::deadlock);
        REQUIRE(std::string(error.what()).find(cache) != std::string::npos);
    }
    held.release();
    try {
        held.release();
        REQUIRE(false);
    } catch (const std::system_error &error) {
        REQUIRE(error.code() == jitlock::errc::invalid_handle);
    }
}

static void one_of_many_threads_builds_once() {
    std::atomic<bool> ready(false);
    std::atomic<int> builds(0), built(0);
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++)
        threads.emplace_back([&] {
            built += jitlock::build_once(
                cache, std::chrono::seconds(20), [&] { return ready.load(); },
                [&] {
                    builds++;
                    ready = true;
                });
        });
    for (std::thread &thread : threads)
        thread.join();
    REQUIRE(builds == 1 && built == 1);
    try {
        jitlock::build_once(cache, milliseconds(0), [] { return false; }, [] { throw std::string("no compiler"); });
        REQUIRE(false);
    } catch (const std::string &) {
        std::error_code code;
        REQUIRE(jitlock::try_acquire(cache, code));
    }
}
#endif

int main(int, char **arguments) {
    cache = arguments[1];
    a_scope_holds_it_and_gives_it_back();
    it_moves_and_leaves_nothing_behind();
    any_thread_gives_it_back();
    codes_have_names_texts_and_general_meanings();
    durations_are_rounded_up_and_never_overflow();
    a_deleted_lock_file_is_told_at_the_release();
    it_clears();
#ifdef JITLOCK_EXCEPTIONS
    failures_are_thrown_with_their_details();
    one_of_many_threads_builds_once();
#endif
    return 0;
}
