//! Instants, in the two units that occur: the server's clock in microseconds, and deadlines
//! in milliseconds, as the keys' own TTLs have them.

/// Microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Micros(pub u64);

/// Milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub u64);

impl Micros {
    /// Instants at or above this are corrupt: 2^61 µs is the year 75037.
    pub const BOUND: u64 = 1 << 61;

    /// The millisecond this instant lies in. Deadlines count from it, so that a hold and
    /// its key, whose TTL the server judges in milliseconds, never disagree.
    pub fn floor_ms(self) -> Millis {
        Millis(self.0 / 1000)
    }
}

impl Millis {
    /// Instants at or above this are corrupt: 2^53 ms is the year 287396. The bound leaves
    /// room for every sum in this crate and fits the server's signed TTLs.
    pub const BOUND: u64 = 1 << 53;

    pub fn plus(self, ms: u64) -> Millis {
        Millis(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to `self`; 0 when the clock has stepped back behind it.
    pub fn since(self, earlier: Millis) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Whether something with this deadline is over. A deadline is its last living
    /// millisecond, as for keys: expired means strictly later.
    pub fn is_past(self, now: Millis) -> bool {
        now > self
    }
}
