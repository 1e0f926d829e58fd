//! What the standard library has no name for, as Microsoft's headers declare it.

use std::ffi::c_void;
use std::io;
use std::os::windows::io::RawHandle;

pub(super) const DELETE: u32 = 0x0001_0000;
pub(super) const SYNCHRONIZE: u32 = 0x0010_0000;
pub(super) const GENERIC_READ: u32 = 0x8000_0000;
pub(super) const FILE_LIST_DIRECTORY: u32 = 0x1;
pub(super) const FILE_TRAVERSE: u32 = 0x20;
pub(super) const FILE_READ_ATTRIBUTES: u32 = 0x80;
pub(super) const FILE_WRITE_ATTRIBUTES: u32 = 0x100;

pub(super) const SHARE_READ: u32 = 1;
pub(super) const SHARE_WRITE: u32 = 2;
pub(super) const SHARE_DELETE: u32 = 4;

pub(super) const FLAG_OPEN_REPARSE_POINT: u32 = 0x0020_0000;
pub(super) const FLAG_BACKUP_SEMANTICS: u32 = 0x0200_0000;

pub(super) const ATTRIBUTE_READONLY: u32 = 0x1;
pub(super) const ATTRIBUTE_DIRECTORY: u32 = 0x10;
pub(super) const ATTRIBUTE_NORMAL: u32 = 0x80;
pub(super) const ATTRIBUTE_REPARSE_POINT: u32 = 0x400;
/// The bit of a reparse tag which says that the file stands for another name: symlinks and junctions.
pub(super) const TAG_NAME_SURROGATE: u32 = 0x2000_0000;

pub(super) const FILE_TYPE_DISK: u32 = 1;
pub(super) const FILE_TYPE_PIPE: u32 = 3;

pub(super) const PAGE_READONLY: u32 = 2;
pub(super) const FILE_MAP_READ: u32 = 4;

pub(super) const PROCESS_QUERY_LIMITED_INFORMATION: u32 = 0x1000;
pub(super) const COMPUTER_NAME_DNS_HOSTNAME: i32 = 1;
pub(super) const MODULE_PIN: u32 = 1;
pub(super) const MODULE_FROM_ADDRESS: u32 = 4;

/// FILE_INFO_BY_HANDLE_CLASS
pub(super) const BASIC_INFO: i32 = 0;
pub(super) const STANDARD_INFO: i32 = 1;
pub(super) const DISPOSITION_INFO: i32 = 4;
pub(super) const ATTRIBUTE_TAG_INFO: i32 = 9;
pub(super) const ID_BOTH_DIRECTORY_INFO: i32 = 10;
pub(super) const ID_BOTH_DIRECTORY_RESTART_INFO: i32 = 11;
pub(super) const REMOTE_PROTOCOL_INFO: i32 = 13;
pub(super) const ID_INFO: i32 = 18;
pub(super) const DISPOSITION_INFO_EX: i32 = 21;

/// FILE_DISPOSITION_INFO_EX: delete, the name at once, a read-only file too.
pub(super) const DISPOSE_POSIX: u32 = 0x1 | 0x2 | 0x10;

/// FILE_INFORMATION_CLASS
pub(super) const RENAME_INFORMATION: u32 = 10;

pub(super) const OBJ_CASE_INSENSITIVE: u32 = 0x40;
pub(super) const NT_OPEN: u32 = 1;
pub(super) const NT_CREATE: u32 = 2;
pub(super) const NT_DIRECTORY_FILE: u32 = 0x1;
pub(super) const NT_SYNCHRONOUS: u32 = 0x20;
pub(super) const NT_FOR_BACKUP: u32 = 0x4000;
pub(super) const NT_OPEN_REPARSE_POINT: u32 = 0x0020_0000;

pub(super) const STATUS_DELETE_PENDING: i32 = 0xc000_0056_u32 as i32;

/// BY_HANDLE_FILE_INFORMATION
#[repr(C)]
#[derive(Default)]
pub(super) struct FileInformation {
    pub attributes: u32,
    pub times: [u32; 6],
    pub volume: u32,
    pub size: [u32; 2],
    pub links: u32,
    pub index_high: u32,
    pub index_low: u32,
}

/// FILE_BASIC_INFO; a time of 0 is left as it is.
#[repr(C)]
#[derive(Default)]
pub(super) struct BasicInfo {
    pub times: [i64; 4],
    pub attributes: u32,
}

/// FILE_STANDARD_INFO
#[repr(C)]
#[derive(Default)]
pub(super) struct StandardInfo {
    pub allocation: i64,
    pub end: i64,
    pub links: u32,
    pub delete_pending: u8,
    pub directory: u8,
}

/// FILE_ATTRIBUTE_TAG_INFO
#[repr(C)]
#[derive(Default)]
pub(super) struct AttributeTagInfo {
    pub attributes: u32,
    pub tag: u32,
}

/// FILE_ID_INFO
#[repr(C)]
#[derive(Default)]
pub(super) struct IdInfo {
    pub volume: u64,
    pub id: [u64; 2],
}

/// UNICODE_STRING
#[repr(C)]
pub(super) struct UnicodeString {
    pub length: u16,
    pub maximum: u16,
    pub buffer: *mut u16,
}

/// OBJECT_ATTRIBUTES
#[repr(C)]
pub(super) struct ObjectAttributes {
    pub length: u32,
    pub root: RawHandle,
    pub name: *const UnicodeString,
    pub attributes: u32,
    pub security: *const c_void,
    pub quality: *const c_void,
}

/// IO_STATUS_BLOCK
#[repr(C)]
#[derive(Default)]
pub(super) struct IoStatus {
    pub status: usize,
    pub information: usize,
}

#[link(name = "kernel32")]
extern "system" {
    pub(super) fn GetFullPathNameW(path: *const u16, size: u32, full: *mut u16, name: *mut *mut u16) -> u32;
    pub(super) fn GetLongPathNameW(path: *const u16, long: *mut u16, size: u32) -> u32;
    pub(super) fn GetFileType(file: RawHandle) -> u32;
    pub(super) fn GetFileInformationByHandle(file: RawHandle, answer: *mut FileInformation) -> i32;
    pub(super) fn GetFileInformationByHandleEx(
        file: RawHandle,
        class: i32,
        to: *mut c_void,
        size: u32,
    ) -> i32;
    pub(super) fn SetFileInformationByHandle(
        file: RawHandle,
        class: i32,
        to: *const c_void,
        size: u32,
    ) -> i32;
    pub(super) fn CreateFileMappingW(
        file: RawHandle,
        security: *const c_void,
        protection: u32,
        size_high: u32,
        size_low: u32,
        name: *const u16,
    ) -> RawHandle;
    pub(super) fn MapViewOfFile(
        mapping: RawHandle,
        access: u32,
        offset_high: u32,
        offset_low: u32,
        size: usize,
    ) -> *mut c_void;
    pub(super) fn UnmapViewOfFile(view: *const c_void) -> i32;
    pub(super) fn CloseHandle(handle: RawHandle) -> i32;
    pub(super) fn OpenProcess(access: u32, inherit: i32, pid: u32) -> RawHandle;
    pub(super) fn GetProcessTimes(
        process: RawHandle,
        created: *mut u64,
        ended: *mut u64,
        kernel: *mut u64,
        user: *mut u64,
    ) -> i32;
    pub(super) fn GetExitCodeProcess(process: RawHandle, code: *mut u32) -> i32;
    pub(super) fn GetTickCount64() -> u64;
    pub(super) fn GetComputerNameExW(kind: i32, name: *mut u16, size: *mut u32) -> i32;
    pub(super) fn GetModuleHandleExW(flags: u32, address: *const u16, module: *mut RawHandle) -> i32;
}

#[link(name = "ntdll")]
extern "system" {
    pub(super) fn NtCreateFile(
        file: *mut RawHandle,
        access: u32,
        object: *const ObjectAttributes,
        answer: *mut IoStatus,
        size: *const i64,
        attributes: u32,
        share: u32,
        disposition: u32,
        options: u32,
        ea: *const c_void,
        ea_size: u32,
    ) -> i32;
    pub(super) fn NtSetInformationFile(
        file: RawHandle,
        answer: *mut IoStatus,
        to: *const c_void,
        size: u32,
        class: u32,
    ) -> i32;
    pub(super) fn RtlNtStatusToDosError(status: i32) -> u32;
    pub(super) fn RtlGetLastNtStatus() -> i32;
}

/// The answer of a function that returns a BOOL.
pub(super) fn check(answer: i32) -> io::Result<()> {
    match answer {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The answer of a function that returns an NTSTATUS.
pub(super) fn check_status(status: i32) -> io::Result<()> {
    match status {
        0.. => Ok(()),
        // SAFETY: any number will do.
        _ => Err(io::Error::from_raw_os_error(unsafe { RtlNtStatusToDosError(status) } as i32)),
    }
}

/// One structure of what is known of an open file.
pub(super) fn ask<T: Default>(file: RawHandle, class: i32) -> io::Result<T> {
    let mut answer = T::default();
    let size = std::mem::size_of::<T>() as u32;
    // SAFETY: an open handle, and room for as much as is said; the classes asked for are all of plain numbers.
    check(unsafe { GetFileInformationByHandleEx(file, class, std::ptr::addr_of_mut!(answer).cast(), size) })?;
    Ok(answer)
}

/// Changes one structure of an open file.
pub(super) fn tell<T>(file: RawHandle, class: i32, to: &T) -> io::Result<()> {
    let size = std::mem::size_of::<T>() as u32;
    // SAFETY: an open handle, and a structure of the size given.
    check(unsafe { SetFileInformationByHandle(file, class, std::ptr::from_ref(to).cast(), size) })
}
