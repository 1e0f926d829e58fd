//! The owner record: what a holder writes into the lock file, for people and for the next owner.
//!
//! It never decides who holds the lock. It tells the next owner whether the last one released it or ended without
//! doing so. The format is a contract with other implementations: PROTOCOL.md has it in full.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::printable;
use crate::lockfile::LockFile;
use crate::process;
use crate::sys::{self, Identity};

/// The whole record; a fixed size makes it one write that needs no truncation, within one sector.
const SIZE: usize = 512;

const HELD: &[u8] = b"jitlock 1 held\n";
const FREE: &[u8] = b"jitlock 1 free\n";
/// Where the two differ.
const STATE: std::ops::Range<usize> = 10..14;

/// What a lock file says about its last owner.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum State {
    Empty,
    Released,
    /// Not released. The owner is none where the record is torn, or not one of ours.
    Held(Option<Record>),
    Unreadable,
}

/// Who held a lock, by its own word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// In the pid namespace below.
    pub pid: u32,
    /// Start of the process in the kernel's unit, so that a recycled pid is told apart.
    pub start: u64,
    /// Inode of the pid namespace.
    pub pid_namespace: u64,
    /// The kernel's boot id.
    pub boot: String,
    /// Name of the host.
    pub host: String,
    /// Command line, escaped and perhaps cut.
    pub command: String,
    /// What was true when the lock was acquired.
    pub now: Moment,
}

/// What a process can change while it lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The wall clock.
    pub since: SystemTime,
    /// Process group.
    pub group: i32,
    /// Session.
    pub session: i32,
}

impl State {
    pub(crate) fn into_record(self) -> Option<Record> {
        match self {
            State::Held(record) => record,
            _ => None,
        }
    }
}

pub(crate) fn read(file: &LockFile) -> State {
    read_from(file.file())
}

pub(crate) fn read_from(file: &std::fs::File) -> State {
    let mut bytes = [0; SIZE];
    match sys::read_at(file, &mut bytes) {
        Ok(length) => parse(&bytes[..length]),
        Err(_) => State::Unreadable,
    }
}

/// Writes who we are. False: it could not be written, and the lock is held all the same.
pub(crate) fn write(file: &LockFile) -> bool {
    let now = Moment { since: SystemTime::now(), group: sys::process_group(), session: sys::session() };
    file.writable && sys::write_at(file.file(), &format(&process::own_record(), &now), 0).is_ok()
}

/// Marks the record as released, in place.
pub(crate) fn mark_released(file: &LockFile) {
    // If it fails, the next owner is told that we died, which errs on the safe side.
    let _ = sys::write_at(file.file(), &FREE[STATE], STATE.start as u64);
}

impl Record {
    /// Of the process itself: the part that stays the same while it lives.
    pub(crate) fn of(me: Identity) -> Record {
        Record {
            pid: me.pid,
            start: me.start,
            pid_namespace: me.pid_namespace,
            boot: me.boot,
            host: me.host,
            command: printable(&me.command),
            now: Moment { since: UNIX_EPOCH, group: 0, session: 0 },
        }
    }
}

fn format(record: &Record, now: &Moment) -> [u8; SIZE] {
    let since = now.since.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut bytes = [b' '; SIZE];
    let mut rest = &mut bytes[..SIZE - 1];
    // Fails when the record is full, which cuts the command line: the reason that it comes last.
    let _ = write!(
        rest,
        "jitlock 1 held\npid {}\nstart {}\npgid {}\nsid {}\npidns {}\nboot {}\nsince {}.{:03}\nhost {}\ncommand {}",
        record.pid,
        record.start,
        now.group,
        now.session,
        record.pid_namespace,
        record.boot,
        since.as_secs(),
        since.subsec_millis(),
        record.host,
        record.command,
    );
    if let Err(cut) = std::str::from_utf8(&bytes) {
        // In the middle of a character.
        bytes[cut.valid_up_to()..].fill(b' ');
    }
    bytes[SIZE - 1] = b'\n';
    bytes
}

fn parse(bytes: &[u8]) -> State {
    match bytes {
        [] => State::Empty,
        _ if bytes.starts_with(FREE) => State::Released,
        _ if bytes.starts_with(HELD) && bytes.len() == SIZE && bytes[SIZE - 1] == b'\n' => {
            State::Held(parse_fields(&bytes[HELD.len()..]))
        }
        _ => State::Held(None),
    }
}

/// None if a field is missing or makes no sense. Fields that this version does not know are passed over.
fn parse_fields(bytes: &[u8]) -> Option<Record> {
    let text = std::str::from_utf8(bytes).ok()?;
    let field = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).map(str::trim_end)
    };
    let (seconds, millis) = field("since")?.split_once('.')?;
    let since = Duration::from_secs(seconds.parse().ok()?)
        .checked_add(Duration::from_millis(millis.parse().ok()?))?;
    Some(Record {
        pid: field("pid")?.parse().ok()?,
        start: field("start")?.parse().ok()?,
        pid_namespace: field("pidns")?.parse().ok()?,
        boot: field("boot")?.to_owned(),
        host: field("host")?.to_owned(),
        command: field("command")?.to_owned(),
        now: Moment {
            since: UNIX_EPOCH.checked_add(since)?,
            group: field("pgid")?.parse().ok()?,
            session: field("sid")?.parse().ok()?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(command: &str, host: &str) -> Record {
        Record {
            pid: 42,
            start: 8_123_456,
            pid_namespace: 4_026_531_836,
            boot: "1b4e28ba-2fa1-11d2-883f-0016d3cca427".into(),
            host: host.into(),
            command: command.into(),
            now: Moment {
                since: UNIX_EPOCH + Duration::from_millis(1_764_566_400_123),
                group: 40,
                session: 1,
            },
        }
    }

    fn written(record: &Record) -> [u8; SIZE] {
        format(record, &record.now)
    }

    #[test]
    fn a_record_reads_back() {
        let record = record("python train.py", "node17");
        assert_eq!(parse(&written(&record)), State::Held(Some(record)));
    }

    #[test]
    fn a_released_record_reads_as_released() {
        let mut bytes = written(&record("x", "y"));
        bytes[STATE].copy_from_slice(&FREE[STATE]);
        assert_eq!(parse(&bytes), State::Released);
    }

    #[test]
    fn a_record_cut_anywhere_is_a_death_with_an_unknown_owner() {
        let bytes = written(&record("python train.py", "node17"));
        assert_eq!(parse(&[]), State::Empty);
        for length in 1..SIZE {
            assert_eq!(parse(&bytes[..length]), State::Held(None), "{length}");
        }
    }

    #[test]
    fn a_command_too_long_is_cut_between_characters() {
        let long = "é".repeat(SIZE);
        let State::Held(Some(read)) = parse(&written(&record(&long, "h"))) else { panic!("unreadable") };
        assert!(long.starts_with(&read.command) && read.command.len() > 200);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..SIZE + 1)) {
            let _ = parse(&bytes);
            let mut ours = HELD.to_vec();
            ours.extend(&bytes);
            ours.resize(SIZE, b'\n');
            let _ = parse(&ours);
        }

        #[test]
        fn any_command_line_reads_back_as_printed(command in prop::collection::vec(any::<u8>(), 0..100)) {
            let command = printable(&command);
            let State::Held(Some(read)) = parse(&written(&record(&command, "h"))) else { panic!("unreadable") };
            prop_assert_eq!(read.command, command.trim_end());
        }
    }
}
