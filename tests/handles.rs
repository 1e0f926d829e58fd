//! A handle is a number that is right or wrong, and a wrong one touches nothing.

mod common;
use common::*;
use jitlock::capi;
use proptest::prelude::*;

#[test]
fn a_second_release_is_an_error_and_touches_nothing() {
    let (_directory, cache) = scratch();
    let mut agent = Agent::start();
    let first = acquire(&cache, 0).unwrap();
    release(first).unwrap();
    let second = acquire(&cache, 0).unwrap();
    assert_ne!(first, second);
    assert_eq!(code(release(first)), Code::InvalidHandle as i32);
    assert_eq!(agent.acquire(&cache, 0).code, Code::Timeout as i32, "the next lock is untouched");
    release(second).unwrap();
}

#[test]
fn zero_and_foreign_handles_are_errors_everywhere() {
    let (_directory, cache) = scratch();
    let mut agent = Agent::start();
    let theirs = agent.hold(&cache);
    for handle in [0, 1, u64::MAX, theirs] {
        assert_eq!(code(release(handle)), Code::InvalidHandle as i32);
        assert_eq!(code(info(handle)), Code::InvalidHandle as i32);
        assert_eq!(code(clear_held(handle)), Code::InvalidHandle as i32);
    }
    assert_eq!(code(acquire(&cache, 0)), Code::Timeout as i32);
}

#[test]
fn any_thread_may_release_and_then_acquire() {
    let (_directory, cache) = scratch();
    let lock = acquire(&cache, 0).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            release(lock).unwrap();
            release(acquire(&cache, 0).unwrap()).unwrap();
        });
    });
    release(acquire(&cache, 10_000).unwrap()).unwrap();
}

#[test]
fn waiting_for_oneself_is_told_at_once_and_waiting_for_another_thread_is_not() {
    let (_directory, cache) = scratch();
    let lock = acquire(&cache, 0).unwrap();
    for timeout in [0, 1000, -1] {
        let (code, message) = acquire(&cache, timeout).unwrap_err();
        assert_eq!(code, Code::Deadlock as i32);
        assert!(message.contains("cache.lock"), "{message}");
    }
    assert_eq!(code(clear(&cache, -1)), Code::Deadlock as i32);
    assert_eq!(code(acquire_with(&cache, &options(-1, capi::JITLOCK_SHARED))), Code::Deadlock as i32);
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(code(acquire(&cache, 100)), Code::Timeout as i32));
    });
    release(lock).unwrap();
}

#[test]
fn runtimes_that_move_between_threads_get_no_verdict_by_thread() {
    let (_directory, cache) = scratch();
    let anywhere = options(50, capi::JITLOCK_ANY_THREAD);
    let lock = acquire_with(&cache, &anywhere).unwrap();
    assert_eq!(code(acquire_with(&cache, &anywhere)), Code::Timeout as i32);
    assert_eq!(code(acquire(&cache, 50)), Code::Timeout as i32, "nobody can say whose the held one is");
    release(lock).unwrap();
}

#[test]
fn a_failed_acquire_gives_no_handle() {
    let (_directory, cache) = scratch();
    let mut agent = Agent::start();
    agent.hold(&cache);
    let mut lock = 77;
    let status = unsafe { capi::jitlock_acquire(c_path(&cache).as_ptr(), 0, &mut lock) };
    assert_eq!((status as i32, lock), (Code::Timeout as i32, capi::JITLOCK_NONE));
}

#[derive(Clone, Debug)]
enum Step {
    Acquire(usize),
    Release(usize),
    ReleaseNumber(u64),
    Info(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..4usize).prop_map(Step::Acquire),
        (0..12usize).prop_map(Step::Release),
        any::<u64>().prop_map(Step::ReleaseNumber),
        (0..12usize).prop_map(Step::Info),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any sequence of calls does what a list of held locks says.
    #[test]
    fn handles_behave_like_a_list_of_held_locks(steps in steps()) {
        let (_directory, cache) = scratch();
        let caches: Vec<_> = (0..4).map(|number| cache.with_file_name(number.to_string())).collect();
        let mut given: Vec<(u64, usize)> = Vec::new();
        let mut held = [None; 4];
        for step in steps {
            match step {
                Step::Acquire(cache) => match acquire(&caches[cache], 0) {
                    Ok(lock) => {
                        prop_assert!(held[cache].is_none());
                        prop_assert!(given.iter().all(|&(number, _)| number != lock));
                        held[cache] = Some(lock);
                        given.push((lock, cache));
                    }
                    Err((code, _)) => {
                        prop_assert_eq!(code, Code::Deadlock as i32);
                        prop_assert!(held[cache].is_some());
                    }
                },
                Step::Release(index) => {
                    let Some(&(lock, cache)) = given.get(index) else { continue };
                    prop_assert_eq!(release(lock).is_ok(), held[cache] == Some(lock));
                    if held[cache] == Some(lock) {
                        held[cache] = None;
                    }
                }
                Step::ReleaseNumber(number) => {
                    if !given.iter().any(|&(lock, _)| lock == number) {
                        prop_assert_eq!(code(release(number)), Code::InvalidHandle as i32);
                    }
                }
                Step::Info(index) => {
                    let Some(&(lock, cache)) = given.get(index) else { continue };
                    prop_assert_eq!(info(lock).is_ok(), held[cache] == Some(lock));
                }
            }
        }
        for lock in held.into_iter().flatten() {
            release(lock).unwrap();
        }
    }
}
