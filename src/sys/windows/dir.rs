//! Directories by handle, so that nobody can swap one for a link between two steps.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io;
use std::os::windows::ffi::{OsStrExt, OsStringExt};
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::path::Path;

use super::super::{Entry, Kind};
use super::{api, error, file};

/// An open directory.
pub(crate) struct Dir(OwnedHandle);

const ACCESS: u32 =
    api::FILE_LIST_DIRECTORY | api::FILE_TRAVERSE | api::FILE_READ_ATTRIBUTES | api::SYNCHRONIZE;
const SHARE_ALL: u32 = api::SHARE_READ | api::SHARE_WRITE | api::SHARE_DELETE;

/// FILE_ID_BOTH_DIR_INFO, by the offsets of what is read of it.
const ATTRIBUTES: usize = 56;
const NAME_LENGTH: usize = 60;
const NAME: usize = 104;

/// ERROR_NO_MORE_FILES
const NO_MORE_FILES: i32 = 18;

impl Dir {
    /// Opens the directory at `path`; its last component must not be a link.
    pub(crate) fn open(path: &Path) -> io::Result<Dir> {
        Dir::open_with(path, api::FLAG_OPEN_REPARSE_POINT)
    }

    /// Opens the directory that `path` leads to.
    pub(crate) fn follow(path: &Path) -> io::Result<Dir> {
        Dir::open_with(path, 0)
    }

    fn open_with(path: &Path, flags: u32) -> io::Result<Dir> {
        let mut options = OpenOptions::new();
        options.access_mode(ACCESS).share_mode(SHARE_ALL).custom_flags(flags | api::FLAG_BACKUP_SEMANTICS);
        Dir::new(options.open(path)?.into())
    }

    /// Opens a directory below this one by its name; a link is an error.
    pub(crate) fn child(&self, name: &OsStr) -> io::Result<Dir> {
        self.at(name, ACCESS, api::NT_OPEN, api::NT_DIRECTORY_FILE).and_then(Dir::new)
    }

    /// The same: where another volume is mounted there is a junction, which is a link.
    pub(crate) fn child_of_same_mount(&self, name: &OsStr) -> io::Result<Dir> {
        self.child(name)
    }

    fn new(handle: OwnedHandle) -> io::Result<Dir> {
        match file::stat_of(handle.as_raw_handle())?.kind {
            Kind::Directory => Ok(Dir(handle)),
            _ => Err(error::not_a_directory()),
        }
    }

    /// Opens or makes what has this name here, a link as itself.
    fn at(&self, name: &OsStr, access: u32, disposition: u32, options: u32) -> io::Result<OwnedHandle> {
        let mut name: Vec<u16> = name.encode_wide().collect();
        let length = u16::try_from(name.len() * 2).map_err(|_| error::too_long())?;
        let name = api::UnicodeString { length, maximum: length, buffer: name.as_mut_ptr() };
        let object = api::ObjectAttributes {
            length: std::mem::size_of::<api::ObjectAttributes>() as u32,
            root: self.0.as_raw_handle(),
            name: &name,
            attributes: api::OBJ_CASE_INSENSITIVE,
            security: std::ptr::null(),
            quality: std::ptr::null(),
        };
        let mut handle = std::ptr::null_mut();
        let mut answer = api::IoStatus::default();
        // SAFETY: every pointer outlives the call, which makes a handle or answers an error.
        api::check_status(unsafe {
            api::NtCreateFile(
                &mut handle,
                access | api::SYNCHRONIZE,
                &object,
                &mut answer,
                std::ptr::null(),
                api::ATTRIBUTE_NORMAL,
                SHARE_ALL,
                disposition,
                options | api::NT_SYNCHRONOUS | api::NT_FOR_BACKUP | api::NT_OPEN_REPARSE_POINT,
                std::ptr::null(),
                0,
            )
        })?;
        // SAFETY: just made, and nobody else knows it.
        Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
    }

    /// Rights are lists here, and who may delete is not asked for more.
    pub(crate) fn make_writable(&self) -> io::Result<()> {
        Ok(())
    }

    /// As above: the next try tells.
    pub(crate) fn make_child_writable(&self, _name: &OsStr) -> io::Result<()> {
        Ok(())
    }

    /// Every name but `.` and `..`.
    pub(crate) fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        let mut class = api::ID_BOTH_DIRECTORY_RESTART_INFO;
        loop {
            match api::ask::<Listing>(self.0.as_raw_handle(), class) {
                Ok(listing) => listing.add_to(&mut entries),
                Err(error) if error.raw_os_error() == Some(NO_MORE_FILES) => return Ok(entries),
                Err(error) => return Err(error),
            }
            class = api::ID_BOTH_DIRECTORY_INFO;
        }
    }

    /// Deletes a file, a link or an empty directory. Its name is free at once where the file system can do that, even
    /// if somebody has it open.
    pub(crate) fn remove(&self, name: &OsStr, _directory: bool) -> io::Result<()> {
        let entry = self.at(name, api::DELETE, api::NT_OPEN, 0)?;
        match api::tell(entry.as_raw_handle(), api::DISPOSITION_INFO_EX, &api::DISPOSE_POSIX) {
            // FAT, and Windows before 10, do not know that; or it is a directory with something in it.
            Err(_) => self.remove_plainly(name),
            Ok(()) => Ok(()),
        }
    }

    /// The name is free when the last handle is closed. What is read-only cannot be deleted so.
    fn remove_plainly(&self, name: &OsStr) -> io::Result<()> {
        let entry = match self.at(
            name,
            api::DELETE | api::FILE_WRITE_ATTRIBUTES | api::FILE_READ_ATTRIBUTES,
            api::NT_OPEN,
            0,
        ) {
            Err(error) if error::is_denied(&error) => self.at(name, api::DELETE, api::NT_OPEN, 0)?,
            answer => answer?,
        };
        let entry = entry.as_raw_handle();
        if let Ok(mut basic) = api::ask::<api::BasicInfo>(entry, api::BASIC_INFO) {
            if basic.attributes & api::ATTRIBUTE_READONLY != 0 {
                basic =
                    api::BasicInfo { times: [0; 4], attributes: basic.attributes & !api::ATTRIBUTE_READONLY };
                basic.attributes =
                    if basic.attributes == 0 { api::ATTRIBUTE_NORMAL } else { basic.attributes };
                api::tell(entry, api::BASIC_INFO, &basic)?;
            }
        }
        api::tell(entry, api::DISPOSITION_INFO, &1_u8)
    }

    pub(crate) fn make_child(&self, name: &OsStr) -> io::Result<()> {
        self.at(name, ACCESS, api::NT_CREATE, api::NT_DIRECTORY_FILE).map(drop)
    }

    /// From this directory into another of the same volume, where the name must be free.
    pub(crate) fn rename(&self, name: &OsStr, into: &Dir, new_name: &OsStr) -> io::Result<()> {
        let entry = self.at(name, api::DELETE, api::NT_OPEN, 0)?;
        let new_name: Vec<u16> = new_name.encode_wide().collect();
        let mut rename = Rename { replace: 0, root: into.0.as_raw_handle(), length: 0, name: [0; 256] };
        rename.name.get_mut(..new_name.len()).ok_or_else(error::too_long)?.copy_from_slice(&new_name);
        rename.length = new_name.len() as u32 * 2;
        let mut answer = api::IoStatus::default();
        // SAFETY: open handles, and a structure of the size given.
        api::check_status(unsafe {
            api::NtSetInformationFile(
                entry.as_raw_handle(),
                &mut answer,
                std::ptr::addr_of!(rename).cast(),
                std::mem::size_of::<Rename>() as u32,
                api::RENAME_INFORMATION,
            )
        })
    }
}

/// FILE_RENAME_INFORMATION, with room for every name.
#[repr(C)]
struct Rename {
    replace: u32,
    root: std::os::windows::io::RawHandle,
    length: u32,
    name: [u16; 256],
}

/// Entries of a directory, one behind the other; in words, for their alignment.
struct Listing([u64; 1024]);

impl Default for Listing {
    fn default() -> Listing {
        Listing([0; 1024])
    }
}

impl Listing {
    fn add_to(&self, entries: &mut Vec<Entry>) {
        let mut start = 0;
        loop {
            let length = self.number(start + NAME_LENGTH) as usize / 2;
            let name: Vec<u16> = (0..length).map(|index| self.unit(start + NAME + 2 * index)).collect();
            let name = OsString::from_wide(&name);
            if name != "." && name != ".." {
                let directory = self.number(start + ATTRIBUTES) & api::ATTRIBUTE_DIRECTORY != 0;
                entries.push(Entry { name, directory });
            }
            match self.number(start) as usize {
                0 => return,
                next => start += next,
            }
        }
    }

    fn number(&self, offset: usize) -> u32 {
        (self.0[offset / 8] >> (offset % 8 * 8)) as u32
    }

    fn unit(&self, offset: usize) -> u16 {
        (self.0[offset / 8] >> (offset % 8 * 8)) as u16
    }
}
