//! The binary interface is that of `tests/abi/0.txt`: every function, size, offset, code and constant.
//!
//! `JITLOCK_BLESS=1 cargo test --test abi` writes it anew. Whatever is then changed or gone in it, and not only added, breaks
//! programs that exist: it needs a new `JITLOCK_ABI_VERSION` and a file of its own.

mod common;
use common::*;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Declarations without comments, a line each.
fn declarations() -> Vec<String> {
    let header = std::fs::read_to_string(Path::new(ROOT).join("include/jitlock.h")).unwrap();
    let mut code = String::new();
    let mut rest = header.as_str();
    while let Some((before, after)) = rest.split_once("/*") {
        code.push_str(before);
        rest = after.split_once("*/").unwrap().1;
    }
    code.push_str(rest);
    let lines = code.lines().map(|line| line.split("//").next().unwrap().trim());
    let text: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let whole = text.join(" ");
    whole.split_inclusive([';', '{', '}']).map(|part| part.trim().to_owned()).collect()
}

/// `jitlock_status_t jitlock_release(jitlock_t lock)` and so on.
fn functions() -> Vec<String> {
    let is_one = |text: &String| {
        text.ends_with(';') && text.contains("jitlock_") && text.contains('(') && !text.contains("typedef")
    };
    let mut found: Vec<String> = declarations().into_iter().filter(is_one).collect();
    for text in &mut found {
        *text =
            text.trim_start_matches("JITLOCK_NODISCARD ").trim_start_matches("extern ").replace("( ", "(");
    }
    found
}

/// Names of the structures, and of their fields.
fn structures() -> Vec<(String, Vec<String>)> {
    let all = declarations();
    let mut found = Vec::new();
    let mut parts = all.iter();
    while let Some(part) = parts.next() {
        if part != "typedef struct {" {
            continue;
        }
        let fields = parts.by_ref().take_while(|part| *part != "}").map(|field| {
            let field = field.trim_end_matches(';').split('[').next().unwrap();
            field.rsplit([' ', '*']).next().unwrap().to_owned()
        });
        let fields = fields.collect();
        found.push((parts.next().unwrap().trim_end_matches(';').to_owned(), fields));
    }
    found
}

/// `JITLOCK_OK` and so on: of the enumerations, and what is defined.
fn constants() -> Vec<String> {
    let header = std::fs::read_to_string(Path::new(ROOT).join("include/jitlock.h")).unwrap();
    let words = header.lines().filter_map(|line| {
        let line = line.trim();
        match line.strip_prefix("#define ") {
            Some(defined) => {
                defined.split_whitespace().next().filter(|_| defined.split_whitespace().count() > 1)
            }
            None => line.split(" = ").next().filter(|_| line.contains(" = ")),
        }
    });
    // Those that are no numbers, or are meant to change.
    let left_out = ["JITLOCK_NODISCARD", "JITLOCK_OPTIONS_INIT", "JITLOCK_VERSION"];
    let names = words
        .filter(|name| name.starts_with("JITLOCK_") && !left_out.iter().any(|out| name.starts_with(out)));
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.dedup();
    names
}

/// Sizes and numbers are what a C compiler makes of them.
fn description() -> String {
    let mut program = String::from("#include <jitlock.h>\n#include <stdio.h>\nint main(void) {\n");
    for (name, fields) in structures() {
        let _ = writeln!(program, "printf(\"{name} %zu\\n\", sizeof({name}));");
        for field in fields {
            let _ = writeln!(
                program,
                "printf(\"    {field} %zu %zu\\n\", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));"
            );
        }
    }
    for name in constants() {
        let _ = writeln!(program, "printf(\"{name} %lld\\n\", (long long){name});");
    }
    program.push_str("return 0;\n}\n");
    let (directory, _) = scratch();
    let (source, binary) = (directory.path().join("abi.c"), directory.path().join("abi"));
    std::fs::write(&source, program).unwrap();
    let mut compiler = Command::new("cc");
    compiler.arg("-I").arg(Path::new(ROOT).join("include")).arg(&source).arg("-o").arg(&binary);
    assert!(compiler.status().unwrap().success());
    let numbers = Command::new(&binary).output().unwrap().stdout;
    format!("{}\n\n{}", functions().join("\n"), String::from_utf8(numbers).unwrap())
}

#[test]
fn the_binary_interface_is_as_described() {
    let file = Path::new(ROOT).join(format!("tests/abi/{}.txt", jitlock::capi::JITLOCK_ABI_VERSION));
    let now = description();
    if std::env::var_os("JITLOCK_BLESS").is_some() {
        std::fs::write(&file, &now).unwrap();
    }
    let described = std::fs::read_to_string(&file).unwrap();
    assert_eq!(now, described, "the binary interface has changed");
    for part in [
        "jitlock_acquire(",
        "jitlock_options_t 64",
        "    timeout_ms 8 8",
        "JITLOCK_ERR_INTERNAL -14",
        "JITLOCK_INHERIT 2",
    ] {
        assert!(now.contains(part), "the description has no {part}:\n{now}");
    }
}
