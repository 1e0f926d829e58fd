//! What /proc tells: who this process is, which others there are, what they have open, who has a file locked.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::{process_id, Dir, FileId, Identity, KernelHolder, KernelHolders, Mode, Openers, Process};

/// This process, as far as /proc tells; what it does not tell is left empty.
pub(crate) fn identity() -> Identity {
    Identity {
        pid: std::process::id(),
        group: super::unix::process_group(),
        session: super::unix::session(),
        start: process("self").map_or(0, |process| process.start),
        pid_namespace: pid_namespace().unwrap_or(0),
        boot: read_text(Path::new("/proc/sys/kernel/random/boot_id")).unwrap_or_default().trim().to_owned(),
        host: super::unix::host_name(),
        command: command("self"),
    }
}

/// The command line of a process that still runs, arguments separated by spaces; its bare name for a kernel
/// thread or a zombie.
pub(crate) fn command_of(pid: u32) -> Vec<u8> {
    command(&pid.to_string())
}

/// When a process that still runs was started, in clock ticks after boot.
pub(crate) fn start_of(pid: u32) -> Option<u64> {
    process_of(pid).map(|process| process.start)
}

/// When a process that started so many ticks after boot did, by the wall clock.
pub(crate) fn wall_clock(start: u64) -> Option<SystemTime> {
    SystemTime::now().checked_sub(since_boot().saturating_sub(after_boot(start)?))
}

/// The time since boot that is so many clock ticks.
pub(crate) fn after_boot(ticks: u64) -> Option<Duration> {
    // SAFETY: a plain query.
    let each = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok().filter(|&each| each > 0)?;
    Some(Duration::from_millis(ticks.checked_mul(1000)? / each))
}

/// How long the machine is up, by the clock that the kernel notes the start of processes by. Nobody can set it.
pub(crate) fn since_boot() -> Duration {
    // SAFETY: an all-zero timespec is valid; the call only writes to it.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: as above; the clock is there since Linux 2.6.39.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Whether this process is the other one, which started so many ticks after boot, or descends from it.
pub(crate) fn descends_from(other: u32, start: u64) -> bool {
    let mut pid = process_id();
    // Each look at a process costs, and nobody descends from one that started later.
    while pid != other {
        match process_of(pid) {
            Some(process) if process.start >= start && process.parent != 0 => pid = process.parent,
            _ => return false,
        }
    }
    true
}

/// The processes of a group or a session that can be seen from here. The numbers of all are asked for by system calls,
/// which cost a fiftieth of a look into /proc.
pub(crate) fn relatives(group: u32, session: u32) -> Vec<Process> {
    let is_one = |&pid: &u32| {
        let pid = pid as libc::pid_t;
        // SAFETY: plain queries.
        let (its_group, its_session) = unsafe { (libc::getpgid(pid), libc::getsid(pid)) };
        u32::try_from(its_group) == Ok(group) || u32::try_from(its_session) == Ok(session)
    };
    every_process().filter(is_one).filter_map(process_of).collect()
}

/// A process that still runs.
pub(crate) fn process_of(pid: u32) -> Option<Process> {
    process(&pid.to_string())
}

/// Where a process works: its working directory and what it has open, as paths. None where this user may not look.
pub(crate) fn places_of(pid: u32) -> Option<Vec<PathBuf>> {
    let mut places = match std::fs::read_link(format!("/proc/{pid}/cwd")) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return None,
        answer => Vec::from_iter(answer),
    };
    let descriptors = PathBuf::from(format!("/proc/{pid}/fd"));
    let links = numbers_in(&descriptors).into_iter().map(|number| descriptors.join(number.to_string()));
    // Pipes and sockets have no place.
    places.extend(links.filter_map(|link| std::fs::read_link(link).ok()).filter(|place| place.is_absolute()));
    Some(places)
}

/// Who has the file open, not counting one descriptor of this process. Without a look at any file: one of them may lie on
/// a file system that does not answer.
pub(crate) fn openers(id: FileId, except: Option<&File>) -> Openers {
    let here = except.map(|file| (process_id(), file.as_raw_fd() as u32));
    let everybody: Vec<u32> = every_process().collect();
    // Who may not see the first process (proc(5), hidepid) may miss others.
    let mut complete = pid_namespace() == Some(INITIAL_PID_NAMESPACE) && everybody.contains(&1);
    let mut pids = Vec::new();
    for pid in everybody {
        let descriptors = PathBuf::from(format!("/proc/{pid}/fd"));
        if let Err(error) = Dir::open(&descriptors) {
            complete &= matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH));
            continue;
        }
        let has_it = |&number: &u32| Some((pid, number)) != here && opened(pid, number) == Some(id.inode);
        if numbers_in(&descriptors).iter().any(has_it) {
            pids.push(pid);
        }
    }
    Openers { pids, complete }
}

/// Inode number of what a descriptor has open, if that has a path (Linux 5.14).
fn opened(pid: u32, number: u32) -> Option<u64> {
    std::fs::read_link(format!("/proc/{pid}/fd/{number}")).ok().filter(|place| place.is_absolute())?;
    let info = read_text(Path::new(&format!("/proc/{pid}/fdinfo/{number}")))?;
    info.lines().find_map(|line| line.strip_prefix("ino:"))?.trim().parse().ok()
}

fn command(process: &str) -> Vec<u8> {
    let mut line = read_some(&format!("/proc/{process}/cmdline")).unwrap_or_default();
    while line.last() == Some(&0) {
        line.pop();
    }
    if line.is_empty() {
        line = read_some(&format!("/proc/{process}/comm")).unwrap_or_default();
        line.retain(|&byte| byte != b'\n');
    }
    for byte in &mut line {
        if *byte == 0 {
            *byte = b' ';
        }
    }
    line
}

/// Fields 1, 4 to 6 and 22 of /proc/PID/stat; the name in field 2 may hold spaces and parentheses of its own.
fn process(name: &str) -> Option<Process> {
    let stat = read_some(&format!("/proc/{name}/stat"))?;
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let text = |bytes| std::str::from_utf8(bytes).ok();
    let mut fields = text(stat.get(name_end + 1..)?)?.split_ascii_whitespace().skip(1);
    Some(Process {
        pid: text(&stat)?.split(' ').next()?.parse().ok()?,
        parent: fields.next()?.parse().ok()?,
        group: fields.next()?.parse().ok()?,
        // A foreign session is 0 or less in some namespaces.
        session: fields.next()?.parse().unwrap_or(0),
        start: fields.nth(15)?.parse().ok()?,
    })
}

fn pid_namespace() -> Option<u64> {
    let link = std::fs::read_link("/proc/self/ns/pid").ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// Inode of the initial pid namespace: PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h. Only there
/// does /proc/locks list every holder.
const INITIAL_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Everybody who has the file locked. The pid in /proc/locks is the one that *took* the lock: it may be dead while a
/// forked child keeps it, and inside a container it may be hidden or 0 (measured on 6.18). So each is asked itself, and
/// if one does not confirm, all processes are.
///
/// Not for every try: reading /proc/locks waits for an RCU grace period, some milliseconds, and holds up every lock call
/// of the machine meanwhile (`locks_start` in the kernel's fs/locks.c).
pub(crate) fn kernel_holders(id: FileId) -> KernelHolders {
    let listed = listed_holders(id);
    let sees_all = listed.is_some() && pid_namespace() == Some(INITIAL_PID_NAMESPACE);
    let listed = listed.unwrap_or_default();
    let confirmed: Option<Vec<KernelHolder>> = listed.iter().map(|holder| holds(holder.pid, id)).collect();
    let holders = match confirmed {
        Some(confirmed) if sees_all || !confirmed.is_empty() => confirmed,
        _ => every_process().filter_map(|pid| holds(pid, id)).collect(),
    };
    KernelHolders { complete: sees_all && (listed.is_empty() || !holders.is_empty()), holders }
}

/// The lines of /proc/locks about the file. One read is one consistent look, of a page at most (seq_file in the
/// kernel); while a longer table is read, a lock that goes can hide another, so "nobody" is asked for again.
fn listed_holders(id: FileId) -> Option<Vec<KernelHolder>> {
    const LOOKS: usize = 5;
    for _ in 0..LOOKS {
        let (table, reads) = read_whole(Path::new("/proc/locks"), usize::MAX)?;
        let text = String::from_utf8_lossy(&table);
        let listed: Vec<KernelHolder> = text.lines().filter_map(|line| parse_lock_line(line, id)).collect();
        if reads <= 1 || !listed.is_empty() {
            return Some(listed);
        }
    }
    Some(Vec::new())
}

fn every_process() -> impl Iterator<Item = u32> {
    numbers_in(Path::new("/proc")).into_iter()
}

/// The entries of a directory of /proc that are named after a process or a descriptor.
fn numbers_in(directory: &Path) -> Vec<u32> {
    let entries = Dir::open(directory).and_then(|directory| directory.entries()).unwrap_or_default();
    entries.iter().filter_map(|entry| entry.name.to_str()?.parse().ok()).collect()
}

/// Whether one of the process's descriptors carries an flock on the file, by the kernel's word.
pub(crate) fn holds(pid: u32, id: FileId) -> Option<KernelHolder> {
    let descriptors = PathBuf::from(format!("/proc/{pid}/fdinfo"));
    for number in numbers_in(&descriptors) {
        let Some(info) = read_text(&descriptors.join(number.to_string())) else { continue };
        for line in info.lines() {
            let holder = line.strip_prefix("lock:\t").and_then(|line| parse_lock_line(line, id));
            if let Some(holder) = holder {
                return Some(KernelHolder { pid, ..holder });
            }
        }
    }
    None
}

/// A line of /proc/locks or fdinfo: `1: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF`, numbers of the device in
/// hexadecimal. Waiters have an arrow after the number and hold nothing.
fn parse_lock_line(line: &str, id: FileId) -> Option<KernelHolder> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    if fields.next()? != "FLOCK" {
        return None;
    }
    let mode = match fields.nth(1)? {
        "WRITE" => Mode::Exclusive,
        _ => Mode::Shared,
    };
    let pid = fields.next()?.parse().unwrap_or(0);
    let mut file = fields.next()?.split(':');
    let major = u32::from_str_radix(file.next()?, 16).ok()?;
    let minor = u32::from_str_radix(file.next()?, 16).ok()?;
    let inode: u64 = file.next()?.parse().ok()?;
    (inode == id.inode && libc::makedev(major, minor) == id.device).then_some(KernelHolder { pid, mode })
}

pub(super) fn read_text(path: &Path) -> Option<String> {
    String::from_utf8(read_whole(path, usize::MAX)?.0).ok()
}

/// The first few kilobytes of a file of /proc, which may be as large as its process likes.
fn read_some(path: &str) -> Option<Vec<u8>> {
    read_whole(Path::new(path), 4096).map(|(bytes, _)| bytes)
}

/// What is in the file, up to `most` and a page, and how many reads it took.
fn read_whole(path: &Path, most: usize) -> Option<(Vec<u8>, usize)> {
    let mut file = File::open(path).ok()?;
    let (mut bytes, mut page, mut reads) = (Vec::new(), [0; 4096], 0);
    while bytes.len() < most {
        match file.read(&mut page).ok()? {
            0 => break,
            length => bytes.extend_from_slice(page.get(..length)?),
        }
        reads += 1;
    }
    Some((bytes, reads))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId { device: 0xfd01, inode: 5678 };

    #[test]
    fn a_lock_line_names_its_holder() {
        let line = "1: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF";
        assert_eq!(parse_lock_line(line, FILE), Some(KernelHolder { pid: 1234, mode: Mode::Exclusive }));
        let reader = "2: FLOCK  ADVISORY  READ 7 fd:01:5678 0 EOF";
        assert_eq!(parse_lock_line(reader, FILE), Some(KernelHolder { pid: 7, mode: Mode::Shared }));
    }

    #[test]
    fn a_line_of_something_else_names_nobody() {
        for line in [
            "",
            "1:",
            "1: FLOCK",
            "1: -> FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF",
            "1: POSIX  ADVISORY  WRITE 1234 fd:01:5678 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 1234 fd:02:5678 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 1234 fd:01:5679 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 1234 nonsense 0 EOF",
        ] {
            assert_eq!(parse_lock_line(line, FILE), None, "{line:?}");
        }
    }

    #[test]
    fn this_process_is_described() {
        let me = identity();
        assert_eq!(me.pid, std::process::id());
        assert!(me.start > 0 && me.pid_namespace > 0 && !me.boot.is_empty() && !me.host.is_empty());
        assert_eq!(start_of(me.pid), Some(me.start));
        assert!(!me.command.is_empty());
    }
}
