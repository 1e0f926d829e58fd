/*
 * jitlock for C++11 and later: a lock that is given back when its scope ends.
 *
 *     jitlock::lock held("/shared/cache/my_kernel", std::chrono::minutes(10)); // or throws jitlock::error
 *     if (held.previous_owner_died())
 *         held.clear();
 *     ...
 *
 * Or, looking without the lock first, and building only if nobody else has:
 *
 *     jitlock::build_once(directory, std::chrono::minutes(10), [&] { return exists(library); }, [&] { compile(library); });
 *
 * Every function that throws has one that takes a std::error_code instead; without exceptions (-fno-exceptions) only those
 * are there. Run-time type information is not needed. The C header, jitlock.h, says everything about each call.
 */

#ifndef JITLOCK_HPP
#define JITLOCK_HPP

#include "jitlock.h"

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

#if defined(__cpp_exceptions) || defined(__EXCEPTIONS) || defined(_CPPUNWIND)
#define JITLOCK_EXCEPTIONS 1
#endif

#if __cplusplus >= 201703L
#define JITLOCK_CXX_NODISCARD [[nodiscard]]
#else
#define JITLOCK_CXX_NODISCARD
#endif

namespace jitlock {

/* The codes as std::error_code: `if (code == jitlock::errc::timeout)`, or, for what it means to any library,
 * `if (code == std::errc::timed_out)`. */
enum class errc : int {
    invalid_argument = JITLOCK_ERR_INVALID_ARGUMENT,
    invalid_handle = JITLOCK_ERR_INVALID_HANDLE,
    timeout = JITLOCK_ERR_TIMEOUT,
    deadlock = JITLOCK_ERR_DEADLOCK,
    interrupted = JITLOCK_ERR_INTERRUPTED,
    cancelled = JITLOCK_ERR_CANCELLED,
    permission = JITLOCK_ERR_PERMISSION,
    not_directory = JITLOCK_ERR_NOT_DIRECTORY,
    unsupported = JITLOCK_ERR_UNSUPPORTED,
    limit = JITLOCK_ERR_LIMIT,
    not_owner = JITLOCK_ERR_NOT_OWNER,
    lost = JITLOCK_ERR_LOST,
    io = JITLOCK_ERR_IO,
    internal = JITLOCK_ERR_INTERNAL
};

namespace detail {

class category final : public std::error_category {
public:
    const char *name() const noexcept override { return "jitlock"; }

    std::string message(int code) const override { return jitlock_strerror(code); }

    std::error_condition default_error_condition(int code) const noexcept override {
        switch (static_cast<errc>(code)) {
        case errc::invalid_argument:
        case errc::invalid_handle:
            return std::errc::invalid_argument;
        case errc::timeout:
            return std::errc::timed_out;
        case errc::deadlock:
            return std::errc::resource_deadlock_would_occur;
        case errc::interrupted:
            return std::errc::interrupted;
        case errc::cancelled:
            return std::errc::operation_canceled;
        case errc::permission:
            return std::errc::permission_denied;
        case errc::not_directory:
            return std::errc::not_a_directory;
        case errc::unsupported:
            return std::errc::not_supported;
        case errc::limit:
            return std::errc::resource_unavailable_try_again;
        case errc::not_owner:
            return std::errc::operation_not_permitted;
        case errc::lost:
            return std::errc::owner_dead;
        case errc::io:
            return std::errc::io_error;
        case errc::internal:
            break;
        }
        return std::error_condition(code, *this);
    }
};

} // namespace detail

inline const std::error_category &error_category() noexcept {
    static const detail::category instance;
    return instance;
}

inline std::error_code make_error_code(errc code) noexcept {
    return std::error_code(static_cast<int>(code), error_category());
}

namespace detail {

inline std::error_code code_of(jitlock_status_t status) noexcept {
    return status == JITLOCK_OK ? std::error_code() : std::error_code(static_cast<int>(status), error_category());
}

} // namespace detail

/* This thread's last failure in full: the path, what the system said, and for a timeout who holds the lock. */
inline std::string last_error_message() { return jitlock_last_error_message(); }

#ifdef JITLOCK_EXCEPTIONS
/* what() is the code's text with last_error_message(). */
class error : public std::system_error {
public:
    explicit error(std::error_code code) : std::system_error(code, jitlock_last_error_message()) {}
};
#endif

namespace detail {

inline void check(std::error_code code) {
#ifdef JITLOCK_EXCEPTIONS
    if (code)
        throw error(code);
#else
    (void)code;
#endif
}

} // namespace detail

/* How long to wait: any std::chrono duration (fractions of a millisecond count as a whole one, negatives as 0), or one of
 * the two below. */
class timeout {
public:
    template <class Rep, class Period>
    timeout(std::chrono::duration<Rep, Period> duration) noexcept : milliseconds_(convert(duration)) {}

    static timeout forever() noexcept { return timeout(JITLOCK_WAIT_FOREVER); }
    /* The environment's JITLOCK_TIMEOUT, else 600 s. */
    static timeout by_default() noexcept { return timeout(JITLOCK_TIMEOUT_DEFAULT); }
    /* Of a kernel whose compilation once took so long: JITLOCK_TIMEOUT, else 600 s or five times as long. */
    static timeout for_baseline(std::chrono::duration<double> compile) noexcept {
        return timeout(jitlock_timeout_ms(compile.count()));
    }

    std::int64_t milliseconds() const noexcept { return milliseconds_; }

private:
    explicit timeout(std::int64_t milliseconds) noexcept : milliseconds_(milliseconds) {}

    template <class Rep, class Period>
    static std::int64_t convert(std::chrono::duration<Rep, Period> duration) noexcept {
        using wide = std::chrono::duration<long double, std::milli>;
        const long double exact = wide(duration).count();
        if (!(exact > 0))
            return 0;
        if (exact >= static_cast<long double>(std::numeric_limits<std::int64_t>::max()))
            return std::numeric_limits<std::int64_t>::max();
        const std::int64_t whole = static_cast<std::int64_t>(exact);
        return whole + (static_cast<long double>(whole) < exact ? 1 : 0);
    }

    std::int64_t milliseconds_;
};

/* The lock of a cache directory, or none. It is given back at the end of its scope; release() does it earlier and tells
 * whether the lock was lost. Moves; any thread may give it back; two threads may not use one object at a time. */
class JITLOCK_CXX_NODISCARD lock {
public:
    lock() noexcept = default;

    /* Takes it, with JITLOCK_SHARED and so on as flags. */
    explicit lock(const std::string &cache_dir, timeout limit, std::uint32_t flags, std::error_code &code) noexcept {
        jitlock_options_t options = JITLOCK_OPTIONS_INIT;
        options.timeout_ms = limit.milliseconds();
        options.flags = flags;
        acquire(cache_dir, options, code);
    }
    /* The same with everything that jitlock_acquire_with() knows. */
    explicit lock(const std::string &cache_dir, const jitlock_options_t &options, std::error_code &code) noexcept {
        acquire(cache_dir, options, code);
    }
#ifdef JITLOCK_EXCEPTIONS
    explicit lock(const std::string &cache_dir, timeout limit = timeout::by_default(), std::uint32_t flags = 0) {
        std::error_code code;
        *this = lock(cache_dir, limit, flags, code);
        detail::check(code);
    }
    lock(const std::string &cache_dir, const jitlock_options_t &options) {
        std::error_code code;
        acquire(cache_dir, options, code);
        detail::check(code);
    }
#endif

    lock(lock &&other) noexcept : handle_(other.handle_) { other.handle_ = JITLOCK_NONE; }
    lock &operator=(lock &&other) noexcept {
        if (this != &other) {
            give_back();
            std::swap(handle_, other.handle_);
        }
        return *this;
    }
    lock(const lock &) = delete;
    lock &operator=(const lock &) = delete;
    ~lock() { give_back(); }

    /* Whether this object holds the lock. */
    bool owns_lock() const noexcept { return handle_ != JITLOCK_NONE; }
    explicit operator bool() const noexcept { return owns_lock(); }
    jitlock_t native_handle() const noexcept { return handle_; }

    /* errc::lost: released, but the lock file was deleted meanwhile: throw away what was built. */
    void release(std::error_code &code) noexcept {
        const jitlock_t handle = handle_;
        handle_ = JITLOCK_NONE;
        code = detail::code_of(jitlock_release(handle));
    }
    /* Deletes the cache, and goes on holding the lock. */
    void clear(std::error_code &code) noexcept { code = detail::code_of(jitlock_clear_held(handle_)); }
    /* Torch's own lock in a build directory; see jitlock_remove_stale_baton(). */
    void remove_stale_baton(const std::string &build_dir, timeout limit, std::error_code &code) noexcept {
        code = detail::code_of(jitlock_remove_stale_baton(handle_, build_dir.c_str(), limit.milliseconds()));
    }
    jitlock_info_t info(std::error_code &code) const noexcept {
        jitlock_info_t known = jitlock_info_t();
        known.struct_size = sizeof known;
        code = detail::code_of(jitlock_info(handle_, &known));
        return known;
    }
#ifdef JITLOCK_EXCEPTIONS
    void release() {
        std::error_code code;
        release(code);
        detail::check(code);
    }
    void clear() {
        std::error_code code;
        clear(code);
        detail::check(code);
    }
    void remove_stale_baton(const std::string &build_dir, timeout limit = timeout::by_default()) {
        std::error_code code;
        remove_stale_baton(build_dir, limit, code);
        detail::check(code);
    }
    jitlock_info_t info() const {
        std::error_code code;
        const jitlock_info_t known = info(code);
        detail::check(code);
        return known;
    }
    /* Whether the last owner ended without releasing, so that the cache may be half built. */
    bool previous_owner_died() const { return info().previous_owner == JITLOCK_PREVIOUS_DIED; }
#endif

private:
    void acquire(const std::string &cache_dir, const jitlock_options_t &options, std::error_code &code) noexcept {
        code = detail::code_of(jitlock_acquire_with(cache_dir.c_str(), &options, &handle_));
    }

    void give_back() noexcept {
        if (owns_lock()) {
            const jitlock_status_t ignored = jitlock_release(handle_);
            (void)ignored;
            handle_ = JITLOCK_NONE;
        }
    }

    jitlock_t handle_ = JITLOCK_NONE;
};

/* Takes the lock if nobody else has it: else answers one that owns nothing, and errc::timeout. */
JITLOCK_CXX_NODISCARD inline lock try_acquire(const std::string &cache_dir, std::error_code &code) noexcept {
    return lock(cache_dir, std::chrono::milliseconds(0), 0, code);
}

inline void clear_cache(const std::string &cache_dir, timeout limit, std::error_code &code) noexcept {
    code = detail::code_of(jitlock_clear_cache(cache_dir.c_str(), limit.milliseconds()));
}

/* Who holds the lock, without taking it. */
inline jitlock_owner_t query(const std::string &cache_dir, std::error_code &code) noexcept {
    jitlock_owner_t owner = jitlock_owner_t();
    owner.struct_size = sizeof owner;
    code = detail::code_of(jitlock_query(cache_dir.c_str(), &owner));
    return owner;
}

#ifdef JITLOCK_EXCEPTIONS
inline void clear_cache(const std::string &cache_dir, timeout limit = timeout::by_default()) {
    std::error_code code;
    clear_cache(cache_dir, limit, code);
    detail::check(code);
}

inline jitlock_owner_t query(const std::string &cache_dir) {
    std::error_code code;
    const jitlock_owner_t owner = query(cache_dir, code);
    detail::check(code);
    return owner;
}

/* Looks whether it is built, and builds it under the lock if it is not; answers whether this call has built. What a dead
 * builder left is deleted first, so `is_ready` must not count on anything in `cache_dir` from before. Throws jitlock::error,
 * errc::lost among others, and whatever the two functions throw: then nothing is held. */
template <class IsReady, class Build>
bool build_once(const std::string &cache_dir, timeout limit, IsReady &&is_ready, Build &&build) {
    if (is_ready())
        return false;
    lock held(cache_dir, limit, JITLOCK_CLEAR_IF_OWNER_DIED);
    const bool builds = !is_ready();
    if (builds)
        build();
    held.release();
    return builds;
}
#endif

} // namespace jitlock

namespace std {
template <> struct is_error_code_enum<jitlock::errc> : true_type {};
} // namespace std

#endif
