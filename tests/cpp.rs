//! `include/jitlock.hpp`, by the compilers and sanitizers that are here.

mod common;
use common::*;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Of the two files of `tests/cpp`, which both include the header.
fn build(compiler: &str, arguments: &[&str], result: &Path) {
    let libraries = library_directory();
    let sources = Path::new(ROOT).join("tests/cpp");
    let output = Command::new(compiler)
        .args([
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Wshadow",
            "-Wconversion",
            "-Werror",
            "-O1",
            "-g",
            "-pthread",
        ])
        .args(arguments)
        .arg("-I")
        .arg(Path::new(ROOT).join("include"))
        .args([sources.join("main.cpp"), sources.join("other_unit.cpp")])
        .arg("-o")
        .arg(result)
        .args(["-L", libraries.to_str().unwrap(), "-ljitlock"])
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{compiler} {arguments:?}\n{}", String::from_utf8_lossy(&output.stderr));
}

fn run(program: &Path, cache: &Path) {
    let suppressions = Path::new(ROOT).join("tests/cpp/tsan.supp");
    let options = format!("suppressions={}", suppressions.display());
    let output = Command::new(program).arg(cache).env("TSAN_OPTIONS", options).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", program.display());
}

fn compilers() -> Vec<&'static str> {
    let all = ["g++", "clang++"];
    let here: Vec<&str> = all.into_iter().filter(|compiler| works(compiler, &["--version"])).collect();
    for missing in all.iter().filter(|compiler| !here.contains(compiler)) {
        println!("skipped: {missing} is not installed");
    }
    here
}

fn each(variants: &[&[&str]]) {
    let (directory, cache) = scratch();
    for compiler in compilers() {
        for (number, arguments) in variants.iter().enumerate() {
            let empty = directory.path().join("empty.cpp");
            std::fs::write(&empty, "int main() {}").unwrap();
            let trial = directory.path().join("empty");
            let files = [empty.to_str().unwrap(), "-o", trial.to_str().unwrap()];
            if !works(compiler, &[arguments, &files[..]].concat()) {
                println!("skipped: {compiler} has no runtime for {arguments:?}");
                continue;
            }
            let program: PathBuf = directory.path().join(format!("{compiler}-{number}"));
            build(compiler, arguments, &program);
            run(&program, &cache);
        }
    }
}

#[test]
fn it_works_from_cpp11_to_cpp20() {
    each(&[&["-std=c++11"], &["-std=c++17"], &["-std=c++20"]]);
}

#[test]
fn it_needs_neither_exceptions_nor_type_information() {
    each(&[&["-std=c++11", "-fno-exceptions", "-fno-rtti"]]);
}

#[test]
fn the_sanitizers_find_nothing() {
    each(&[
        &["-std=c++17", "-fsanitize=address,undefined", "-fno-sanitize-recover"],
        &["-std=c++17", "-fsanitize=thread"],
    ]);
}
