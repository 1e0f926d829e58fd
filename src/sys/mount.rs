//! Which mount a file lies on, by /proc/self/mountinfo (proc_pid_mountinfo(5)).

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use super::proc::read_text;
use super::Mount;

/// The mount that the descriptor was opened through; none where /proc is not there, or the mount no longer is.
pub(crate) fn mount_of(file: &File) -> Option<Mount> {
    let info = read_text(Path::new(&format!("/proc/self/fdinfo/{}", file.as_raw_fd())))?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    let mounts = read_text(Path::new("/proc/self/mountinfo"))?;
    let (kind, options) = mounts.lines().find_map(|line| parse(line, id))?;
    let release = read_text(Path::new("/proc/sys/kernel/osrelease"))?;
    Some(Mount { kind, options, kernel: version(&release)? })
}

/// `36 35 0:52 / /home rw,noatime shared:1 - nfs4 server:/home rw,vers=4.2,local_lock=none`: its file system and all
/// options, if it is the one of that number.
fn parse(line: &str, id: &str) -> Option<(String, Vec<String>)> {
    // Blanks in names are written as \040.
    let (mount, file_system) = line.split_once(" - ")?;
    let mut mount = mount.split(' ');
    if mount.next()? != id {
        return None;
    }
    let mut file_system = file_system.split(' ');
    let kind = file_system.next()?.to_owned();
    let options = [mount.nth(4)?, file_system.nth(1)?];
    Some((kind, options.iter().flat_map(|list| list.split(',')).map(str::to_owned).collect()))
}

/// The first two numbers of `6.1.0-13-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_gives_the_file_system_and_all_its_options() {
        let (kind, options) = parse(
            r"36 35 0:52 / /home/a\040b rw,noatime shared:1 master:2 - nfs4 server:/a rw,vers=4.2,local_lock=none",
            "36",
        )
        .unwrap();
        assert_eq!(kind, "nfs4");
        assert_eq!(options, ["rw", "noatime", "rw", "vers=4.2", "local_lock=none"]);
        assert_eq!(parse("36 35 0:52 / /home rw - nfs4 server:/a rw", "6"), None);
        for torn in ["36", "36 35 0:52 / /home rw nfs4 server:/a rw", "36 35 - nfs4 a b", ""] {
            assert_eq!(parse(torn, "36"), None);
        }
    }

    #[test]
    fn this_machine_has_mounts_and_a_kernel() {
        let mount = mount_of(&File::options().read(true).open("/proc/self/mountinfo").unwrap()).unwrap();
        assert_eq!(mount.kind, "proc");
        assert!(mount.options.iter().any(|option| option == "rw" || option == "ro"));
        assert!(mount.kernel > (2, 6));
        assert_eq!(version("6.1.0-13-amd64"), Some((6, 1)));
        assert_eq!(version("unknown"), None);
    }
}
