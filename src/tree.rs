//! Deleting a directory tree, without ever leaving it: no symlink is followed, no mount is entered, and whoever swaps
//! a directory for a link meanwhile loses the link.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

use crate::error::Error;
use crate::offload;
use crate::sys::{self, Dir};

/// Each level costs a descriptor, so what lies deeper is moved up to the root of the tree and deleted from there.
const DEEPEST: usize = 64;

/// Deletes `name` in `parent`, whatever it is; nothing there is success. Goes on after a failure, so that as much as
/// possible is gone, and tells of the first. `shown` is its path, for messages.
pub(crate) fn delete(parent: &Dir, name: &OsStr, shown: &Path) -> Result<(), Error> {
    let mut deletion = Deletion { first_failure: None, moved_up: 0 };
    if let Some(root) = deletion.enter(parent, name, shown) {
        loop {
            let before = deletion.moved_up;
            deletion.empty(&root, &root, shown, 0);
            if deletion.moved_up == before {
                break;
            }
        }
        drop(root);
        deletion.check(parent.remove(name, true), shown);
    }
    deletion.first_failure.map_or(Ok(()), Err)
}

struct Deletion {
    first_failure: Option<Error>,
    moved_up: usize,
}

impl Deletion {
    /// The directory, open and ready to be emptied. None: it is no directory and gone, or it will not go.
    fn enter(&mut self, parent: &Dir, name: &OsStr, shown: &Path) -> Option<Dir> {
        let opened = match parent.child_of_same_mount(name) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                parent.make_child_writable(name).and_then(|()| parent.child_of_same_mount(name))
            }
            answer => answer,
        };
        match opened.and_then(|dir| dir.make_writable().map(|()| dir)) {
            Ok(dir) => Some(dir),
            Err(error) if sys::is_other_than_directory(&error) => {
                self.check(parent.remove(name, false), shown);
                None
            }
            Err(error) => {
                self.check(Err(error), shown);
                None
            }
        }
    }

    fn empty(&mut self, root: &Dir, dir: &Dir, shown: &Path, depth: usize) {
        let entries = match dir.entries() {
            Ok(entries) => entries,
            Err(error) => return self.check(Err(error), shown),
        };
        for entry in entries {
            offload::step();
            let removed =
                if entry.directory { dir.remove(&entry.name, true) } else { dir.remove(&entry.name, false) };
            if removed.is_ok() {
                continue;
            }
            let shown = shown.join(&entry.name);
            if depth >= DEEPEST && self.move_up(root, dir, &entry.name) {
                continue;
            }
            let Some(child) = self.enter(dir, &entry.name, &shown) else { continue };
            self.empty(root, &child, &shown, depth + 1);
            drop(child);
            self.check(dir.remove(&entry.name, true), &shown);
        }
    }

    fn move_up(&mut self, root: &Dir, dir: &Dir, name: &OsStr) -> bool {
        self.moved_up += 1;
        let free = OsString::from(format!(".jitlock-deep-{}", self.moved_up));
        dir.make_child_writable(name).and_then(|()| dir.rename(name, root, &free)).is_ok()
    }

    /// Somebody else's deleting the same is no failure.
    fn check(&mut self, answer: io::Result<()>, shown: &Path) {
        match answer {
            Err(source) if source.kind() != io::ErrorKind::NotFound && self.first_failure.is_none() => {
                self.first_failure = Some(Error::system("remove", shown, source));
            }
            _ => {}
        }
    }
}
