//! TCP ports that no other test process takes.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, TcpListener},
    os::{fd::AsRawFd, unix::fs::PermissionsExt},
    sync::atomic::{AtomicU16, Ordering},
};

/// Below Linux' ephemeral range (32768…), so that no outgoing connection takes a port while its
/// server restarts; port + 10000, the cluster bus, stays below it too and meets no other port.
const FIRST: u16 = 12_000;
const COUNT: u16 = 10_000;

/// A port reserved among all test processes of this user until dropped, over restarts of its server.
/// The reservation is an flock, which the kernel gives back when the process dies.
pub(crate) struct Port {
    pub(crate) number: u16,
    _lock: File,
}

impl Port {
    pub(crate) fn reserve() -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        // SAFETY: no arguments, cannot fail.
        let user = unsafe { libc::getuid() };
        let dir = std::env::temp_dir().join(format!("sluice-testbed-ports-{user}"));
        fs::create_dir_all(&dir).expect("cannot create the directory of port locks");
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))
            .expect("the directory of port locks belongs to someone else");
        // Processes start at different places, so that they rarely try the same port.
        let start = std::process::id().wrapping_mul(97) as u16 % COUNT;
        for _ in 0..COUNT {
            let step = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
            let number = FIRST + (start + step) % COUNT;
            let file = File::create(dir.join(number.to_string())).expect("cannot open a port lock");
            // SAFETY: a valid descriptor; the call has no memory effects.
            let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
            let free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
            if locked == 0 && free(number) && free(number + 10_000) {
                return Self {
                    number,
                    _lock: file,
                };
            }
        }
        panic!("no free port in {FIRST}..{}", FIRST + COUNT)
    }
}
