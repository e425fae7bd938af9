//! The wall clock of one or more servers, under the test's control.

use std::{
    fs::File,
    os::fd::{AsRawFd, FromRawFd},
    path::PathBuf,
    ptr::NonNull,
    sync::{
        atomic::{AtomicI64, Ordering::SeqCst},
        Arc, Mutex, MutexGuard, PoisonError,
    },
    time::{SystemTime, UNIX_EPOCH},
};

/// The shim built from `clock_shim.c`, for `LD_PRELOAD`.
pub(crate) const SHIM: &str = concat!(env!("OUT_DIR"), "/clock_shim.so");

/// The first fresh instant, in µs: its millisecond and microsecond parts differ and are not zero, so
/// that a unit mixed up anywhere shows in the result.
const FIRST_FRESH_US: i64 = 2_000_000_000_123_457;
const SUB_SECOND_US: i64 = FIRST_FRESH_US % 1_000_000;
const THREE_DAYS_US: i64 = 3 * 86_400 * 1_000_000;
/// A clock that was once beyond this is not used for fresh instants any more: a test went to the far
/// end of time, and the next one should not start there.
const LAST_FRESH_US: i64 = 4_000_000_000_000_000;

/// Same layout as `struct page` in `clock_shim.c`.
#[repr(C)]
struct Page {
    frozen: AtomicI64,
    offset_us: AtomicI64,
    frozen_us: AtomicI64,
    mono_offset_us: AtomicI64,
}

struct Inner {
    page: NonNull<Page>,
    file: File,
    /// The highest wall-clock time shown so far, in µs; the lock also makes the read-modify-write
    /// of the page one step.
    highest_us: Mutex<i64>,
}

// SAFETY: the page is only touched through atomics and stays mapped until the last owner drops it.
unsafe impl Send for Inner {}
// SAFETY: as above; `highest_us` has its own lock.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: mapped in `Clock::new` with this length, and nobody else holds `Inner` now.
        unsafe { libc::munmap(self.page.as_ptr().cast(), size_of::<Page>()) };
    }
}

/// A clock that servers started with it follow, to the microsecond and at once. Clones are the same
/// clock. A new one runs and shows the real time.
///
/// Only the wall clock freezes. The monotonic clock always runs, else the servers' event loops and
/// cron would stand still.
#[derive(Clone)]
pub struct Clock {
    inner: Arc<Inner>,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    pub fn new() -> Self {
        let file = memory_file();
        file.set_len(size_of::<Page>() as u64)
            .expect("cannot size the clock file");
        let inner = Inner {
            page: map(&file),
            file,
            highest_us: Mutex::new(0),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// What a server's `TIME` answers now, in µs since the epoch.
    pub fn now_us(&self) -> i64 {
        let page = self.page();
        if page.frozen.load(SeqCst) != 0 {
            page.frozen_us.load(SeqCst)
        } else {
            real_us() + page.offset_us.load(SeqCst)
        }
    }

    pub fn now_ms(&self) -> i64 {
        self.now_us().div_euclid(1000)
    }

    /// Stops the wall clock at exactly `us` µs since the epoch.
    pub fn freeze_at(&self, us: i64) {
        let mut highest = self.lock_and_note();
        self.set_frozen(us, &mut highest);
    }

    /// Stops the wall clock at the time it shows.
    pub fn freeze(&self) {
        let mut highest = self.lock_and_note();
        self.set_frozen(self.now_us(), &mut highest);
    }

    /// Lets the wall clock run on from the time it shows.
    pub fn run(&self) {
        let _highest = self.lock_and_note();
        let page = self.page();
        page.offset_us.store(self.now_us() - real_us(), SeqCst);
        page.frozen.store(0, SeqCst);
    }

    /// Moves the wall clock by `us` µs, frozen or running; a negative step goes back.
    pub fn advance_us(&self, us: i64) {
        let mut highest = self.lock_and_note();
        let page = self.page();
        if page.frozen.load(SeqCst) != 0 {
            page.frozen_us.fetch_add(us, SeqCst);
        } else {
            page.offset_us.fetch_add(us, SeqCst);
        }
        *highest = (*highest).max(self.now_us());
    }

    pub fn advance_ms(&self, ms: i64) {
        self.advance_us(ms * 1000);
    }

    /// Moves the monotonic clock: the servers' cron and event loop then see a jump.
    pub fn advance_mono_ms(&self, ms: i64) {
        self.page().mono_offset_us.fetch_add(ms * 1000, SeqCst);
    }

    /// Freezes three days beyond everything this clock has shown. State that outlives a flush and
    /// compares with the clock (the token high-water mark) then cannot reach into the next test.
    pub(crate) fn freeze_at_fresh_instant(&self) {
        let mut highest = self.lock_and_note();
        // Rounding down loses less than the second that is added.
        let later = (*highest + THREE_DAYS_US) / 1_000_000 * 1_000_000 + 1_000_000 + SUB_SECOND_US;
        let fresh = if *highest < FIRST_FRESH_US {
            FIRST_FRESH_US
        } else {
            later
        };
        self.set_frozen(fresh, &mut highest);
    }

    /// Whether fresh instants are still in a sensible range.
    pub(crate) fn is_reusable(&self) -> bool {
        *self.lock_and_note() < LAST_FRESH_US
    }

    /// The file for `SLUICE_CLOCK`, as servers see it while this process lives.
    pub(crate) fn path(&self) -> PathBuf {
        let fd = self.inner.file.as_raw_fd();
        format!("/proc/{}/fd/{fd}", std::process::id()).into()
    }

    /// The value goes in before the mode, so that no reader sees the mode with an old value.
    fn set_frozen(&self, us: i64, highest: &mut i64) {
        self.page().frozen_us.store(us, SeqCst);
        self.page().frozen.store(1, SeqCst);
        *highest = (*highest).max(us);
    }

    fn lock_and_note(&self) -> MutexGuard<'_, i64> {
        let mut highest = self
            .inner
            .highest_us
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *highest = (*highest).max(self.now_us());
        highest
    }

    fn page(&self) -> &Page {
        // SAFETY: mapped until `Inner` drops; all fields are atomics, valid for any bit pattern.
        unsafe { self.inner.page.as_ref() }
    }
}

/// A file without a name: a test process that is killed leaves nothing behind.
fn memory_file() -> File {
    // SAFETY: a valid C string; the call returns a new descriptor or -1.
    let fd = unsafe { libc::memfd_create(c"sluice-clock".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0, "cannot create a clock file");
    // SAFETY: the descriptor is new, so nobody else owns it.
    unsafe { File::from_raw_fd(fd) }
}

fn map(file: &File) -> NonNull<Page> {
    // SAFETY: a new shared mapping of a file that is at least one `Page` long; nothing is replaced.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<Page>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    assert_ne!(at, libc::MAP_FAILED, "cannot map the clock file");
    NonNull::new(at.cast()).expect("mmap never maps address 0 by itself")
}

fn real_us() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("the machine's clock is before 1970");
    i64::try_from(since.as_micros()).expect("fits until the year 294247")
}
