//! Paths: UTF-8 at the C API, UTF-16 inside, one spelling for each.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::windows::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::api;

/// The longest name on every file system of Windows, in UTF-16 units.
const LONGEST_NAME: usize = 255;

/// So long may a path be before it needs its verbatim form: MAX_PATH, less a name of the old 8.3 kind.
const LONGEST_PLAIN: usize = 247;

const VERBATIM: &str = r"\\?\";

/// A path of the C API's, which is UTF-8 here.
pub(crate) fn path_of(bytes: &[u8]) -> Option<&Path> {
    std::str::from_utf8(bytes).ok().map(Path::new)
}

pub(crate) fn name_of(bytes: Vec<u8>) -> OsString {
    String::from_utf8_lossy(&bytes).into_owned().into()
}

/// What no name of a file may have in it.
pub(crate) fn ends_name(byte: u8) -> bool {
    br#"\/:?*"<>|"#.contains(&byte)
}

/// The path with drive and working directory put before it, and `.`, `..` and a separator at its end resolved, all of
/// which Windows does by the text alone.
pub(crate) fn absolute(path: &Path) -> io::Result<PathBuf> {
    let given = wide(path.as_os_str())?;
    // SAFETY: a terminated path, and a buffer of the size given.
    let full = answer_of(|buffer, size| unsafe {
        api::GetFullPathNameW(given.as_ptr(), size, buffer, std::ptr::null_mut())
    })?;
    let full = PathBuf::from(full);
    match full.as_os_str().as_encoded_bytes().last() {
        // Its components have no separator at the end.
        Some(b'\\') => Ok(full.components().collect()),
        _ => Ok(full),
    }
}

/// A name that is there, as its directory lists it, and not by its short alias of the 8.3 kind, beside which another
/// lock file would lie.
pub(crate) fn as_listed(path: PathBuf) -> PathBuf {
    let plain = path.as_os_str().encode_wide().count() <= LONGEST_PLAIN || path.starts_with(r"\\");
    let mut asked = OsString::from(if plain { "" } else { VERBATIM });
    asked.push(&path);
    let listed = wide(&asked).and_then(|asked| {
        // SAFETY: a terminated path, and a buffer of the size given.
        answer_of(|buffer, size| unsafe { api::GetLongPathNameW(asked.as_ptr(), buffer, size) })
    });
    match listed {
        Ok(listed) if plain => listed.into(),
        Ok(listed) => {
            listed.to_str().and_then(|listed| listed.strip_prefix(VERBATIM)).map_or(path, PathBuf::from)
        }
        // Somebody may not list the parents: then the name is as good as it gets.
        Err(_) => path,
    }
}

/// Windows has several errors for a name that is too long, each of which means other things as well.
pub(super) fn has_long_name(path: &Path) -> bool {
    path.iter().any(|name| name.encode_wide().count() > LONGEST_NAME)
}

/// Terminated UTF-16.
pub(super) fn wide(text: &OsStr) -> io::Result<Vec<u16>> {
    let mut wide: Vec<u16> = text.encode_wide().collect();
    if wide.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    wide.push(0);
    Ok(wide)
}

/// What a function writes that says how much room it wants where it has too little.
fn answer_of(call: impl Fn(*mut u16, u32) -> u32) -> io::Result<OsString> {
    let mut buffer = vec![0; 512];
    loop {
        let length = call(buffer.as_mut_ptr(), buffer.len() as u32) as usize;
        match length {
            0 => return Err(io::Error::last_os_error()),
            _ if length < buffer.len() => return Ok(OsString::from_wide(&buffer[..length])),
            _ => buffer.resize(length + 1, 0),
        }
    }
}
