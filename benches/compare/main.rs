//! jitlock and the locks that people use today, in one run on one machine.
//!
//!     cargo bench --bench compare [-- --quick | --save]
//!
//! Prints tables of medians, p99 and ratios, and whether each goal is met. With `--save` they go into the README, and the
//! plot into `benches/compare.svg`; with `--quick` a tenth of the rounds shows that everything works. Ratios mean something on any machine; absolute figures on this one.

mod floor;
mod measure;
mod peer;
mod report;

use std::path::Path;

use measure::Bench;
use peer::Programs;
use report::{figure, goals_markdown, plot, Goal, Table};

fn main() {
    let scratch = tempfile::Builder::new().prefix("jitlock-bench-").tempdir().unwrap();
    let programs = Programs::prepare(scratch.path());
    let asked = |flag: &str| std::env::args().any(|argument| argument == flag);
    let bench = Bench { programs: &programs, directory: scratch.path(), quick: asked("--quick") };
    let uncontended = shown(bench.uncontended());
    let release = shown(bench.handoff(false));
    let death = shown(bench.handoff(true));
    let convoys: Vec<Table> = [1, 8, 64, 256].map(|count| shown(bench.convoy("convoy", count))).into();
    let threads = shown(bench.convoy("threads", 64));
    let (cpu, switches) = bench.cost_of_a_wait();
    let (cpu, switches) = (shown(cpu), shown(switches));
    let clear = shown(bench.clear());
    let (load, size) = bench.load();
    let load = shown(load);

    let at_most = |what, bound, measured| Goal { what, bound, at_most: true, measured };
    let goals = [
        at_most("uncontended, x raw C", 3.0, uncontended.ratio("jitlock", "raw flock(2)")),
        Goal {
            what: "py-filelock, x jitlock",
            bound: 10.0,
            at_most: false,
            measured: uncontended.ratio("py-filelock", "jitlock"),
        },
        at_most("hand-over after a release, x raw", 3.0, release.ratio("jitlock", "raw flock(2)")),
        at_most("hand-over after a death, x raw", 3.0, death.ratio("jitlock", "raw flock(2)")),
        at_most("64 waiting processes, x raw", 1.5, convoys[2].ratio("jitlock", "raw flock(2)")),
        at_most("256 waiting processes, x raw", 1.5, convoys[3].ratio("jitlock", "raw flock(2)")),
        at_most("CPU of a wait of 5 s, ms", 1.0, cpu.row("jitlock").map(|row| row.median())),
        at_most("context switches of a wait of 5 s", 10.0, switches.row("jitlock").map(|row| row.median())),
        at_most("clear, x rm -rf", 1.0, clear.ratio("jitlock", "rm -rf")),
        at_most("size of the library, KiB", 450.0, Some(size)),
    ];
    let mut verdict = goals_markdown(&goals);
    if let Some(floor) = floor::size(scratch.path()) {
        verdict.push_str(&format!(
            "\nOf the size, {} KiB are the standard library's: so much has any library that opens files, starts threads and \
             catches panics, built with the same profile. {} KiB are ours.\n",
            figure(floor),
            figure(size - floor)
        ));
    }
    println!("{verdict}");

    if asked("--save") {
        let mut text = format!(
            "{}\n\n{verdict}\n![medians](benches/compare.svg)\n\n<details><summary>All figures</summary>\n",
            machine()
        );
        let tables = [&uncontended, &release, &death].into_iter().chain(&convoys);
        for table in tables.chain([&threads, &cpu, &switches, &clear, &load]) {
            text.push_str(&format!("\n{}", table.markdown()));
        }
        text.push_str("\n</details>\n");
        save(&text, &plot(&[&uncontended, &release, &death]));
    }
}

fn shown(table: Table) -> Table {
    println!("{}", table.markdown());
    table
}

fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let model = read("/proc/cpuinfo");
    let model =
        model.lines().find_map(|line| line.strip_prefix("model name\t: ")).unwrap_or("unknown processor");
    let kernel = read("/proc/sys/kernel/osrelease");
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    format!("Linux {}, {cores} cores ({model}), {}.", kernel.trim(), file_system())
}

fn file_system() -> String {
    let output = std::process::Command::new("df").arg("--output=fstype").arg(std::env::temp_dir()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().last().unwrap_or_default().to_owned()
}

/// Between the README's two marks, and beside this program.
fn save(text: &str, svg: &str) {
    const BEGIN: &str = "<!-- cargo bench --bench compare -- --save -->\n";
    const END: &str = "<!-- end -->";
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let (before, rest) = readme.split_once(BEGIN).expect("the README's first mark");
    let (_, after) = rest.split_once(END).expect("the README's second mark");
    std::fs::write(root.join("README.md"), format!("{before}{BEGIN}{text}{END}{after}")).unwrap();
    std::fs::write(root.join("benches/compare.svg"), svg).unwrap();
}
