//! What the tests of the limiters share.

use crate::support::*;
use sluice_testbed::Chain;

pub(crate) const HOUR_MS: i64 = 3_600_000;

/// How much longer than it matters a limiter's key may live.
pub(crate) const SLACK_MS: i64 = 1000;

pub(crate) const MAX_TOKENS: i64 = 1_000_000_000;

/// The command that carries a limiter to replicas and into the append-only file.
pub(crate) const EFFECT: &str = "sluice.rl";

/// A year, the longest period.
pub(crate) const MAX_PERIOD_MS: i64 = 31_536_000_000;

/// The reply of every limiter: allowed, limit, remaining, wait_ms, reset_ms.
pub(crate) fn five(integers: [i64; 5]) -> Reply {
    array(integers.map(int))
}

/// Runs each command as one would type it, and checks its five integers.
#[track_caller]
pub(crate) fn run(conn: &mut Conn, cases: &[(&str, [i64; 5])]) {
    for (line, expected) in cases {
        assert_eq!(conn.cmd(&words(line)), five(*expected), "{line}");
    }
}

/// Runs a command `times` times and says how many of them were admitted.
#[track_caller]
pub(crate) fn admitted(conn: &mut Conn, line: &str, times: usize) -> usize {
    let replies = conn.pipeline(&vec![words(line); times]);
    let is_admitted = |reply: &&Reply| reply.items()[0] == int(1);
    replies.iter().filter(is_admitted).count()
}

/// The state of the bucket family, apart from the module.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    /// In ticks: a token has as many as its period has µs, and a µs drains `count` of them.
    pub(crate) debt: u128,
    pub(crate) at_us: u64,
    pub(crate) capacity: u32,
    pub(crate) count: u32,
    pub(crate) period_ms: u64,
}

impl Bucket {
    /// That owes `tokens` since `at_us`, under `(capacity, count, period_ms)`.
    pub(crate) fn owing(tokens: u128, at_us: i64, policy: (u32, u32, u64)) -> Bucket {
        let (capacity, count, period_ms) = policy;
        Bucket {
            debt: tokens * u128::from(period_ms) * 1000,
            at_us: at_us as u64,
            capacity,
            count,
            period_ms,
        }
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        let mut out = vec![0]; // of the bucket family
        out.extend(&self.debt.to_le_bytes()[..12]);
        out.extend(self.at_us.to_le_bytes());
        out.extend(self.capacity.to_le_bytes());
        out.extend(self.count.to_le_bytes());
        out.extend(self.period_ms.to_le_bytes());
        out
    }

    pub(crate) fn stored(&self) -> Vec<u8> {
        [&[1], &self.body()[..]].concat()
    }

    pub(crate) fn dump(&self) -> Vec<u8> {
        dump("sluice-rl", 1, &self.stored())
    }

    pub(crate) fn effect_on(&self, key: impl AsRef<[u8]>, now_us: i64) -> Vec<Vec<u8>> {
        args![EFFECT, key.as_ref(), effect(now_us, &self.body())]
    }
}

/// The body of a FIXEDWINDOW's state: what it has counted since its start.
pub(crate) fn fixed_window((limit, window_ms): (u32, u64), start_us: i64, count: u64) -> Vec<u8> {
    let mut out = vec![1];
    out.extend(start_us.to_le_bytes());
    out.extend(count.to_le_bytes());
    out.extend(limit.to_le_bytes());
    out.extend(window_ms.to_le_bytes());
    out
}

/// The body of a SLIDINGWINDOW's state; `counts` are the current window's and the previous one's.
pub(crate) fn sliding_window(
    (limit, window_ms): (u32, u64),
    start_us: i64,
    counts: [u64; 2],
) -> Vec<u8> {
    let mut out = vec![2];
    out.extend(start_us.to_le_bytes());
    out.extend(counts.map(u64::to_le_bytes).concat());
    out.extend(limit.to_le_bytes());
    out.extend(window_ms.to_le_bytes());
    out
}

/// The body of a SLIDINGLOG's state; `entries` are an instant and the total up to it.
pub(crate) fn sliding_log(
    (limit, window_ms): (u32, u64),
    base: u64,
    entries: &[(u64, u64)],
) -> Vec<u8> {
    let mut out = vec![3];
    out.extend(limit.to_le_bytes());
    out.extend(window_ms.to_le_bytes());
    out.extend(base.to_le_bytes());
    out.extend((entries.len() as u32).to_le_bytes());
    for (at_us, total) in entries {
        out.extend(at_us.to_le_bytes());
        out.extend(total.to_le_bytes());
    }
    out
}

/// The body of a SLIDINGLOG's effect: behind the entry at `behind_us` there is one more, and what
/// had a total up to `base` is gone.
pub(crate) fn log_step(
    (limit, window_ms): (u32, u64),
    base: u64,
    behind_us: i64,
    (at_us, total): (i64, u64),
) -> Vec<u8> {
    let mut out = vec![16];
    out.extend(limit.to_le_bytes());
    out.extend(window_ms.to_le_bytes());
    out.extend(base.to_le_bytes());
    out.extend(behind_us.to_le_bytes());
    out.extend(at_us.to_le_bytes());
    out.extend(total.to_le_bytes());
    out
}

/// Another body, or [`UNUSED`], below a block.
pub(crate) fn blocked(from_us: i64, until_us: i64, below: &[u8]) -> Vec<u8> {
    let mut out = vec![4];
    out.extend(from_us.to_le_bytes());
    out.extend(until_us.to_le_bytes());
    out.extend(below);
    out
}

/// What stands below a block of a key without any use.
pub(crate) const UNUSED: &[u8] = &[5];

/// A body as it is stored.
pub(crate) fn stored(body: &[u8]) -> Vec<u8> {
    [&[1], body].concat()
}

/// What DUMP answers for a limiter with this body.
pub(crate) fn limiter_dump(body: &[u8]) -> Vec<u8> {
    dump("sluice-rl", 1, &stored(body))
}

/// The effect of a limiter with this body.
pub(crate) fn limiter_effect(key: &str, now_us: i64, body: &[u8]) -> Vec<Vec<u8>> {
    args![EFFECT, key, effect(now_us, body)]
}

/// A key's deadline: the millisecond at which all is drained, rounded up, and the slack.
pub(crate) fn deadline_ms(at_us: i64, drain_us: i64) -> i64 {
    (at_us + drain_us + 999) / 1000 + SLACK_MS
}

/// What the chain propagated since `from` commands stood in the sub-replica's file.
pub(crate) struct Tap<'a> {
    chain: &'a Chain,
    from: usize,
}

impl<'a> Tap<'a> {
    pub(crate) fn on(chain: &'a Chain) -> Tap<'a> {
        // So that no SELECT follows.
        cmd!(chain.primary.conn(), "SET", "tap", "1");
        cmd!(chain.primary.conn(), "DEL", "tap");
        chain.sync();
        let from = chain.sub.aof_commands().len();
        Tap { chain, from }
    }

    /// Everything new, as it came over both links.
    #[track_caller]
    pub(crate) fn take(&mut self) -> Vec<Vec<Vec<u8>>> {
        self.chain.sync();
        let new = self.chain.sub.aof_commands().split_off(self.from);
        self.from += new.len();
        new
    }
}

/// Digests and the absolute expiry of every key of database 0 are equal on all three.
#[track_caller]
pub(crate) fn assert_same(chain: &Chain) {
    chain.assert_equal();
    let [primary, replica, sub] = chain.servers().map(deadlines);
    assert_eq!(primary, replica);
    assert_eq!(replica, sub);
}

/// Every key of database 0 and its absolute expiry.
pub(crate) fn deadlines(server: &Server) -> Vec<(Vec<u8>, i64)> {
    let mut c = server.conn();
    let mut all: Vec<_> = cmd!(c, "KEYS", "*")
        .items()
        .iter()
        .map(|key| {
            let key = key.as_bytes().to_vec();
            let at = cmd!(c, "PEXPIRETIME", &key).as_int();
            (key, at)
        })
        .collect();
    all.sort();
    all
}

pub(crate) fn digest_of(conn: &mut Conn, key: &str) -> Reply {
    cmd!(conn, "DEBUG", "DIGEST-VALUE", key)
}

/// A server that records, with `k` half used under `10 10 1000`.
pub(crate) fn half_used() -> Server {
    let server = recorder();
    run(
        &mut server.conn(),
        &[("RL.GCRA k 10 10 1000 COST 5", [1, 10, 5, 0, 500])],
    );
    server
}

/// A server of the test's own at [`T_US`].
#[track_caller]
pub(crate) fn own(options: Options) -> Server {
    let server = options.start();
    server.clock().freeze_at(T_US);
    server
}

/// Of all databases.
pub(crate) fn digest(server: &Server) -> Reply {
    cmd!(server.conn(), "DEBUG", "DIGEST")
}

pub(crate) fn dump_of(c: &mut Conn, key: &str) -> Vec<u8> {
    cmd!(c, "DUMP", key).as_bytes().to_vec()
}

/// SplitMix64: the same numbers on every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn one_of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }
}
