//! Files: open, look at, read, write, delete.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::windows::fs::{FileExt, OpenOptionsExt};
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle, RawHandle};
use std::path::Path;

use super::super::{Access, FileId, FileStat, Kind, Mount, Openers};
use super::{api, error, path};

/// A handle of this process, by number: those of Windows have 32 bits that count.
pub(crate) type Descriptor = i32;

pub(crate) fn descriptor_of(file: &File) -> Descriptor {
    file.as_raw_handle() as isize as i32
}

/// CloseHandle, once.
pub(crate) fn close(descriptor: Descriptor) {
    // SAFETY: the caller owns the number: it was taken out of the one `File` that named it.
    unsafe { api::CloseHandle(descriptor as isize as RawHandle) };
}

/// Opens a lock file: not inherited by children, never through a link. While it is open nobody can delete or rename
/// it, since that is not shared.
pub(crate) fn open(path: &Path, access: Access) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.share_mode(api::SHARE_READ | api::SHARE_WRITE).custom_flags(api::FLAG_OPEN_REPARSE_POINT);
    match access {
        Access::ReadOnly => _ = options.read(true),
        Access::ReadWrite => _ = options.read(true).write(true),
        Access::Create => _ = options.read(true).write(true).create_new(true),
        Access::Sole => _ = options.access_mode(api::GENERIC_READ | api::DELETE).share_mode(0),
    }
    clarified(options.open(path), path)
}

/// One error for each of the two things that Windows does not tell apart from others: a name that is too long, and a
/// file that is deleted but still open somewhere.
fn clarified(answer: io::Result<File>, path: &Path) -> io::Result<File> {
    answer.map_err(|error| {
        // SAFETY: no arguments; the status of the last call on this thread, which was the one that failed.
        let status = unsafe { api::RtlGetLastNtStatus() };
        match error.raw_os_error() {
            _ if path::has_long_name(path) => error::too_long(),
            _ if error::is_denied(&error) && status == api::STATUS_DELETE_PENDING => error::stale(),
            _ => error,
        }
    })
}

/// Deletes a file that was opened for that: this very file, whatever the path leads to by now.
pub(crate) fn unlink(_path: &Path, file: &File) -> io::Result<()> {
    api::tell(file.as_raw_handle(), api::DISPOSITION_INFO, &1_u8)
}

/// Whoever else does so at the same time. Rights are inherited from the parent.
pub(crate) fn make_directory(path: &Path, _mode: u32) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(_) if path::has_long_name(path) => Err(error::too_long()),
        answer => answer,
    }
}

pub(crate) fn stat(file: &File) -> io::Result<FileStat> {
    stat_of(file.as_raw_handle())
}

/// Of the path itself, not of what a link there points at. What is being deleted is not there.
pub(crate) fn stat_path(path: &Path) -> io::Result<FileStat> {
    let mut options = OpenOptions::new();
    options
        .access_mode(api::FILE_READ_ATTRIBUTES)
        .share_mode(api::SHARE_READ | api::SHARE_WRITE | api::SHARE_DELETE)
        .custom_flags(api::FLAG_OPEN_REPARSE_POINT | api::FLAG_BACKUP_SEMANTICS);
    match clarified(options.open(path), path) {
        Err(error) if error::is_stale(&error) => Err(io::ErrorKind::NotFound.into()),
        answer => stat(&answer?),
    }
}

pub(super) fn stat_of(file: RawHandle) -> io::Result<FileStat> {
    // SAFETY: an open handle.
    let kind = match unsafe { api::GetFileType(file) } {
        api::FILE_TYPE_DISK => None,
        api::FILE_TYPE_PIPE => Some(Kind::Fifo),
        _ => Some(Kind::Device),
    };
    if let Some(kind) = kind {
        return Ok(FileStat { id: FileId { device: 0, inode: 0 }, kind, links: 1, mode: 0o600, owner: 0 });
    }
    let mut answer = api::FileInformation::default();
    // SAFETY: an open handle, and room for the answer.
    api::check(unsafe { api::GetFileInformationByHandle(file, &mut answer) })?;
    let standard: api::StandardInfo = api::ask(file, api::STANDARD_INFO)?;
    let (kind, mode) = match () {
        () if is_link(file, answer.attributes) => (Kind::Symlink, 0o600),
        () if answer.attributes & api::ATTRIBUTE_DIRECTORY != 0 => (Kind::Directory, 0o700),
        () => (Kind::Regular, 0o600),
    };
    let links = if standard.delete_pending != 0 { 0 } else { u64::from(answer.links) };
    // Rights are lists here, which the system applies by itself.
    Ok(FileStat { id: id_of(file, &answer), kind, links, mode, owner: 0 })
}

/// By the identifiers of 128 bits that ReFS has, and the older ones where a file system has no others.
fn id_of(file: RawHandle, answer: &api::FileInformation) -> FileId {
    match api::ask::<api::IdInfo>(file, api::ID_INFO) {
        Ok(id) => FileId { device: id.volume, inode: id.id[0] ^ id.id[1].rotate_left(32) },
        Err(_) => FileId {
            device: answer.volume.into(),
            inode: u64::from(answer.index_high) << 32 | u64::from(answer.index_low),
        },
    }
}

/// Whether the file stands for another one: a symlink or a junction, and not, say, a file kept in the cloud.
pub(super) fn is_link(file: RawHandle, attributes: u32) -> bool {
    attributes & api::ATTRIBUTE_REPARSE_POINT != 0
        && api::ask::<api::AttributeTagInfo>(file, api::ATTRIBUTE_TAG_INFO)
            .map_or(true, |info| info.tag & api::TAG_NAME_SURROGATE != 0)
}

/// Whether this host's kernel alone answers for the file: only one that lies elsewhere has a protocol.
pub(crate) fn is_local(file: &File) -> io::Result<bool> {
    /// FILE_REMOTE_PROTOCOL_INFO
    type RemoteProtocolInfo = [u32; 29];
    Ok(api::ask::<RemoteProtocolInfo>(file.as_raw_handle(), api::REMOTE_PROTOCOL_INFO).is_err())
}

/// What the server of a share does with its locks is not told.
pub(crate) fn mount_of(_file: &File) -> Option<Mount> {
    None
}

/// The beginning of the file. Locks are mandatory here, so what another handle has locked is read through a view, which
/// they do not concern.
pub(crate) fn read_at(file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    match file.seek_read(buffer, 0) {
        // A view of a file elsewhere raises an exception where the network fails.
        Err(error) if error.raw_os_error() == Some(error::LOCK_VIOLATION) && is_local(file)? => {
            read_view(file, buffer)
        }
        answer => answer,
    }
}

fn read_view(file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX).min(buffer.len());
    if length == 0 {
        return Ok(0);
    }
    let null = std::ptr::null_mut();
    // SAFETY: an open handle; no name and no security of its own.
    let mapping =
        unsafe { api::CreateFileMappingW(file.as_raw_handle(), null, api::PAGE_READONLY, 0, 0, null.cast()) };
    if mapping.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and nobody else knows it.
    let mapping = unsafe { OwnedHandle::from_raw_handle(mapping) };
    // SAFETY: an open mapping, of which the beginning is asked for.
    let view = unsafe { api::MapViewOfFile(mapping.as_raw_handle(), api::FILE_MAP_READ, 0, 0, length) };
    if view.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the view has at least `length` bytes: a file that is mapped cannot be cut. Another process may write to
    // it, which tears what is copied, as it would tear a read.
    unsafe {
        std::ptr::copy_nonoverlapping(view.cast::<u8>(), buffer.as_mut_ptr(), length);
        api::UnmapViewOfFile(view);
    }
    Ok(length)
}

pub(crate) fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match file.seek_write(&bytes[done..], offset + done as u64)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => done += count,
        }
    }
    Ok(())
}

/// Never called: see [`super::HAS_HEIRS`].
pub(crate) fn make_inheritable(_file: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// That nobody else has it open.
pub(crate) struct Lease;

/// A file opened as [`Access::Sole`] has no other opener, on whatever host.
pub(crate) fn sole_opener(_file: &File, _owner: u32) -> io::Result<Option<Lease>> {
    Ok(Some(Lease))
}

/// No interface names them to everybody.
pub(crate) fn openers(_id: FileId, _except: Option<&File>) -> Openers {
    Openers::default()
}
