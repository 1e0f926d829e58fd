//! The checked-in header is what cbindgen makes of the code, C and C++ compilers take it without a word, and it
//! declares exactly what the library exports.

mod common;
use common::*;
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

fn header() -> String {
    std::fs::read_to_string(Path::new(ROOT).join("include/jitlock.h")).unwrap_or_default()
}

#[test]
fn the_header_is_up_to_date() {
    let root = Path::new(ROOT);
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    let builder = cbindgen::Builder::new().with_config(config).with_src(root.join("src/capi.rs"));
    builder.generate().unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();
    if std::env::var_os("JITLOCK_BLESS").is_some() {
        std::fs::write(root.join("include/jitlock.h"), &made).unwrap();
    }
    let stale = "include/jitlock.h is stale: run `JITLOCK_BLESS=1 cargo test --test header` and commit it";
    assert!(made == header(), "{stale}");
}

#[test]
fn compilers_take_it_without_a_warning() {
    let source = "#include <jitlock.h>\nint main(void) { jitlock_options_t o = JITLOCK_OPTIONS_INIT; return (int)o.flags; }\n";
    let warnings = ["-Wall", "-Wextra", "-Wpedantic", "-pedantic", "-Werror"];
    for (compiler, language, standard) in [
        ("cc", "c", "c99"),
        ("cc", "c", "c11"),
        ("c++", "c++", "c++11"),
        ("c++", "c++", "c++17"),
        ("c++", "c++", "c++20"),
    ] {
        let mut command = Command::new(compiler);
        command.args(["-x", language, &format!("-std={standard}"), "-fsyntax-only"]).args(warnings);
        if language == "c" {
            command.arg("-Wstrict-prototypes");
        }
        command
            .arg("-I")
            .arg(Path::new(ROOT).join("include"))
            .arg("-")
            .stdin(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{standard}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Every name followed by a parenthesis outside of comments and macros.
fn declared() -> BTreeSet<String> {
    let header = header();
    let code: String =
        header.lines().filter(|line| !line.trim_start().starts_with(['*', '/', '#'])).collect();
    let names = code.match_indices("jitlock_").filter_map(|(start, _)| {
        let name: String = code[start..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        code[start + name.len()..].starts_with('(').then_some(name)
    });
    names.collect()
}

#[test]
fn the_library_exports_exactly_what_the_header_declares() {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output().unwrap();
    assert!(output.status.success());
    let symbols = String::from_utf8(output.stdout).unwrap();
    let exported = symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).map(str::to_owned);
    let exported: BTreeSet<String> = exported.collect();
    assert_eq!(exported, declared());
    assert!(exported.contains("jitlock_acquire") && exported.len() == 13, "{exported:?}");
}

#[test]
fn the_library_has_its_soname_and_stays_loaded() {
    let output = Command::new("readelf").arg("-d").arg(library()).output().unwrap();
    let dynamic = String::from_utf8(output.stdout).unwrap();
    assert!(dynamic.contains("Library soname: [libjitlock.so.0]"), "{dynamic}");
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
}

#[test]
fn versions_agree_everywhere() {
    let version = env!("CARGO_PKG_VERSION");
    let macros = |name: &str| {
        let line =
            header().lines().find(|line| line.starts_with(&format!("#define {name} "))).unwrap().to_owned();
        line.rsplit(' ').next().unwrap().trim_matches('"').to_owned()
    };
    let numbers = ["MAJOR", "MINOR", "PATCH"].map(|part| macros(&format!("JITLOCK_VERSION_{part}")));
    assert_eq!(numbers.join("."), version);
    assert_eq!(macros("JITLOCK_VERSION_STRING"), version);
    let loaded = unsafe { CStr::from_ptr(jitlock::capi::jitlock_version()) };
    assert_eq!(loaded.to_str(), Ok(version));
    assert_eq!(jitlock::capi::jitlock_abi_version().to_string(), macros("JITLOCK_ABI_VERSION"));
}
