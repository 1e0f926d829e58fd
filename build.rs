//! Link arguments of the shared library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if ["linux", "android", "freebsd"].contains(&target.as_str()) {
        // Programs link against the name of the ABI, not of the file that cargo happens to write.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libjitlock.so.0");
        // The fork handler and the helper threads live in it: once loaded it stays, whatever dlclose says.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
