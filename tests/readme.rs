//! What the README prints works as printed.

mod common;
use common::*;
use std::path::Path;
use std::process::Command;

#[test]
fn the_c_snippet_compiles_and_runs() {
    let (directory, _) = scratch();
    std::fs::write(directory.path().join("main.c"), snippet("c")).unwrap();
    let libraries = library_directory();
    let built = Command::new("cc")
        .args([
            "-std=c99",
            "-Wall",
            "-Wextra",
            "-Wno-missing-field-initializers",
            "-Werror",
            "main.c",
            "-o",
            "main",
            "-I",
        ])
        .arg(Path::new(ROOT).join("include"))
        .args([
            "-L",
            libraries.to_str().unwrap(),
            "-ljitlock",
            &format!("-Wl,-rpath,{}", libraries.display()),
        ])
        .current_dir(directory.path())
        .status();
    assert!(built.unwrap().success());
    let run = || Command::new(directory.path().join("main")).current_dir(directory.path()).status().unwrap();
    assert!(run().success());
    let mut agent = Agent::start();
    std::fs::create_dir_all(directory.path().join("cache/my_kernel")).unwrap();
    agent.hold(&directory.path().join("cache/my_kernel"));
    agent.kill();
    assert!(run().success());
    assert!(!directory.path().join("cache/my_kernel").exists(), "what the dead one left is gone");
}

#[test]
fn the_python_snippet_runs() {
    let (directory, _) = scratch();
    let run = || {
        let mut command = Command::new("python3");
        command.arg("-c").arg(snippet("python").replace("5000", "50")).env("JITLOCK_LIBRARY", library());
        command.current_dir(directory.path()).output().unwrap()
    };
    let output = run();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("building"));
    let mut agent = Agent::start();
    agent.hold(&directory.path().join("cache/my_kernel"));
    let refused = String::from_utf8(run().stderr).unwrap();
    assert!(refused.contains("TimeoutError: timed out after 0.05"), "{refused}");
}

#[test]
fn the_cpp_snippet_builds_once() {
    let (directory, _) = scratch();
    let (first, rest) = snippet("cpp").split_once("\n\n").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let program = format!(
        "{first}\n#include <cstdio>\nint main() {{ bool built = false; auto is_ready = [&] {{ return built; }};\n\
         auto build = [&] {{ built = true; }};\n{rest}\nstd::printf(\"%d\", mine); }}\n"
    );
    std::fs::write(directory.path().join("main.cpp"), program).unwrap();
    let libraries = library_directory();
    let mut compiler = Command::new("c++");
    compiler
        .args(["-std=c++11", "-Wall", "-Werror", "main.cpp", "-o", "main", "-I"])
        .arg(Path::new(ROOT).join("include"));
    compiler.args(["-L", libraries.to_str().unwrap(), "-ljitlock"]);
    compiler.arg(format!("-Wl,-rpath,{}", libraries.display())).current_dir(directory.path());
    assert!(compiler.status().unwrap().success());
    let output = Command::new(directory.path().join("main")).current_dir(directory.path()).output().unwrap();
    assert_eq!(output.stdout, b"1");
    assert!(directory.path().join("cache/my_kernel.lock").exists());
}

#[test]
fn the_tables_have_every_call_flag_and_code() {
    let readme = std::fs::read_to_string(Path::new(ROOT).join("README.md")).unwrap();
    let header = std::fs::read_to_string(Path::new(ROOT).join("include/jitlock.h")).unwrap();
    let names = header.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| {
        let call =
            name.starts_with("jitlock_") && header.contains(&format!(" {name}(")) && !name.ends_with("_fn");
        call || name.starts_with("JITLOCK_ERR_")
    });
    for name in
        names.chain(["JITLOCK_SHARED", "JITLOCK_INHERIT", "JITLOCK_ANY_THREAD", "JITLOCK_INTERRUPTIBLE"])
    {
        assert!(readme.contains(name), "README.md does not mention {name}");
    }
}

#[test]
fn the_lock_can_be_looked_at_by_hand() {
    let (_directory, cache) = scratch();
    let lock = acquire(&cache, 0).unwrap();
    let script = "grep \"$(stat -c %i \"$0\")\" /proc/locks";
    let output = Command::new("sh").arg("-c").arg(script).arg(lock_file(&cache)).output().unwrap();
    let line = String::from_utf8(output.stdout).unwrap();
    assert!(line.contains("FLOCK") && line.contains(&std::process::id().to_string()), "{line}");
    release(lock).unwrap();
}
