//! The library as a packager installs it, and as somebody else's project finds it: outside of the source tree.

mod common;
use common::*;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Once for all of these tests, which only read it.
fn prefix() -> Option<PathBuf> {
    use std::sync::OnceLock;
    static PREFIX: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = PREFIX.get_or_init(|| {
        if !works("cargo-cinstall", &["--version"]) {
            return None;
        }
        let prefix = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("prefix");
        let _ = std::fs::remove_dir_all(&prefix);
        let script = Path::new(ROOT).join("tests/lab/install/cinstall");
        run(Command::new(script).arg(&prefix));
        Some(prefix)
    });
    made.clone()
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}\n{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

macro_rules! prefix_or_skip {
    () => {
        match prefix() {
            Some(prefix) => prefix,
            None => skip!("cargo-c is not installed"),
        }
    };
}

fn consumer() -> PathBuf {
    Path::new(ROOT).join("tests/consumer")
}

/// It takes the lock, by the C++ header, and prints the version.
fn works_as_a_program(program: &Path, cache: &Path) {
    assert_eq!(run(Command::new(program).arg(cache)), format!("{} 1\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn every_file_is_in_its_place() {
    let prefix = prefix_or_skip!();
    let version = env!("CARGO_PKG_VERSION");
    for file in [
        "include/jitlock.h",
        "include/jitlock.hpp",
        "lib/libjitlock.a",
        "lib/libjitlock.so",
        "lib/libjitlock.so.0",
        &format!("lib/libjitlock.so.{version}"),
        "lib/pkgconfig/jitlock.pc",
        "share/jitlock/cmake/jitlock-config.cmake",
        "share/jitlock/cmake/jitlock-config-version.cmake",
    ] {
        assert!(prefix.join(file).exists(), "{file}");
    }
    let dynamic = run(Command::new("readelf").arg("-d").arg(prefix.join("lib/libjitlock.so")));
    assert!(dynamic.contains("Library soname: [libjitlock.so.0]"), "{dynamic}");
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
    let symbols =
        run(Command::new("nm").args(["-D", "--defined-only"]).arg(prefix.join("lib/libjitlock.so")));
    assert!(symbols.lines().all(|line| line.contains(" T jitlock_")), "{symbols}");
}

#[test]
fn pkg_config_links_it_shared_and_static() {
    let prefix = prefix_or_skip!();
    let (directory, cache) = scratch();
    let flags = |arguments: &[&str]| {
        let mut command = Command::new("pkg-config");
        command.args(arguments).arg("jitlock").env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
        let flags = run(&mut command);
        flags.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(flags(&["--modversion"]), [env!("CARGO_PKG_VERSION")]);
    let shared = directory.path().join("shared");
    run(Command::new("c++")
        .arg(consumer().join("main.cpp"))
        .args(["-std=c++11", "-o"])
        .arg(&shared)
        .args(flags(&["--cflags", "--libs"]))
        .arg(format!("-Wl,-rpath,{}", prefix.join("lib").display())));
    works_as_a_program(&shared, &cache);

    let program = directory.path().join("static");
    // The linker prefers the shared library where both are, so the archive is named.
    let private = flags(&["--static", "--libs"]).into_iter().map(|flag| match &*flag {
        "-ljitlock" => prefix.join("lib/libjitlock.a").display().to_string(),
        _ => flag,
    });
    run(Command::new("c++")
        .arg(consumer().join("main.cpp"))
        .args(["-std=c++11", "-o"])
        .arg(&program)
        .args(flags(&["--cflags"]))
        .args(private));
    works_as_a_program(&program, &cache);
    let needed = run(Command::new("readelf").arg("-d").arg(&program));
    assert!(!needed.contains("libjitlock"), "{needed}");
}

#[test]
fn cmake_finds_it_shared_and_static_wherever_the_prefix_is_moved() {
    if !works("cmake", &["--version"]) {
        skip!("cmake is not installed");
    }
    let prefix = prefix_or_skip!();
    let (directory, cache) = scratch();
    let moved = directory.path().join("moved");
    run(Command::new("cp").arg("-a").arg(&prefix).arg(&moved));
    let build = directory.path().join("build");
    run(Command::new("cmake")
        .arg("-S")
        .arg(consumer())
        .arg("-B")
        .arg(&build)
        .arg(format!("-DCMAKE_PREFIX_PATH={}", moved.display())));
    run(Command::new("cmake").arg("--build").arg(&build));
    works_as_a_program(&build.join("shared"), &cache);
    works_as_a_program(&build.join("static"), &cache);
    let needed = run(Command::new("readelf").arg("-d").arg(build.join("static")));
    assert!(!needed.contains("libjitlock"), "{needed}");
}

#[test]
fn three_lines_of_cmake_are_a_locked_build() {
    if !works("cmake", &["--version"]) {
        skip!("cmake is not installed");
    }
    let prefix = prefix_or_skip!();
    let (directory, cache) = scratch();
    let lines = snippet("cmake");
    assert_eq!(lines.lines().count(), 3);
    let project = format!("cmake_minimum_required(VERSION 3.13)\nproject(app CXX)\n{lines}");
    std::fs::write(directory.path().join("CMakeLists.txt"), project).unwrap();
    std::fs::copy(consumer().join("main.cpp"), directory.path().join("main.cpp")).unwrap();
    let build = directory.path().join("build");
    run(Command::new("cmake")
        .arg("-S")
        .arg(directory.path())
        .arg("-B")
        .arg(&build)
        .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())));
    run(Command::new("cmake").arg("--build").arg(&build));
    works_as_a_program(&build.join("app"), &cache);
}

#[test]
fn cmake_takes_the_versions_that_are_compatible() {
    if !works("cmake", &["--version"]) {
        skip!("cmake is not installed");
    }
    let file = Path::new(ROOT).join("include/cmake/jitlock-config-version.cmake");
    let (directory, _) = scratch();
    for (wanted, compatible) in
        [("0.1", true), ("0.1.0", true), ("0.2", false), ("0.0.9", false), ("1", false)]
    {
        let script = directory.path().join("check.cmake");
        let parts: Vec<&str> = wanted.split('.').collect();
        let text = format!(
            "set(PACKAGE_FIND_VERSION {wanted})\nset(PACKAGE_FIND_VERSION_COUNT {})\n\
             set(PACKAGE_FIND_VERSION_MINOR {})\ninclude({})\nmessage(STATUS \"${{PACKAGE_VERSION_COMPATIBLE}}\")\n",
            parts.len(),
            parts.get(1).unwrap_or(&"0"),
            file.display()
        );
        std::fs::write(&script, text).unwrap();
        let said = run(Command::new("cmake").arg("-P").arg(&script));
        assert_eq!(said.contains("TRUE"), compatible, "{wanted}: {said}");
    }
    let version = std::fs::read_to_string(&file).unwrap();
    assert!(version.contains(&format!("set(PACKAGE_VERSION \"{}\")", env!("CARGO_PKG_VERSION"))));
}
