//! What only Linux tells: the kind of file system, who this process is, who has a file locked.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use super::unix::{check, kind_of, with_c_path};
use super::{Dir, FileId, FileStat, Identity, KernelHolder, KernelHolders, Mode};

/// statfs(2) magic numbers of file systems that other hosts, or a user's daemon, may answer for.
const REMOTE: [u32; 16] = [
    0x0000_6969, // NFS
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB2
    0x0000_517b, // SMB
    0x6573_5546, // FUSE, virtiofs
    0x0102_1997, // 9P
    0x00c3_6400, // Ceph
    0x0bd0_0bd0, // Lustre
    0x4750_4653, // GPFS
    0x1983_0326, // BeeGFS
    0x5346_414f, // AFS
    0x6b41_4653, // kAFS
    0x7375_7245, // Coda
    0x0116_1970, // GFS2
    0x7461_636f, // OCFS2
    0x786f_4256, // vboxsf
];

/// A record is read right after somebody else wrote it, so each reading would have the inode's access time updated, which
/// costs more than the reading (open(2), O_NOATIME).
pub(super) const KEEP_ACCESS_TIME: libc::c_int = libc::O_NOATIME;

/// Whether the kernel of this host alone answers for the file's locks, and cannot hang on a server.
pub(crate) fn is_local(file: &File) -> io::Result<bool> {
    // SAFETY: an all-zero statfs is valid; the call only writes to it.
    let mut answer: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and the buffer is ours.
    if unsafe { libc::fstatfs(file.as_raw_fd(), &mut answer) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(!REMOTE.contains(&(answer.f_type as u32)))
}

/// statx(2), for no more than is used. The times least of all: whoever has looked at them makes the next write of the
/// file update them anew, and that costs more than the write (multigrain timestamps, Linux 6.13).
fn statx(directory: RawFd, path: &CStr, flags: libc::c_int) -> io::Result<FileStat> {
    const USED: libc::c_uint =
        libc::STATX_TYPE | libc::STATX_MODE | libc::STATX_INO | libc::STATX_UID | libc::STATX_NLINK;
    // SAFETY: an all-zero statx is valid; the call only writes to it.
    let mut answer: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: a terminated path, and a buffer of ours.
    check(unsafe { libc::statx(directory, path.as_ptr(), flags, USED, &mut answer) })?;
    Ok(FileStat {
        id: FileId {
            device: libc::makedev(answer.stx_dev_major, answer.stx_dev_minor),
            inode: answer.stx_ino,
        },
        kind: kind_of(answer.stx_mode.into()),
        links: answer.stx_nlink.into(),
        mode: u32::from(answer.stx_mode) & 0o7777,
        owner: answer.stx_uid,
    })
}

pub(crate) fn stat(file: &File) -> io::Result<FileStat> {
    statx(file.as_raw_fd(), c"", libc::AT_EMPTY_PATH)
}

/// Of the path itself, not of what a symlink there points at.
pub(crate) fn stat_path(path: &Path) -> io::Result<FileStat> {
    with_c_path(path, |path| statx(libc::AT_FDCWD, path, libc::AT_SYMLINK_NOFOLLOW))
}

/// For debuggers and `top`.
pub(super) fn name_thread(name: &CStr) {
    // SAFETY: a terminated string; PR_SET_NAME concerns the calling thread.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

pub(super) fn io_pipe() -> io::Result<(RawFd, RawFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    match unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } {
        0 => Ok((ends[0], ends[1])),
        _ => Err(io::Error::last_os_error()),
    }
}

/// ppoll(2) on one descriptor, with `mask` in force while it waits.
pub(super) fn poll_unmasked(
    descriptor: RawFd,
    remaining: Option<Duration>,
    mask: &libc::sigset_t,
) -> io::Result<i32> {
    let mut event = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    let limit = remaining.map(super::unix::timespec);
    let limit = limit.as_ref().map_or(std::ptr::null(), |limit| limit as *const libc::timespec);
    // SAFETY: one pollfd, and pointers that outlive the call.
    match unsafe { libc::ppoll(&mut event, 1, limit, mask) } {
        -1 => Err(io::Error::last_os_error()),
        ready => Ok(ready),
    }
}

/// openat2(2) refuses to cross into another mount, a bind mount of the same file system too. Kernels before 5.6 and
/// some sandboxes do not have it: there the device number has to do.
pub(super) fn open_child_of_same_mount(parent: RawFd, name: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: an all-zero open_how is valid.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = super::dir::OPEN_DIRECTORY as u64;
    how.resolve = libc::RESOLVE_NO_XDEV | libc::RESOLVE_NO_SYMLINKS;
    // SAFETY: an open descriptor, a terminated name, and a structure of the size given.
    let answer =
        unsafe { libc::syscall(libc::SYS_openat2, parent, name.as_ptr(), &how, std::mem::size_of_val(&how)) };
    match RawFd::try_from(answer) {
        // SAFETY: just made, and nobody else knows it.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => match io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                super::dir::open_child_of_same_device(parent, name)
            }
            error => Err(error),
        },
    }
}

/// Adds permission bits to a directory that may not be opened, without following a symlink: by way of /proc, since
/// fchmodat(2) has no such flag before Linux 6.6.
pub(super) fn change_mode_of_child(parent: RawFd, name: &CStr, bits: libc::mode_t) -> io::Result<()> {
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: an open descriptor and a terminated name.
    let descriptor = unsafe { libc::openat(parent, name.as_ptr(), flags) };
    check(descriptor)?;
    // SAFETY: just made, and nobody else knows it.
    let child = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let mode = super::dir::dir_stat(child.as_raw_fd())?.st_mode & 0o7777;
    let path = CString::new(format!("/proc/self/fd/{}", child.as_raw_fd()))?;
    // SAFETY: a terminated path.
    check(unsafe { libc::chmod(path.as_ptr(), mode | bits) })
}

/// getpid(2) without a system call each time: the page that remembers it is empty in every child, also of a raw `clone`
/// (MADV_WIPEONFORK, Linux 4.14).
pub(crate) fn process_id() -> u32 {
    static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());
    let mut page = PAGE.load(Ordering::Acquire);
    if page.is_null() {
        let Some(new) = page_wiped_on_fork() else { return std::process::id() };
        // Two threads that come at once each map one; the second stays unused.
        page = PAGE
            .compare_exchange(page, new, Ordering::AcqRel, Ordering::Acquire)
            .map_or_else(|first| first, |_| new);
    }
    // SAFETY: the page is never unmapped, and zero is a valid number.
    let remembered = unsafe { &*page };
    match remembered.load(Ordering::Relaxed) {
        0 => {
            let pid = std::process::id();
            remembered.store(pid, Ordering::Relaxed);
            pid
        }
        pid => pid,
    }
}

fn page_wiped_on_fork() -> Option<*mut AtomicU32> {
    let size = std::mem::size_of::<AtomicU32>();
    let (protection, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping that overlaps nothing.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), size, protection, kind, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping made above.
    match unsafe { libc::madvise(page, size, libc::MADV_WIPEONFORK) } {
        0 => Some(page.cast()),
        _ => {
            // SAFETY: as above, and nobody else knows it.
            unsafe { libc::munmap(page, size) };
            None
        }
    }
}

/// This process, as far as /proc tells; what it does not tell is left empty.
pub(crate) fn identity() -> Identity {
    Identity {
        pid: std::process::id(),
        group: super::unix::process_group(),
        session: super::unix::session(),
        start: start_ticks("self").unwrap_or(0),
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
    start_ticks(&pid.to_string())
}

/// When a process that started so many ticks after boot did, by the wall clock.
pub(crate) fn wall_clock(start: u64) -> Option<SystemTime> {
    // SAFETY: a plain query.
    let ticks = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok().filter(|&ticks| ticks > 0)?;
    // SAFETY: an all-zero timespec is valid; the call only writes to it.
    let mut since_boot: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    check(unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut since_boot) }).ok()?;
    let since_boot = Duration::new(since_boot.tv_sec.try_into().ok()?, since_boot.tv_nsec.try_into().ok()?);
    let start = Duration::from_millis(start.checked_mul(1000)? / ticks);
    SystemTime::now().checked_sub(since_boot.saturating_sub(start))
}

/// Whether this process is the other one, which started so many ticks after boot, or descends from it.
pub(crate) fn descends_from(other: u32, start: u64) -> bool {
    let mut pid = process_id();
    // Each look at a process costs, and nobody descends from one that started later.
    while pid != other {
        match parent_and_start(&pid.to_string()) {
            Some((parent, own_start)) if own_start >= start && parent != 0 => pid = parent,
            _ => return false,
        }
    }
    true
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

fn start_ticks(process: &str) -> Option<u64> {
    parent_and_start(process).map(|(_, start)| start)
}

/// Fields 4 and 22 of /proc/PID/stat; the name in field 2 may hold spaces and parentheses of its own.
fn parent_and_start(process: &str) -> Option<(u32, u64)> {
    let stat = read_some(&format!("/proc/{process}/stat"))?;
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let mut fields = std::str::from_utf8(stat.get(name_end + 1..)?).ok()?.split_ascii_whitespace().skip(1);
    let parent = fields.next()?.parse().ok()?;
    Some((parent, fields.nth(17)?.parse().ok()?))
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
    entries.iter().filter_map(|entry| entry.name.to_str().ok()?.parse().ok()).collect()
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

fn read_text(path: &Path) -> Option<String> {
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
