//! Whom a lock excludes: the processes of this host, or those of every host that has its file system.

use std::fs::File;

use crate::sys::{self, Mount};

/// Whom a lock excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// This host's processes; whether other hosts' too cannot be known from here.
    Unknown,
    /// The processes of this host.
    Host,
    /// The processes of every host: the file system's server decides.
    Cluster,
}

/// The scope of a file's lock, and what says so, as the end of a sentence.
pub(crate) fn of(file: &File, local: bool) -> (Scope, String) {
    if local {
        return (Scope::Host, "its file system is this host's own".into());
    }
    match sys::mount_of(file) {
        Some(mount) => of_mount(&mount),
        None => (Scope::Unknown, "how its file system is mounted cannot be seen".into()),
    }
}

/// What keeps the locks of a network file system on the host, option by option and with its remedy, and what it takes for
/// them to be the server's.
struct Rule {
    local: &'static [(&'static str, &'static str)],
    needed: Option<&'static str>,
    since: (u32, u32),
}

impl Rule {
    fn of(kind: &str) -> Option<Rule> {
        const ALWAYS: (u32, u32) = (0, 0);
        let (local, needed, since): (&[_], _, _) = match kind {
            // nfs(5)
            "nfs" | "nfs4" => (
                &[
                    ("nolock", "lock"),
                    ("local_lock=flock", "local_lock=none"),
                    ("local_lock=all", "local_lock=none"),
                ],
                None,
                ALWAYS,
            ),
            // mount.cifs(8); flock(2), CIFS details
            "cifs" | "smb3" => (&[("nobrl", "brl")], None, (5, 5)),
            // mount.lustre(8). Its default was once noflock, then localflock, now flock, and it prints what is in force.
            "lustre" => (&[("localflock", "flock")], Some("flock"), ALWAYS),
            "ceph" => (&[], None, ALWAYS),
            // FUSE, virtiofs, 9P, BeeGFS, GPFS, AFS: their servers may pass flock on or not, and no option tells.
            _ => return None,
        };
        Some(Rule { local, needed, since })
    }
}

fn of_mount(mount: &Mount) -> (Scope, String) {
    let Mount { kind, options, kernel } = mount;
    let Some(rule) = Rule::of(kind) else {
        return (Scope::Unknown, format!("nothing tells whether {kind} passes flock on to its server"));
    };
    let has = |wanted: &str| options.iter().any(|option| option == wanted);
    if let Some((option, remedy)) = rule.local.iter().find(|(option, _)| has(option)) {
        return (
            Scope::Host,
            format!("its {kind} mount has the option {option}, which keeps locks on this host; mount it with {remedy}"),
        );
    }
    match rule.needed {
        Some(needed) if !has(needed) => {
            (Scope::Unknown, format!("its {kind} mount does not say {needed}; mount it with {needed}"))
        }
        _ if *kernel < rule.since => {
            let (major, minor) = rule.since;
            (Scope::Host, format!("before Linux {major}.{minor} flock on {kind} was this host's own"))
        }
        _ => (Scope::Cluster, format!("its {kind} server keeps the lock")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(kind: &str, options: &str, kernel: (u32, u32)) -> (Scope, String) {
        let options = options.split(',').map(str::to_owned).collect();
        of_mount(&Mount { kind: kind.into(), options, kernel })
    }

    #[test]
    fn options_decide() {
        use Scope::*;
        const NFS: &str = "rw,relatime,vers=4.2,rsize=1048576,proto=tcp,clientaddr=10.0.0.2,addr=10.0.0.1";
        for (kind, options, expected) in [
            ("nfs4", "local_lock=none", Cluster),
            ("nfs4", "local_lock=flock", Host),
            ("nfs", "vers=3,local_lock=none", Cluster),
            ("nfs", "vers=3,nolock,local_lock=none", Host),
            ("nfs", "vers=3,local_lock=all", Host),
            // Concerns fcntl locks alone.
            ("nfs", "vers=3,local_lock=posix", Cluster),
            ("cifs", "vers=3.1.1", Cluster),
            ("smb3", "vers=3.1.1,nobrl", Host),
            ("lustre", "flock,lazystatfs", Cluster),
            ("lustre", "localflock", Host),
            ("lustre", "lazystatfs", Unknown),
            ("ceph", "name=admin", Cluster),
            ("fuse.sshfs", "user_id=0", Unknown),
            ("virtiofs", "relatime", Unknown),
            ("9p", "cache=none", Unknown),
            ("beegfs", "cfgFile=/etc/beegfs", Unknown),
        ] {
            let (found, why) = scope(kind, &format!("{NFS},{options}"), (6, 1));
            assert_eq!(found, expected, "{kind} {options}: {why}");
        }
    }

    #[test]
    fn what_is_no_cluster_names_the_remedy() {
        for (kind, options, remedy) in [
            ("nfs", "nolock", "mount it with lock"),
            ("nfs4", "local_lock=all", "mount it with local_lock=none"),
            ("lustre", "localflock", "mount it with flock"),
            ("lustre", "rw", "mount it with flock"),
            ("cifs", "nobrl", "mount it with brl"),
        ] {
            let (_, why) = scope(kind, options, (6, 1));
            assert!(why.ends_with(remedy), "{why}");
        }
    }

    #[test]
    fn old_kernels_kept_flock_on_smb_to_themselves() {
        assert_eq!(scope("cifs", "rw", (5, 4)).0, Scope::Host);
        assert_eq!(scope("cifs", "rw", (5, 5)).0, Scope::Cluster);
    }
}
