//! The core promises on Windows, tested under Wine: `tests/windows/core.c` has the scenarios.

mod common;
use common::*;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const WINE: &str = "/usr/lib/wine/wine64";
const SERVER: &str = "/usr/lib/wine/wineserver64";

#[test]
fn the_core_promises_hold_under_wine() {
    let tools = ["/usr/bin/x86_64-w64-mingw32-gcc", WINE, SERVER, "/usr/bin/rustc"];
    if let Some(missing) = tools.iter().find(|tool| !Path::new(tool).exists()) {
        skip!("{missing} is missing: gcc-mingw-w64-x86-64, wine64, rustc-web, rust-web-src");
    }
    let (directory, _) = scratch();
    let built = Command::new(Path::new(ROOT).join("tests/lab/windows/build")).arg(directory.path()).status();
    assert!(built.unwrap().success());
    let wine = Wine::new(directory.path().join("prefix"));
    fs::create_dir(directory.path().join("run")).unwrap();
    let output = wine.command(WINE).args(["core.exe", "run"]).current_dir(&directory).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "see above");
    assert!(text.lines().count() > 20 && text.lines().all(|line| line.starts_with("ok ")));
}

/// A Wine of our own, with a server that ends with it.
struct Wine {
    prefix: PathBuf,
}

impl Wine {
    fn new(prefix: PathBuf) -> Wine {
        fs::create_dir(&prefix).unwrap();
        Wine { prefix }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("WINEPREFIX", &self.prefix).env("WINEDEBUG", "-all").env_remove("DISPLAY");
        // Neither a browser engine nor .NET is asked for when the prefix is made.
        command.env("WINEDLLOVERRIDES", "mscoree=;mshtml=");
        command
    }
}

impl Drop for Wine {
    fn drop(&mut self) {
        for order in ["-k", "-w"] {
            let _ = self.command(SERVER).arg(order).status();
        }
        // Where its socket was; one for each prefix.
        let Ok(prefix) = fs::metadata(&self.prefix) else { return };
        let servers = format!("/tmp/.wine-{}", prefix.uid());
        let _ = fs::remove_dir_all(format!("{servers}/server-{:x}-{:x}", prefix.dev(), prefix.ino()));
        let _ = fs::remove_dir(servers);
    }
}
