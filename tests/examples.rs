//! The main job, from a clean build directory, as a user would run it.

mod common;
use common::*;
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

/// One at a time: both tests would build the same program.
fn make(arguments: &[&str]) -> Output {
    static BUILDING: Mutex<()> = Mutex::new(());
    let _building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new("make");
    command.args(["-s", "-C", &format!("{ROOT}/examples-c")]).args(arguments);
    // Make's own jobs are none of the test runner's.
    command.env_remove("MAKEFLAGS").env_remove("CARGO_MAKEFLAGS").output().unwrap()
}

#[test]
fn many_ranks_build_each_kernel_once_though_the_first_builder_is_killed() {
    let (directory, _) = scratch();
    for (ranks, cold) in [("8", true), ("8", false), ("32", true)] {
        let cache = directory.path().join(ranks);
        let output = make(&["run", &format!("N={ranks}"), &format!("CACHE={}", cache.display())]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        let survivors = ranks.parse::<u32>().unwrap() - u32::from(cold);
        assert!(
            said.contains(&format!("results right in {survivors} of {survivors} surviving processes")),
            "{said}"
        );
        assert_eq!(said.contains("3 built, 0 found in the cache; none of them built twice"), cold, "{said}");
        assert_eq!(said.contains("killed while it built") && said.contains("1 recovery"), cold, "{said}");
        assert_eq!(said.contains("0 built, 3 found in the cache"), !cold, "{said}");
        assert!(!cold || said.contains("waiting for pid "), "{said}");
    }
}

#[test]
fn bad_arguments_are_one_line_and_status_two() {
    assert!(make(&["all"]).status.success());
    // The other test may be about to replace it.
    let (directory, _) = scratch();
    let loader = directory.path().join("jit_loader");
    copy_program(format!("{ROOT}/examples-c/build/jit_loader").as_ref(), &loader);
    for arguments in [&[][..], &["-n", "1", "cache", "x.c"], &["-n", "many", "cache", "x.c"], &["cache"]] {
        let output = Command::new(&loader)
            .env("LD_LIBRARY_PATH", format!("{ROOT}/examples-c/build"))
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1, "{arguments:?}");
    }
}
