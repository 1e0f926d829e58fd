//! The public reports of `CASES.md` each have a test that is there.

use std::fs;
use std::path::{Path, PathBuf};

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[test]
fn every_case_has_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources: String = ["src", "tests"]
        .iter()
        .flat_map(|directory| files_below(&root.join(directory)))
        .filter(|path| path.extension().is_some_and(|kind| kind == "rs" || kind == "py"))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let cases = fs::read_to_string(root.join("tests/CASES.md")).unwrap();
    let rows = cases.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| Report"));
    let mut named = 0;
    for row in rows {
        let tests = row.rsplit('|').nth(1).unwrap().split('`').skip(1).step_by(2);
        let missing: Vec<_> = tests
            .clone()
            .filter(|test| {
                !sources.contains(&format!("fn {test}(")) && !sources.contains(&format!("def {test}("))
            })
            .collect();
        assert!(missing.is_empty(), "no such test: {missing:?}");
        assert_ne!(tests.count(), 0, "{row}");
        named += 1;
    }
    assert!(named > 30, "the table was not understood");
}
