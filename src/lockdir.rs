//! Lock files elsewhere than beside their caches: `JITLOCK_LOCK_DIR` names a directory of this host, for caches on file
//! systems whose locks cannot be trusted. The price: processes on other hosts are not excluded.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Argument, Error};
use crate::sys::{self, Kind};

const VARIABLE: &str = "JITLOCK_LOCK_DIR";

/// A name of the file system's longest, less `.lock`.
const LONGEST: usize = 250;
/// What is kept of a longer one.
const KEPT: usize = 200;

/// The lock file of a cache whose last component is resolved already; none if the environment names no directory. Makes
/// that if `may_make`.
pub(crate) fn lock_of(cache: &Path, may_make: bool) -> Result<Option<PathBuf>, Error> {
    let Some(directory) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from)
    else {
        return Ok(None);
    };
    if !directory.is_absolute() {
        return Err(Argument::LockDir(directory).into());
    }
    check(&directory, may_make)?;
    let cache = real(cache).map_err(|source| Error::system("resolve", cache, source))?;
    Ok(Some(directory.join(name_of(&cache))))
}

/// Whoever may replace files of others there could replace locks: so it must be this user's or root's, and if others may
/// write to it, sticky, as /tmp is. A symlink may lead anywhere tomorrow.
fn check(directory: &Path, may_make: bool) -> Result<(), Error> {
    let inspect = |source| Error::system("inspect", directory, source);
    let stat = match sys::stat_path(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !may_make => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            sys::make_directory(directory, 0o1777)
                .map_err(|source| Error::system("create", directory, source))?;
            sys::stat_path(directory).map_err(inspect)?
        }
        answer => answer.map_err(inspect)?,
    };
    let why = match () {
        () if stat.kind != Kind::Directory => "it is no directory",
        () if stat.owner != 0 && stat.owner != sys::user() => "it belongs to another user",
        () if stat.mode & 0o022 != 0 && stat.mode & 0o1000 == 0 => {
            "others may write to it, and it is not sticky"
        }
        () => return Ok(()),
    };
    Err(Error::LockDirRefused { path: directory.to_owned(), why })
}

/// One path for every spelling of it, as far as it exists.
fn real(path: &Path) -> io::Result<PathBuf> {
    match (fs::canonicalize(path), path.parent(), path.file_name()) {
        (Err(error), Some(parent), Some(name)) if error.kind() == io::ErrorKind::NotFound => {
            Ok(real(parent)?.join(name))
        }
        (answer, ..) => answer,
    }
}

/// The whole path as one name: `%2F` for `/` and `%25` for `%`, so that no two are the same. What is too long for that
/// ends with a hash (FNV-1a, 128 bits) after a mark that no other name has.
fn name_of(cache: &Path) -> OsString {
    let bytes = cache.as_os_str().as_encoded_bytes();
    let mut name = Vec::with_capacity(bytes.len() + 16);
    for &byte in bytes {
        match byte {
            b'%' => name.extend(b"%25"),
            _ if sys::ends_name(byte) => name.extend(format!("%{byte:02X}").into_bytes()),
            _ => name.push(byte),
        }
    }
    if name.len() > LONGEST {
        let hash = bytes.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, &byte| {
            (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        });
        name.truncate(KEPT);
        name.extend(format!("%H{hash:032x}").into_bytes());
    }
    name.extend(b".lock");
    sys::name_of(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_tells_its_path() {
        assert_eq!(name_of(Path::new("/home/u/50%/k")), "%2Fhome%2Fu%2F50%25%2Fk.lock");
    }

    #[test]
    fn long_paths_that_begin_alike_have_names_of_their_own() {
        let path = |end: &str| PathBuf::from(format!("/{}/{end}", "directory/".repeat(40)));
        let (a, b) = (name_of(&path("a")), name_of(&path("b")));
        assert_ne!(a, b);
        assert!(a.len() <= 255 && a.to_string_lossy().contains("%H"));
    }

    proptest! {
        #[test]
        fn no_two_paths_share_a_name(a in "[/%2F5H.a]{1,300}", b in "[/%2F5H.a]{1,300}") {
            prop_assert_eq!(a == b, name_of(Path::new(&a)) == name_of(Path::new(&b)));
            prop_assert!(name_of(Path::new(&a)).len() <= 255);
        }
    }
}
