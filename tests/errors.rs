//! Every refused argument, and what a failure says.

mod common;
use common::*;
use jitlock::capi::{self, jitlock_status_t};
use std::ffi::{c_char, CStr};
use std::path::Path;
use std::ptr;

const INVALID: jitlock_status_t = jitlock_status_t::JITLOCK_ERR_INVALID_ARGUMENT;

#[test]
fn null_pointers_are_refused_by_name() {
    let (_directory, cache) = scratch();
    let name = c_path(&cache);
    let mut lock = 0;
    unsafe {
        assert_eq!(capi::jitlock_acquire(ptr::null(), 0, &mut lock), INVALID);
        assert!(last_message().contains("cache_dir is NULL"), "{}", last_message());
        assert_eq!(capi::jitlock_acquire(name.as_ptr(), 0, ptr::null_mut()), INVALID);
        assert!(last_message().contains("lock is NULL"), "{}", last_message());
        assert_eq!(capi::jitlock_acquire_with(ptr::null(), ptr::null(), &mut lock), INVALID);
        assert_eq!(capi::jitlock_acquire_with(name.as_ptr(), ptr::null(), ptr::null_mut()), INVALID);
        assert_eq!(capi::jitlock_clear_cache(ptr::null(), 0), INVALID);
        assert_eq!(capi::jitlock_info(1, ptr::null_mut()), INVALID);
        assert_eq!(capi::jitlock_query(name.as_ptr(), ptr::null_mut()), INVALID);
        let mut owner: capi::jitlock_owner_t = std::mem::zeroed();
        owner.struct_size = std::mem::size_of_val(&owner);
        assert_eq!(capi::jitlock_query(ptr::null(), &mut owner), INVALID);
    }
    assert!(!lock_file(&cache).exists());
}

#[test]
fn no_options_are_the_default_options() {
    let (_directory, cache) = scratch();
    let mut lock = 0;
    let status = unsafe { capi::jitlock_acquire_with(c_path(&cache).as_ptr(), ptr::null(), &mut lock) };
    assert_eq!(status, jitlock_status_t::JITLOCK_OK);
    release(lock).unwrap();
}

#[test]
fn empty_and_rootless_paths_are_refused() {
    for path in ["", "/", "//", "/.", "/.."] {
        assert_eq!(code(acquire(Path::new(path), 0)), Code::InvalidArgument as i32, "{path:?}");
    }
}

#[test]
fn unknown_flags_are_refused() {
    let (_directory, cache) = scratch();
    for bit in [1 << 30, 1 << 31] {
        assert_eq!(code(acquire_with(&cache, &options(0, bit))), Code::InvalidArgument as i32);
        assert!(last_message().contains(&format!("{bit:#x}")), "{}", last_message());
    }
    assert!(!lock_file(&cache).exists());
}

#[test]
fn structures_state_their_size() {
    let (_directory, cache) = scratch();
    let lock = acquire(&cache, 0).unwrap();
    let mut small: capi::jitlock_info_t = unsafe { std::mem::zeroed() };
    small.struct_size = 4;
    assert_eq!(unsafe { capi::jitlock_info(lock, &mut small) }, INVALID);
    assert!(last_message().contains("jitlock_info_t.struct_size is 4"), "{}", last_message());
    release(lock).unwrap();
    let mut options = options(0, 0);
    options.struct_size = 0;
    assert_eq!(code(acquire_with(&cache, &options)), Code::InvalidArgument as i32);
}

/// A caller built against the first header, which knew nothing of torch's lock.
#[test]
fn shorter_structures_of_an_earlier_header_are_taken() {
    let (_directory, cache) = scratch();
    let lock = acquire(&cache, 0).unwrap();
    let mut info: capi::jitlock_info_t = unsafe { std::mem::zeroed() };
    (info.struct_size, info.baton) = (std::mem::offset_of!(capi::jitlock_info_t, baton), 77);
    assert_eq!(unsafe { capi::jitlock_info(lock, &mut info) }, jitlock_status_t::JITLOCK_OK);
    assert_eq!((info.recorded, info.baton), (1, 77), "what the caller does not know is not written");
    let mut owner: capi::jitlock_owner_t = unsafe { std::mem::zeroed() };
    (owner.struct_size, owner.baton_pid) = (std::mem::offset_of!(capi::jitlock_owner_t, baton), 77);
    let name = c_path(&cache);
    assert_eq!(unsafe { capi::jitlock_query(name.as_ptr(), &mut owner) }, jitlock_status_t::JITLOCK_OK);
    assert_eq!((owner.pid, owner.baton_pid), (std::process::id().into(), 77));
    release(lock).unwrap();
}

/// A caller built against a later header, whose structures are longer.
#[test]
fn longer_structures_are_taken_unless_they_ask_for_more() {
    #[repr(C)]
    struct Longer<T> {
        known: T,
        unknown: [u8; 64],
    }
    let (_directory, cache) = scratch();
    let name = c_path(&cache);
    let mut lock = 0;
    let mut longer = Longer { known: options(0, 0), unknown: [0; 64] };
    longer.known.struct_size = std::mem::size_of_val(&longer);
    assert_eq!(
        unsafe { capi::jitlock_acquire_with(name.as_ptr(), &longer.known, &mut lock) },
        jitlock_status_t::JITLOCK_OK
    );
    let mut info = Longer { known: info(lock).unwrap(), unknown: [7; 64] };
    info.known.struct_size = std::mem::size_of_val(&info);
    let pointer: *mut Longer<capi::jitlock_info_t> = &mut info;
    assert_eq!(unsafe { capi::jitlock_info(lock, pointer.cast()) }, jitlock_status_t::JITLOCK_OK);
    assert_eq!(info.unknown, [7; 64], "what the library does not know it does not touch");
    release(lock).unwrap();
    longer.unknown[9] = 1;
    assert_eq!(unsafe { capi::jitlock_acquire_with(name.as_ptr(), &longer.known, &mut lock) }, INVALID);
}

#[test]
fn the_message_is_copied_into_the_callers_buffer() {
    let (_directory, cache) = scratch();
    let mut agent = Agent::start();
    let held = agent.hold(&cache);
    let mut options = options(0, 0);
    for size in [0, 1, 20, 1000] {
        let mut buffer = vec![b'x' as c_char; size.max(1)];
        options.error = buffer.as_mut_ptr();
        options.error_size = size;
        assert_eq!(code(acquire_with(&cache, &options)), Code::Timeout as i32);
        if size == 0 {
            assert_eq!(buffer[0], b'x' as c_char);
            continue;
        }
        let copied = unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_str().unwrap();
        assert_eq!(copied, &last_message()[..last_message().len().min(size - 1)]);
    }
    agent.release(held);
    let mut buffer = [b'x' as c_char; 10];
    options.error = buffer.as_mut_ptr();
    options.error_size = buffer.len();
    release(acquire_with(&cache, &options).unwrap()).unwrap();
    assert_eq!(buffer[0], 0);
}

#[test]
fn a_timeout_says_who_holds_the_lock_since_when_and_how_long_we_waited() {
    let (_directory, cache) = scratch();
    let mut agent = Agent::start();
    agent.hold(&cache);
    let message = acquire(&cache, 120).unwrap_err().1;
    assert!(message.starts_with("timed out after 0.1"), "{message}");
    assert!(message.contains("cache.lock"), "{message}");
    let holder = format!("held by pid {} ({}) for ", agent.pid(), program("agent").display());
    assert!(message.contains(&holder), "{message}");
}

#[test]
fn messages_are_each_threads_own() {
    let (_directory, cache) = scratch();
    assert_eq!(code(acquire(&cache, -9)), Code::InvalidArgument as i32);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(last_message(), "");
            assert_eq!(code(release(5)), Code::InvalidHandle as i32);
        });
    });
    assert!(last_message().contains("-9"), "{}", last_message());
    release(acquire(&cache, 0).unwrap()).unwrap();
    assert!(last_message().contains("-9"), "a success leaves the message");
}

#[test]
fn texts_of_codes_are_distinct_and_never_null() {
    let text = |code: i32| unsafe { CStr::from_ptr(capi::jitlock_strerror(code)) }.to_str().unwrap();
    let texts: std::collections::BTreeSet<&str> = (-14..=0).map(text).collect();
    assert_eq!(texts.len(), 15);
    for unknown in [1, -15, i32::MIN, i32::MAX] {
        assert_eq!(text(unknown), "unknown jitlock status");
    }
}

#[test]
fn system_errors_name_the_path_and_the_reason() {
    let (directory, _) = scratch();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let (code, message) = acquire(&file.join("cache"), 0).unwrap_err();
    assert_eq!(code, Code::NotDirectory as i32);
    assert!(message.contains("file/cache") && message.contains("Not a directory"), "{message}");
}
