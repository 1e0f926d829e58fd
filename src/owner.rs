//! The owner record: what a holder writes into the lock file, for people and for the next owner.
//!
//! It never decides who holds the lock. It tells the next owner whether the last one released it or ended without
//! doing so. The format is a contract with other implementations: PROTOCOL.md has it in full.

use std::io::Write;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::printable;
use crate::lockfile::LockFile;
use crate::process;
use crate::sys::{self, Identity};

/// The whole record; a fixed size makes it one write that needs no truncation, within one sector.
const SIZE: usize = 512;

const HELD: &[u8] = b"jitlock 1 held\n";
const FREE: &[u8] = b"jitlock 1 free\n";
/// Where the two differ, and where our own records have the moment.
const STATE: Range<usize> = 10..14;
const SINCE: Range<usize> = 21..35;
const SINCE_BOOT: Range<usize> = 43..57;

/// What a lock file says about its last owner.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum State {
    Empty,
    Released,
    /// Not released. The owner is none where the record is torn, or not one of ours.
    Held(Option<Arc<Record>>),
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
    /// When the lock was acquired, by the owner's wall clock.
    pub since: SystemTime,
    /// The same since boot: a clock that is never set, by which the kernel notes the start of processes too.
    pub since_boot: Duration,
    /// Process group.
    pub group: u32,
    /// Session.
    pub session: u32,
}

/// What this process writes: the same each time, but for the moment.
pub(crate) struct OwnRecord {
    pub record: Record,
    text: [u8; SIZE],
}

impl State {
    pub(crate) fn into_record(self) -> Option<Arc<Record>> {
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
    if !file.writable {
        return false;
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    sys::write_at(file.file(), &process::own_record().at(since, sys::since_boot()), 0).is_ok()
}

/// Marks the record as released, in place.
pub(crate) fn mark_released(file: &LockFile) {
    // If it fails, the next owner is told that we died, which errs on the safe side.
    let _ = sys::write_at(file.file(), &FREE[STATE], STATE.start as u64);
}

impl OwnRecord {
    pub(crate) fn new(me: Identity) -> OwnRecord {
        let record = Record {
            pid: me.pid,
            start: me.start,
            pid_namespace: me.pid_namespace,
            boot: me.boot,
            host: me.host,
            command: printable(&me.command),
            since: UNIX_EPOCH,
            since_boot: Duration::ZERO,
            group: me.group,
            session: me.session,
        };
        let text = format(&record);
        OwnRecord { record, text }
    }

    /// The text with the moment, since 1970 and since boot, put in its places.
    fn at(&self, since: Duration, since_boot: Duration) -> [u8; SIZE] {
        let mut text = self.text;
        text[SINCE].copy_from_slice(&moment(since));
        text[SINCE_BOOT].copy_from_slice(&moment(since_boot));
        text
    }
}

/// Seconds with three decimals, in fourteen bytes: after 1970, until the year 2286.
fn moment(since: Duration) -> [u8; 14] {
    let mut millis = since.as_secs() * 1000 + u64::from(since.subsec_millis());
    let mut text = *b"0000000000.000";
    for place in text.iter_mut().rev().filter(|place| **place != b'.') {
        *place += (millis % 10) as u8;
        millis /= 10;
    }
    text
}

fn format(record: &Record) -> [u8; SIZE] {
    let mut bytes = [b' '; SIZE];
    let mut rest = &mut bytes[..SIZE - 1];
    let since = moment(record.since.duration_since(UNIX_EPOCH).unwrap_or_default());
    let since_boot = moment(record.since_boot);
    // Fails when the record is full, which cuts the command line: the reason that it comes last.
    let _ = write!(
        rest,
        "jitlock 1 held\nsince {}\nuptime {}\npid {}\nstart {}\npgid {}\nsid {}\npidns {}\nboot {}\nhost {}\ncommand {}",
        String::from_utf8_lossy(&since),
        String::from_utf8_lossy(&since_boot),
        record.pid,
        record.start,
        record.group,
        record.session,
        record.pid_namespace,
        record.boot,
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
fn parse_fields(bytes: &[u8]) -> Option<Arc<Record>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let field = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).map(str::trim_end)
    };
    let number = |text: &str| text.parse::<u64>().ok();
    let small = |name: &str| number(field(name)?)?.try_into().ok();
    let moment = |name: &str| {
        let (seconds, millis) = field(name)?.split_once('.')?;
        Duration::from_secs(number(seconds)?).checked_add(Duration::from_millis(number(millis)?))
    };
    Some(Arc::new(Record {
        pid: small("pid")?,
        start: number(field("start")?)?,
        pid_namespace: number(field("pidns")?)?,
        boot: field("boot")?.to_owned(),
        host: field("host")?.to_owned(),
        command: field("command")?.to_owned(),
        since: UNIX_EPOCH.checked_add(moment("since")?)?,
        since_boot: moment("uptime")?,
        group: small("pgid")?,
        session: small("sid")?,
    }))
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
            since: UNIX_EPOCH + Duration::from_millis(1_764_566_400_123),
            since_boot: Duration::from_millis(81_234_567),
            group: 40,
            session: 1,
        }
    }

    #[test]
    fn a_record_reads_back() {
        let record = record("python train.py", "node17");
        assert_eq!(parse(&format(&record)), State::Held(Some(Arc::new(record))));
    }

    #[test]
    fn the_moment_is_all_that_changes_in_ones_own_record() {
        let (since, since_boot) = (Duration::from_millis(1_764_566_400_007), Duration::from_millis(1_002));
        let own = OwnRecord::new(sys::identity());
        let State::Held(Some(read)) = parse(&own.at(since, since_boot)) else { panic!("unreadable") };
        let since = UNIX_EPOCH + since;
        assert_eq!(*read, Record { since, since_boot, command: read.command.clone(), ..own.record });
    }

    #[test]
    fn a_released_record_reads_as_released() {
        let mut bytes = format(&record("x", "y"));
        bytes[STATE].copy_from_slice(&FREE[STATE]);
        assert_eq!(parse(&bytes), State::Released);
    }

    #[test]
    fn a_record_cut_anywhere_is_a_death_with_an_unknown_owner() {
        let bytes = format(&record("python train.py", "node17"));
        assert_eq!(parse(&[]), State::Empty);
        for length in 1..SIZE {
            assert_eq!(parse(&bytes[..length]), State::Held(None), "{length}");
        }
    }

    #[test]
    fn a_command_too_long_is_cut_between_characters() {
        let long = "é".repeat(SIZE);
        let State::Held(Some(read)) = parse(&format(&record(&long, "h"))) else { panic!("unreadable") };
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
            let State::Held(Some(read)) = parse(&format(&record(&command, "h"))) else { panic!("unreadable") };
            prop_assert_eq!(&*read.command, command.trim_end());
        }
    }
}
