//! `examples-c/ffi`: every language that is here takes the same lock.

mod common;
use common::*;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// A language, and the command that its example starts with.
struct Language {
    name: &'static str,
    command: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Language {
    fn run(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).args(arguments).env("JITLOCK_LIBRARY", library());
        command.envs(self.environment.iter().cloned()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

fn example(path: &str) -> String {
    Path::new(ROOT).join("examples-c/ffi").join(path).display().to_string()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// What the tests build is in one place, and built once.
fn scratch_of_cargo(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn node() -> Option<Language> {
    let modules = Path::new(ROOT).join("target/lab/node/node_modules");
    let found = modules.join("koffi").exists() && works("node", &["--version"]);
    found.then(|| Language {
        name: "Node.js",
        command: words(&["node", &example("node/lock.js")]),
        environment: vec![("NODE_PATH".into(), modules.display().to_string())],
    })
}

fn java() -> Option<Language> {
    let jna = "/usr/share/java/jna.jar";
    if !Path::new(jna).exists() || !works("javac", &["-version"]) {
        return None;
    }
    let classes = scratch_of_cargo("java");
    let classes = classes.to_str().unwrap();
    assert!(works("javac", &["-cp", jna, "-d", classes, &example("java/Lock.java")]), "javac");
    Some(Language {
        name: "Java",
        command: words(&["java", "-cp", &format!("{jna}:{classes}"), "Lock"]),
        environment: Vec::new(),
    })
}

/// cgo wants an installed copy, which pkg-config finds; this one lies in the build directory.
fn go() -> Option<Language> {
    if !works("go", &["version"]) || !works("pkg-config", &["--version"]) {
        return None;
    }
    let place = scratch_of_cargo("go");
    let pc = format!(
        "Name: jitlock\nDescription: in the build directory\nVersion: {}\nLibs: -L{} -ljitlock\nCflags: -I{ROOT}/include\n",
        env!("CARGO_PKG_VERSION"),
        library_directory().display()
    );
    std::fs::write(place.join("jitlock.pc"), pc).unwrap();
    let program = place.join("lock");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(".").current_dir(example("go"));
    build.env("PKG_CONFIG_PATH", &place).env("GOFLAGS", "-mod=mod").env("GOCACHE", place.join("cache"));
    let output = build.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(Language {
        name: "Go",
        command: vec![program.display().to_string()],
        environment: vec![("LD_LIBRARY_PATH".into(), library_directory().display().to_string())],
    })
}

fn ruby() -> Option<Language> {
    works("ruby", &["-rfiddle", "-e", ""]).then(|| Language {
        name: "Ruby",
        command: words(&["ruby", &example("ruby/lock.rb")]),
        environment: Vec::new(),
    })
}

fn languages() -> &'static [Language] {
    static LANGUAGES: OnceLock<Vec<Language>> = OnceLock::new();
    LANGUAGES.get_or_init(|| {
        let all = [("Node.js", node()), ("Java", java()), ("Go", go()), ("Ruby", ruby())];
        let here = all.into_iter().filter_map(|(name, language)| {
            if language.is_none() {
                println!("skipped: {name} is not installed");
            }
            language
        });
        here.collect()
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn finished(name: &str, output: Output) -> String {
    assert!(output.status.success(), "{name}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn each_takes_it_times_out_behind_another_and_gives_it_back() {
    for language in languages() {
        let (_directory, cache) = scratch();
        let cache = cache.to_str().unwrap();
        let had = finished(language.name, language.run(&["try", cache, "1"]).output().unwrap());
        assert_eq!(had, "had it\n", "{}", language.name);

        let mut holder = language.run(&["hold", cache]).stdin(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(holder.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "held\n", "{}", language.name);
        for other in languages() {
            let refused = other.run(&["try", cache, "0.05"]).output().unwrap();
            let told = text(&refused.stderr);
            assert_eq!(refused.status.code(), Some(1), "{} behind {}: {told}", other.name, language.name);
            assert!(
                told.starts_with("timed out after 0.05"),
                "{} behind {}: {told}",
                other.name,
                language.name
            );
            assert!(told.contains(&format!("pid {}", holder.id())), "{}: {told}", other.name);
        }
        writeln!(holder.stdin.as_ref().unwrap()).unwrap();
        line.clear();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "released\n", "{}", language.name);
        assert!(holder.wait().unwrap().success());
    }
}

/// With C and Python in the mix: reading, adding and writing in three steps loses updates if there are ever two holders.
#[test]
fn all_of_them_count_together_and_lose_nothing() {
    const EACH: usize = 200;
    let (directory, cache) = scratch();
    let (cache, counter) = (cache.to_str().unwrap(), directory.path().join("counter"));
    std::fs::write(&counter, "0").unwrap();
    let file = counter.to_str().unwrap();
    let script = format!(
        "import sys; sys.path.insert(0, '{ROOT}/python'); import jitlock\n\
         for _ in range({EACH}):\n  with jitlock.lock(sys.argv[1]):\n    number = int(open(sys.argv[2]).read()) + 1\n    \
         with open(sys.argv[2], 'w') as file: file.write(str(number))\n"
    );
    let python =
        Language { name: "Python", command: words(&["python3", "-c", &script]), environment: Vec::new() };
    let mut running: Vec<_> = languages()
        .iter()
        .map(|language| (language.name, language.run(&["count", cache, file, &EACH.to_string()])))
        .chain([(python.name, python.run(&[cache, file]))])
        .map(|(name, mut command)| (name, command.spawn().unwrap()))
        .collect();
    let count = running.len() + 1;
    for _ in 0..EACH {
        let lock = acquire(Path::new(cache), -1).unwrap();
        let number: usize = std::fs::read_to_string(&counter).unwrap().trim().parse().unwrap();
        std::fs::write(&counter, (number + 1).to_string()).unwrap();
        release(lock).unwrap();
    }
    for (name, child) in running.drain(..) {
        finished(name, child.wait_with_output().unwrap());
    }
    assert_eq!(std::fs::read_to_string(&counter).unwrap().trim(), (count * EACH).to_string());
}

/// The README's three lines of a language, in the least around them that makes a program, which leaves a lock file behind.
fn snippet_runs(name: &str, program: &str, build: impl FnOnce(&Path), run: impl FnOnce(&Path) -> Command) {
    let (directory, _) = scratch();
    let source = program.replace("SNIPPET", &snippet(name));
    let file = match name {
        "java" => "Main.java".to_owned(),
        _ => format!("main.{name}"),
    };
    std::fs::write(directory.path().join(file), source).unwrap();
    build(directory.path());
    let mut command = run(directory.path());
    command.current_dir(directory.path()).env("LD_LIBRARY_PATH", library_directory());
    finished(name, command.output().unwrap());
    let record = std::fs::read_to_string(directory.path().join("cache/my_kernel.lock")).unwrap();
    assert!(record.starts_with("jitlock 1 free"), "{name}: {record}");
}

#[test]
fn the_snippets_of_the_readme_run() {
    for language in languages() {
        match language.name {
            "Node.js" => snippet_runs(
                "js",
                "SNIPPET",
                |_| {},
                |_| {
                    let mut command = Command::new("node");
                    command.arg("main.js").envs(language.environment.iter().cloned());
                    command
                },
            ),
            "Java" => snippet_runs(
                "java",
                "import com.sun.jna.NativeLibrary;\nimport com.sun.jna.ptr.LongByReference;\nclass Main {\n\
                 public static void main(String[] arguments) {\nLongByReference lock = new LongByReference();\nSNIPPET}\n}\n",
                |_| {},
                |_| {
                    let mut command = Command::new("java");
                    command.args(["-cp", "/usr/share/java/jna.jar", "Main.java"]);
                    command
                },
            ),
            "Go" => snippet_runs(
                "go",
                "package main\n\n// #cgo pkg-config: jitlock\n// #include <jitlock.h>\nimport \"C\"\n\nfunc main() {\n\
                 path := C.CString(\"cache/my_kernel\")\nSNIPPET}\n",
                |directory| std::fs::write(directory.join("go.mod"), "module snippet\n\ngo 1.19\n").unwrap(),
                |_| {
                    let place = scratch_of_cargo("go");
                    let mut command = Command::new("go");
                    command.args(["run", "."]).env("PKG_CONFIG_PATH", &place).env("GOCACHE", place.join("cache"));
                    command
                },
            ),
            _ => {}
        }
    }
}
