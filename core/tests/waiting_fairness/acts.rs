//! What clients, operators, the clock and chance do to one key.

use crate::server::Server;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::RngAlgorithm;

pub(crate) const OWNERS: [&[u8]; 5] = [b"a", b"a\0", b"b", b"\r\n", &[0xff; 512]];

#[derive(Clone, Debug)]
pub(crate) enum Act {
    Acquire {
        owner: usize,
        wish: Wish,
        is_reentrant: bool,
        how: How,
    },
    Release {
        who: Who,
        keep_ms: Option<u64>,
    },
    Renew {
        who: Who,
        lease_ms: u64,
    },
    Downgrade(Who),
    ForceRelease,
    /// DEL, expiry, eviction, FLUSH: the server calls `unlinked` and nothing else.
    Lose,
    /// Disconnect, CLIENT UNBLOCK, CLIENT KILL.
    Leave(Index),
    /// The client of one of the last grants died before it read the reply.
    Undelivered(Index),
    /// The wall clock steps.
    Clock(i64),
    /// Time passes on both clocks.
    Pass(u64),
    /// The deferred writer, by timer or cron.
    Serve,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    Plain,
    Block {
        wait_us: u64,
    },
    /// In MULTI or Lua.
    Script,
}

/// A live holder if there is one, or anybody.
#[derive(Clone, Debug)]
pub(crate) enum Who {
    Holder(Index),
    Anybody(usize),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) lease_ms: u64,
    pub(crate) is_shared: bool,
    pub(crate) maxhold_ms: Option<u64>,
}

fn lease() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 1..20u64, 1 => 1..100_000u64]
}

fn wish() -> impl Strategy<Value = Wish> {
    (
        lease(),
        prop::bool::weighted(0.6),
        prop::option::weighted(0.2, lease()),
    )
        .prop_map(|(lease_ms, is_shared, maxhold_ms)| Wish {
            lease_ms,
            is_shared,
            maxhold_ms,
        })
}

fn act() -> impl Strategy<Value = Act> {
    const HOUR_US: i64 = 3_600_000_000;
    let wait = prop_oneof![1 => 1..20_000u64, 3 => 1..10_000_000u64];
    let how = prop_oneof![
        1 => Just(How::Plain),
        6 => wait.prop_map(|wait_us| How::Block { wait_us }),
        1 => Just(How::Script),
    ];
    let who = || {
        prop_oneof![
            4 => any::<Index>().prop_map(Who::Holder),
            1 => (0..OWNERS.len()).prop_map(Who::Anybody),
        ]
    };
    prop_oneof![
        12 => (0..OWNERS.len(), wish(), prop::bool::weighted(0.2), how)
            .prop_map(|(owner, wish, is_reentrant, how)| Act::Acquire {
                owner,
                wish,
                is_reentrant,
                how,
            }),
        5 => (who(), prop::option::weighted(0.2, lease()))
            .prop_map(|(who, keep_ms)| Act::Release { who, keep_ms }),
        2 => (who(), lease()).prop_map(|(who, lease_ms)| Act::Renew { who, lease_ms }),
        2 => who().prop_map(Act::Downgrade),
        1 => Just(Act::ForceRelease),
        1 => Just(Act::Lose),
        2 => any::<Index>().prop_map(Act::Leave),
        2 => any::<Index>().prop_map(Act::Undelivered),
        1 => prop_oneof![Just(HOUR_US), Just(-HOUR_US), -5000..5000i64].prop_map(Act::Clock),
        4 => prop_oneof![3 => 0..20_000u64, 1 => 0..10_000_000u64].prop_map(Act::Pass),
        4 => Just(Act::Serve),
    ]
}

/// With the cheap generator: the default one is most of the time of an unoptimized run.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_algorithm: RngAlgorithm::XorShift,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn the_queue_and_the_lock_are_fair(acts in prop::collection::vec(act(), 1..100)) {
        let mut server = Server::new();
        for act in &acts {
            server.apply(act);
            server.check();
            if matches!(act, Act::Serve) {
                prop_assert!(!server.is_head_kept_waiting());
            }
        }
        server.serve();
        // Whoever still waits is served as the leases end, one after the other.
        let waiting: Vec<usize> = server.line.iter().map(|(owner, _)| *owner).collect();
        let before = server.grants.len();
        let timeouts = server.timeouts;
        while let Some(due) = server.waiting.next_due() {
            server.now = server.now.max((due.0 + 1) * 1000);
            server.serve();
            server.check();
        }
        prop_assert_eq!(server.timeouts, timeouts, "the monotonic clock stood still");
        prop_assert_eq!(&server.grants[before..], waiting);
    }
}
