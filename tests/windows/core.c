/* The core promises on Windows, with real processes:
 *
 *     core DIRECTORY          every scenario, in a new directory; "ok" and its name for each; 1 if one failed
 *     core hold CACHE FLAGS   acquires, says "held", and releases at the first line of its input
 *     core count CACHE FILE   adds to the number in the file under the lock, many times
 */

#include <fcntl.h>
#include <io.h>
#include <share.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/locking.h>
#include <sys/stat.h>
#include <wchar.h>
#include <windows.h>

#include "jitlock.h"

enum { PATIENCE = 20000, ROUNDS = 100, PROCESSES = 4, MOST = 32768 };

static wchar_t directory[MOST];
static const char *scenario;
static int failures;

/* A scenario is over at its first failure. */
#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            printf("FAILED %s, line %d: %s (\"%s\", error %lu)\n", scenario, __LINE__, #condition, \
                   jitlock_last_error_message(), GetLastError()); \
            failures++; \
            return; \
        } \
    } while (0)

/* UTF-8 for the library; one of eight buffers in turn. */
static const char *utf8(const wchar_t *text) {
    static char buffers[8][4 * MOST];
    static int turn;
    char *buffer = buffers[turn++ % 8];
    WideCharToMultiByte(CP_UTF8, 0, text, -1, buffer, 4 * MOST, NULL, NULL);
    return buffer;
}

/* A path in the directory of this run; one of eight buffers in turn. */
static const wchar_t *at(const wchar_t *name) {
    static wchar_t buffers[8][MOST];
    static int turn;
    wchar_t *buffer = buffers[turn++ % 8];
    swprintf(buffer, MOST, L"%ls\\%ls", directory, name);
    return buffer;
}

static int is_there(const wchar_t *path) { return GetFileAttributesW(path) != INVALID_FILE_ATTRIBUTES; }

static HANDLE open_file(const wchar_t *path, DWORD access, DWORD share, DWORD how) {
    return CreateFileW(path, access, share, NULL, how, FILE_ATTRIBUTE_NORMAL, NULL);
}

static int make_file(const wchar_t *path) {
    HANDLE file = open_file(path, GENERIC_WRITE, 0, CREATE_NEW);
    return file != INVALID_HANDLE_VALUE && CloseHandle(file);
}

static jitlock_status_t acquire_with(const wchar_t *cache, int64_t timeout, uint32_t flags, const wchar_t *lock_path,
                                     jitlock_t *lock) {
    jitlock_options_t options = JITLOCK_OPTIONS_INIT;
    options.timeout_ms = timeout;
    options.flags = flags;
    options.lock_path = lock_path ? utf8(lock_path) : NULL;
    return jitlock_acquire_with(utf8(cache), &options, lock);
}

static jitlock_status_t acquire(const wchar_t *cache, int64_t timeout, jitlock_t *lock) {
    return jitlock_acquire(utf8(cache), timeout, lock);
}

static jitlock_info_t info_of(jitlock_t lock) {
    jitlock_info_t info = {.struct_size = sizeof info};
    if (jitlock_info(lock, &info) != JITLOCK_OK)
        info.previous_owner = -1;
    return info;
}

/* Another process with this program in a role, and pipes to it. */
typedef struct {
    PROCESS_INFORMATION process;
    HANDLE input, output;
} child_t;

static child_t start(const wchar_t *role, const wchar_t *cache, const wchar_t *word) {
    child_t child = {0};
    HANDLE input, output;
    SECURITY_ATTRIBUTES inherited = {sizeof inherited, NULL, TRUE};
    CreatePipe(&input, &child.input, &inherited, 0);
    CreatePipe(&child.output, &output, &inherited, 0);
    SetHandleInformation(child.input, HANDLE_FLAG_INHERIT, 0);
    SetHandleInformation(child.output, HANDLE_FLAG_INHERIT, 0);
    STARTUPINFOW with = {.cb = sizeof with, .dwFlags = STARTF_USESTDHANDLES};
    with.hStdInput = input;
    with.hStdOutput = output;
    with.hStdError = GetStdHandle(STD_ERROR_HANDLE);
    static wchar_t program[MAX_PATH], line[2 * MOST];
    GetModuleFileNameW(NULL, program, MAX_PATH);
    swprintf(line, 2 * MOST, L"\"%ls\" %ls \"%ls\" \"%ls\"", program, role, cache, word);
    CreateProcessW(program, line, NULL, NULL, TRUE, 0, NULL, NULL, &with, &child.process);
    CloseHandle(input);
    CloseHandle(output);
    return child;
}

/* Until it says that it holds the lock. */
static int holds(child_t *child) {
    char answer[8] = {0};
    DWORD length;
    return ReadFile(child->output, answer, 4, &length, NULL) && length == 4 && !memcmp(answer, "held", 4);
}

static void let_go(child_t *child) {
    DWORD length;
    WriteFile(child->input, "\n", 1, &length, NULL);
}

static DWORD end(child_t *child) {
    DWORD code = 99;
    WaitForSingleObject(child->process.hProcess, PATIENCE);
    GetExitCodeProcess(child->process.hProcess, &code);
    CloseHandle(child->process.hProcess);
    CloseHandle(child->process.hThread);
    CloseHandle(child->input);
    CloseHandle(child->output);
    return code;
}

static void a_holder_excludes_others_and_is_named(void) {
    jitlock_t lock;
    child_t child = start(L"hold", at(L"excluded"), L"0");
    CHECK(holds(&child));
    CHECK(acquire(at(L"excluded"), 0, &lock) == JITLOCK_ERR_TIMEOUT);
    CHECK(acquire(at(L"excluded"), 50, &lock) == JITLOCK_ERR_TIMEOUT);
    char pid[24];
    snprintf(pid, sizeof pid, "%lu", child.process.dwProcessId);
    CHECK(strstr(jitlock_last_error_message(), pid));
    jitlock_owner_t owner = {.struct_size = sizeof owner};
    CHECK(jitlock_query(utf8(at(L"excluded")), &owner) == JITLOCK_OK);
    CHECK(owner.state == JITLOCK_OWNER_NOT_VISIBLE && owner.record_pid == (int64_t)child.process.dwProcessId);
    CHECK(strstr(owner.command, "core.exe") && owner.host[0]);
    let_go(&child);
    CHECK(acquire(at(L"excluded"), PATIENCE, &lock) == JITLOCK_OK);
    CHECK(info_of(lock).previous_owner == JITLOCK_PREVIOUS_CLEAN);
    CHECK(end(&child) == 0);
    CHECK(jitlock_release(lock) == JITLOCK_OK);
    CHECK(jitlock_release(lock) == JITLOCK_ERR_INVALID_HANDLE);
}

static DWORD WINAPI let_go_soon(void *child) {
    Sleep(50);
    let_go(child);
    return 0;
}

static void a_wait_ends_with_the_release(void) {
    jitlock_t lock;
    child_t child = start(L"hold", at(L"waited"), L"0");
    CHECK(holds(&child));
    CloseHandle(CreateThread(NULL, 0, let_go_soon, &child, 0, NULL));
    CHECK(acquire(at(L"waited"), JITLOCK_WAIT_FOREVER, &lock) == JITLOCK_OK);
    CHECK(end(&child) == 0);
    CHECK(jitlock_release(lock) == JITLOCK_OK);
}

static void a_killed_holder_leaves_no_lock(void) {
    jitlock_t lock;
    child_t child = start(L"hold", at(L"killed"), L"0");
    CHECK(holds(&child));
    TerminateProcess(child.process.hProcess, 9);
    CHECK(acquire(at(L"killed"), PATIENCE, &lock) == JITLOCK_OK);
    CHECK(info_of(lock).previous_owner == JITLOCK_PREVIOUS_DIED && info_of(lock).recorded);
    CHECK(end(&child) == 9);
    CHECK(jitlock_release(lock) == JITLOCK_OK);
    CHECK(acquire(at(L"killed"), 0, &lock) == JITLOCK_OK);
    CHECK(info_of(lock).previous_owner == JITLOCK_PREVIOUS_CLEAN);
    CHECK(jitlock_release(lock) == JITLOCK_OK);
}

static void readers_share(void) {
    jitlock_t reader, writer;
    child_t child = start(L"hold", at(L"read"), L"1");
    CHECK(holds(&child));
    CHECK(acquire_with(at(L"read"), 0, JITLOCK_SHARED, NULL, &reader) == JITLOCK_OK);
    CHECK(jitlock_release(reader) == JITLOCK_OK);
    CHECK(acquire(at(L"read"), 0, &writer) == JITLOCK_ERR_TIMEOUT);
    let_go(&child);
    CHECK(end(&child) == 0);
    CHECK(acquire(at(L"read"), 0, &writer) == JITLOCK_OK);
    CHECK(acquire_with(at(L"read"), 0, JITLOCK_SHARED, NULL, &reader) == JITLOCK_ERR_DEADLOCK);
    CHECK(jitlock_release(writer) == JITLOCK_OK);
}

static DWORD WINAPI hold_for_a_moment(void *cache) {
    jitlock_t lock;
    if (acquire(cache, PATIENCE, &lock) != JITLOCK_OK)
        return 1;
    Sleep(1);
    return jitlock_release(lock) != JITLOCK_OK;
}

static void threads_take_turns(void) {
    static wchar_t cache[MOST];
    wcscpy(cache, at(L"threads"));
    HANDLE threads[8];
    for (int i = 0; i < 8; i++)
        threads[i] = CreateThread(NULL, 0, hold_for_a_moment, cache, 0, NULL);
    for (int i = 0; i < 8; i++) {
        DWORD code = 99;
        WaitForSingleObject(threads[i], PATIENCE);
        GetExitCodeThread(threads[i], &code);
        CloseHandle(threads[i]);
        CHECK(code == 0);
    }
}

static void processes_lose_no_update(void) {
    child_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++)
        children[i] = start(L"count", at(L"counted"), at(L"counter"));
    for (int i = 0; i < PROCESSES; i++)
        CHECK(end(&children[i]) == 0);
    long number = 0;
    FILE *file = _wfopen(at(L"counter"), L"r");
    CHECK(file && fscanf(file, "%ld", &number) == 1);
    fclose(file);
    CHECK(number == PROCESSES * ROUNDS);
}

static void every_spelling_of_a_cache_is_one_lock(void) {
    jitlock_t lock, other;
    CHECK(CreateDirectoryW(at(L"A cache with a long name"), NULL));
    CHECK(acquire(at(L"A cache with a long name"), 0, &lock) == JITLOCK_OK);
    CHECK(is_there(at(L"A cache with a long name.lock")));
    const wchar_t *spellings[] = {L"A cache with a long name\\", L".\\x\\..\\A cache with a long name/",
                                  L"a CACHE with A long name", L"A cache with a long name\\."};
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
        CHECK(acquire(at(spellings[i]), 0, &other) == JITLOCK_ERR_DEADLOCK);
    wchar_t alias[MOST];
    CHECK(GetShortPathNameW(at(L"A cache with a long name"), alias, MOST));
    CHECK(acquire(alias, 0, &other) == JITLOCK_ERR_DEADLOCK);
    wchar_t before[MOST];
    CHECK(GetCurrentDirectoryW(MOST, before) && SetCurrentDirectoryW(directory));
    jitlock_status_t relative = acquire(L"A cache with a long name", 0, &other);
    SetCurrentDirectoryW(before);
    CHECK(relative == JITLOCK_ERR_DEADLOCK);
    CHECK(jitlock_release(lock) == JITLOCK_OK);
}

static void paths_are_utf_8(void) {
    jitlock_t lock;
    const wchar_t *cache = at(L"ядра-核-\U0001f512");
    CHECK(CreateDirectoryW(cache, NULL));
    CHECK(acquire(cache, 0, &lock) == JITLOCK_OK);
    CHECK(is_there(at(L"ядра-核-\U0001f512.lock")));
    CHECK(jitlock_clear_held(lock) == JITLOCK_OK && !is_there(cache));
    CHECK(jitlock_release(lock) == JITLOCK_OK);
    CHECK(jitlock_acquire("C:\\not\xff utf-8", 0, &lock) == JITLOCK_ERR_INVALID_ARGUMENT);
    CHECK(strstr(jitlock_last_error_message(), "UTF-8"));
}

static void paths_may_be_longer_than_max_path(void) {
    jitlock_t lock;
    wchar_t part[101], path[MOST], verbatim[MOST];
    wmemset(part, L'd', 100);
    part[100] = 0;
    wcscpy(path, directory);
    for (int i = 0; i < 4; i++) {
        swprintf(path + wcslen(path), MOST - wcslen(path), L"\\%ls", part);
        swprintf(verbatim, MOST, L"\\\\?\\%ls", path);
        CHECK(CreateDirectoryW(verbatim, NULL));
    }
    CHECK(acquire(path, 0, &lock) == JITLOCK_OK);
    wcscat(verbatim, L".lock");
    CHECK(is_there(verbatim));
    verbatim[wcslen(verbatim) - wcslen(L".lock")] = 0;
    CHECK(jitlock_clear_held(lock) == JITLOCK_OK && !is_there(verbatim));
    CHECK(jitlock_release(lock) == JITLOCK_OK);
    wchar_t name[300];
    wmemset(name, L'n', 299);
    name[299] = 0;
    CHECK(acquire(at(name), 0, &lock) == JITLOCK_ERR_INVALID_ARGUMENT);
    CHECK(strstr(jitlock_last_error_message(), "too long"));
}

static void missing_parents_are_made(void) {
    jitlock_t lock;
    CHECK(acquire(at(L"not\\there\\yet"), 0, &lock) == JITLOCK_OK);
    CHECK(is_there(at(L"not\\there\\yet.lock")) && !is_there(at(L"not\\there\\yet")));
    CHECK(jitlock_release(lock) == JITLOCK_OK);
}

static void only_a_file_can_be_a_lock_file(void) {
    jitlock_t lock;
    CHECK(CreateDirectoryW(at(L"squatted.lock"), NULL));
    CHECK(acquire(at(L"squatted"), 0, &lock) == JITLOCK_ERR_PERMISSION);
    CHECK(acquire_with(at(L"device"), 0, 0, L"NUL", &lock) == JITLOCK_ERR_PERMISSION);
    CHECK(acquire_with(at(L"elsewhere"), 0, 0, at(L"own.lock"), &lock) == JITLOCK_OK);
    CHECK(is_there(at(L"own.lock")) && !is_there(at(L"elsewhere.lock")));
    CHECK(jitlock_release(lock) == JITLOCK_OK);
}

static void a_read_only_lock_file_is_locked_all_the_same(void) {
    jitlock_t lock, other;
    CHECK(make_file(at(L"read-only.lock")));
    CHECK(SetFileAttributesW(at(L"read-only.lock"), FILE_ATTRIBUTE_READONLY));
    /* Wine lets root write to it all the same. */
    HANDLE writer = open_file(at(L"read-only.lock"), GENERIC_WRITE, FILE_SHARE_READ, OPEN_EXISTING);
    CHECK(acquire(at(L"read-only"), 0, &lock) == (writer == INVALID_HANDLE_VALUE ? JITLOCK_OK : JITLOCK_ERR_TIMEOUT));
    if (writer != INVALID_HANDLE_VALUE) {
        CHECK(CloseHandle(writer));
        CHECK(acquire(at(L"read-only"), 0, &lock) == JITLOCK_OK);
    } else
        CHECK(!info_of(lock).recorded);
    CHECK(acquire(at(L"read-only"), 0, &other) == JITLOCK_ERR_DEADLOCK);
    CHECK(jitlock_release(lock) == JITLOCK_OK);
    CHECK(SetFileAttributesW(at(L"read-only.lock"), FILE_ATTRIBUTE_NORMAL));
}

static void a_lock_file_in_use_cannot_be_deleted(void) {
    jitlock_t lock;
    CHECK(acquire(at(L"kept"), 0, &lock) == JITLOCK_OK);
    CHECK(!DeleteFileW(at(L"kept.lock")) && GetLastError() == ERROR_SHARING_VIOLATION);
    CHECK(!MoveFileW(at(L"kept.lock"), at(L"moved.lock")));
    CHECK(info_of(lock).lost == 0);
    CHECK(jitlock_release(lock) == JITLOCK_OK);
    CHECK(DeleteFileW(at(L"kept.lock")));
    CHECK(acquire(at(L"kept"), 0, &lock) == JITLOCK_OK);
    CHECK(jitlock_release(lock) == JITLOCK_OK);
}

/* msvcrt.locking(file, LK_NBLCK, 1), on which Python's locks are built. */
static void a_lock_of_pythons_excludes_and_is_excluded(void) {
    jitlock_t lock;
    int file = _wsopen(at(L"shared.lock"), _O_CREAT | _O_RDWR, _SH_DENYNO, _S_IREAD | _S_IWRITE);
    CHECK(file >= 0 && _locking(file, _LK_NBLCK, 1) == 0);
    CHECK(acquire(at(L"shared"), 0, &lock) == JITLOCK_ERR_TIMEOUT);
    CHECK(_lseek(file, 0, SEEK_SET) == 0 && _locking(file, _LK_UNLCK, 1) == 0);
    CHECK(acquire(at(L"shared"), 0, &lock) == JITLOCK_OK);
    CHECK(_locking(file, _LK_NBLCK, 1) != 0);
    CHECK(jitlock_release(lock) == JITLOCK_OK);
    CHECK(_locking(file, _LK_NBLCK, 1) == 0);
    CHECK(_close(file) == 0);
}

static DWORD WINAPI close_soon(void *file) {
    Sleep(50);
    return !CloseHandle(file);
}

static void a_file_that_is_not_shared_is_waited_for(void) {
    jitlock_t lock;
    HANDLE file = open_file(at(L"scanned.lock"), GENERIC_READ, 0, CREATE_NEW);
    CHECK(file != INVALID_HANDLE_VALUE);
    CHECK(acquire(at(L"scanned"), 0, &lock) == JITLOCK_ERR_TIMEOUT);
    CHECK(acquire(at(L"scanned"), 50, &lock) == JITLOCK_ERR_TIMEOUT);
    CloseHandle(CreateThread(NULL, 0, close_soon, file, 0, NULL));
    CHECK(acquire(at(L"scanned"), PATIENCE, &lock) == JITLOCK_OK);
    CHECK(jitlock_release(lock) == JITLOCK_OK);
}

static void a_pending_deletion_is_waited_for(void) {
    jitlock_t lock;
    HANDLE file = open_file(at(L"deleted.lock"), GENERIC_READ | DELETE,
                            FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, CREATE_NEW);
    FILE_DISPOSITION_INFO delete = {TRUE};
    CHECK(SetFileInformationByHandle(file, FileDispositionInfo, &delete, sizeof delete));
    CHECK(acquire(at(L"deleted"), 50, &lock) == JITLOCK_ERR_TIMEOUT);
    CloseHandle(CreateThread(NULL, 0, close_soon, file, 0, NULL));
    CHECK(acquire(at(L"deleted"), PATIENCE, &lock) == JITLOCK_OK);
    CHECK(is_there(at(L"deleted.lock")) && info_of(lock).lost == 0);
    CHECK(jitlock_release(lock) == JITLOCK_OK);
}

static void torchs_lock_goes_when_nobody_has_it_open(void) {
    jitlock_t lock;
    CHECK(CreateDirectoryW(at(L"torch"), NULL));
    CHECK(make_file(at(L"torch\\lock")));
    CHECK(acquire(at(L"torch"), 0, &lock) == JITLOCK_OK);
    CHECK(info_of(lock).baton == JITLOCK_BATON_REMOVED && !is_there(at(L"torch\\lock")));
    CHECK(jitlock_release(lock) == JITLOCK_OK);

    /* As Python's os.open does it. */
    int file = _wsopen(at(L"torch\\lock"), _O_CREAT | _O_EXCL | _O_RDWR, _SH_DENYNO, _S_IREAD | _S_IWRITE);
    CHECK(file >= 0);
    jitlock_owner_t owner = {.struct_size = sizeof owner};
    CHECK(jitlock_query(utf8(at(L"torch")), &owner) == JITLOCK_OK && owner.baton == JITLOCK_BATON_IN_USE);
    CHECK(acquire(at(L"torch"), 100, &lock) == JITLOCK_ERR_TIMEOUT && is_there(at(L"torch\\lock")));
    CloseHandle(CreateThread(NULL, 0, close_soon, (HANDLE)_get_osfhandle(file), 0, NULL));
    CHECK(acquire(at(L"torch"), PATIENCE, &lock) == JITLOCK_OK);
    CHECK(!is_there(at(L"torch\\lock")));
    CHECK(jitlock_release(lock) == JITLOCK_OK);
}

static void a_clear_takes_all_of_it(void) {
    CHECK(CreateDirectoryW(at(L"full"), NULL) && CreateDirectoryW(at(L"full\\deep"), NULL));
    CHECK(make_file(at(L"full\\a.dll")) && make_file(at(L"full\\deep\\b.obj")));
    CHECK(SetFileAttributesW(at(L"full\\deep\\b.obj"), FILE_ATTRIBUTE_READONLY | FILE_ATTRIBUTE_HIDDEN));
    CHECK(SetFileAttributesW(at(L"full\\deep"), FILE_ATTRIBUTE_READONLY));
    for (int i = 0; i < 500; i++) {
        wchar_t name[32];
        swprintf(name, 32, L"full\\a kernel, number %d", i);
        CHECK(make_file(at(name)));
    }
    CHECK(jitlock_clear_cache(utf8(at(L"full")), 0) == JITLOCK_OK);
    CHECK(!is_there(at(L"full")) && is_there(at(L"full.lock")));
    CHECK(jitlock_clear_cache(utf8(at(L"full")), 0) == JITLOCK_OK);
    WIN32_FIND_DATAW found;
    CHECK(FindFirstFileW(at(L".jitlock-trash-*"), &found) == INVALID_HANDLE_VALUE);

    CHECK(CreateDirectoryW(at(L"busy"), NULL));
    child_t child = start(L"hold", at(L"busy"), L"1");
    CHECK(holds(&child));
    CHECK(jitlock_clear_cache(utf8(at(L"busy")), 0) == JITLOCK_ERR_TIMEOUT && is_there(at(L"busy")));
    let_go(&child);
    CHECK(end(&child) == 0);
    CHECK(jitlock_clear_cache(utf8(at(L"busy")), 0) == JITLOCK_OK && !is_there(at(L"busy")));
    CHECK(make_file(at(L"no directory")));
    CHECK(jitlock_clear_cache(utf8(at(L"no directory")), 0) == JITLOCK_ERR_NOT_DIRECTORY);
    CHECK(jitlock_clear_cache("C:\\", 0) == JITLOCK_ERR_INVALID_ARGUMENT);
}

static void a_file_in_use_leaves_the_cache_whole_or_gone(void) {
    CHECK(CreateDirectoryW(at(L"loaded"), NULL));
    CHECK(make_file(at(L"loaded\\a.dll")) && make_file(at(L"loaded\\b.dll")));
    HANDLE file = open_file(at(L"loaded\\a.dll"), GENERIC_READ, FILE_SHARE_READ, OPEN_EXISTING);
    jitlock_status_t status = jitlock_clear_cache(utf8(at(L"loaded")), 0);
    CHECK(status == JITLOCK_ERR_IO || status == JITLOCK_ERR_PERMISSION);
    CHECK(is_there(at(L"loaded\\a.dll")) == is_there(at(L"loaded\\b.dll")));
    CloseHandle(file);
    CHECK(jitlock_clear_cache(utf8(at(L"loaded")), 0) == JITLOCK_OK);
    CHECK(!is_there(at(L"loaded")));
    WIN32_FIND_DATAW found;
    CHECK(FindFirstFileW(at(L".jitlock-trash-*"), &found) == INVALID_HANDLE_VALUE);
}

static void a_lock_directory_takes_all_lock_files(void) {
    jitlock_t lock;
    CHECK(SetEnvironmentVariableW(L"JITLOCK_LOCK_DIR", at(L"locks")));
    child_t child = start(L"hold", at(L"Directed"), L"0");
    int held = holds(&child);
    jitlock_status_t other = acquire(at(L"x\\..\\Directed"), 0, &lock);
    SetEnvironmentVariableW(L"JITLOCK_LOCK_DIR", NULL);
    CHECK(held && other == JITLOCK_ERR_TIMEOUT);
    let_go(&child);
    CHECK(end(&child) == 0);
    CHECK(is_there(at(L"locks")) && !is_there(at(L"Directed.lock")));
}

static void what_windows_lacks_is_said(void) {
    jitlock_t lock;
    CHECK(acquire_with(at(L"lacking"), 0, JITLOCK_INHERIT, NULL, &lock) == JITLOCK_ERR_UNSUPPORTED);
    CHECK(acquire_with(at(L"lacking"), 0, JITLOCK_INTERRUPTIBLE, NULL, &lock) == JITLOCK_ERR_UNSUPPORTED);
    CHECK(!is_there(at(L"lacking.lock")));
}

static void no_handle_is_left(void) {
    DWORD before, after;
    jitlock_t lock;
    for (int round = 0; round < 50; round++) {
        if (round == 10)
            CHECK(GetProcessHandleCount(GetCurrentProcess(), &before));
        CHECK(acquire(at(L"handles"), 0, &lock) == JITLOCK_OK);
        CHECK(CreateDirectoryW(at(L"handles"), NULL) && make_file(at(L"handles\\file")));
        CHECK(jitlock_clear_held(lock) == JITLOCK_OK);
        CHECK(jitlock_release(lock) == JITLOCK_OK);
        CHECK(acquire(at(L"squatted"), 0, &lock) == JITLOCK_ERR_PERMISSION);
        jitlock_owner_t owner = {.struct_size = sizeof owner};
        CHECK(jitlock_query(utf8(at(L"handles")), &owner) == JITLOCK_OK && owner.record_pid == 0);
    }
    CHECK(GetProcessHandleCount(GetCurrentProcess(), &after));
    /* A helper thread may be about to end. */
    for (int wait = 0; after > before && wait < 200; wait++) {
        Sleep(10);
        GetProcessHandleCount(GetCurrentProcess(), &after);
    }
    CHECK(after <= before);
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
#define SCENARIO(name) {#name, name}
    SCENARIO(a_holder_excludes_others_and_is_named),
    SCENARIO(a_wait_ends_with_the_release),
    SCENARIO(a_killed_holder_leaves_no_lock),
    SCENARIO(readers_share),
    SCENARIO(threads_take_turns),
    SCENARIO(processes_lose_no_update),
    SCENARIO(every_spelling_of_a_cache_is_one_lock),
    SCENARIO(paths_are_utf_8),
    SCENARIO(paths_may_be_longer_than_max_path),
    SCENARIO(missing_parents_are_made),
    SCENARIO(only_a_file_can_be_a_lock_file),
    SCENARIO(a_read_only_lock_file_is_locked_all_the_same),
    SCENARIO(a_lock_file_in_use_cannot_be_deleted),
    SCENARIO(a_lock_of_pythons_excludes_and_is_excluded),
    SCENARIO(a_file_that_is_not_shared_is_waited_for),
    SCENARIO(a_pending_deletion_is_waited_for),
    SCENARIO(torchs_lock_goes_when_nobody_has_it_open),
    SCENARIO(a_clear_takes_all_of_it),
    SCENARIO(a_file_in_use_leaves_the_cache_whole_or_gone),
    SCENARIO(a_lock_directory_takes_all_lock_files),
    SCENARIO(what_windows_lacks_is_said),
    SCENARIO(no_handle_is_left),
};

static int hold(const wchar_t *cache, const wchar_t *flags) {
    jitlock_t lock;
    if (acquire_with(cache, PATIENCE, (uint32_t)_wtoi(flags), NULL, &lock) != JITLOCK_OK)
        return 3;
    printf("held");
    fflush(stdout);
    getchar();
    return jitlock_release(lock) != JITLOCK_OK;
}

static int count(const wchar_t *cache, const wchar_t *counter) {
    for (int round = 0; round < ROUNDS; round++) {
        jitlock_t lock;
        long number = 0;
        if (acquire(cache, 3 * PATIENCE, &lock) != JITLOCK_OK)
            return 3;
        FILE *file = _wfopen(counter, L"r");
        if (file && (fscanf(file, "%ld", &number) != 1 || fclose(file)))
            return 4;
        file = _wfopen(counter, L"w");
        if (!file || fprintf(file, "%ld\n", number + 1) < 0 || fclose(file) || jitlock_release(lock) != JITLOCK_OK)
            return 5;
    }
    return 0;
}

int wmain(int words, wchar_t **word) {
    if (words == 4 && !wcscmp(word[1], L"hold"))
        return hold(word[2], word[3]);
    if (words == 4 && !wcscmp(word[1], L"count"))
        return count(word[2], word[3]);
    if (words != 2)
        return 2;
    GetFullPathNameW(word[1], MOST, directory, NULL);
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        int before = failures;
        scenario = scenarios[i].name;
        scenarios[i].run();
        if (failures == before)
            printf("ok %s\n", scenario);
        fflush(stdout);
    }
    return failures > 0;
}
