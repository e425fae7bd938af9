//! Policies and costs as clients write them, and the five integers they are answered.

use proptest::prelude::*;
use sluice_core::limiter::policy::{MAX_PERIOD_MS, MAX_TOKENS};
use sluice_core::limiter::{Algorithm, BucketPolicy, Policy, Verdict};
use sluice_core::Error;

const BUCKETS: [Algorithm; 3] = [
    Algorithm::Gcra,
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
];
const MOST: u64 = 1_000_000_000;
const YEAR_MS: u64 = 31_536_000_000;
const MOST_TEXT: &str = "1000000000";
const YEAR_TEXT: &str = "31536000000";
const DRAIN: &str = "ERR a full bucket must drain within 100 years: check the policy";

fn read(algorithm: Algorithm, numbers: [&str; 3]) -> Result<Policy, String> {
    algorithm
        .policy(&numbers.map(str::as_bytes), 100_000)
        .map_err(|error| error.to_string())
}

fn policy(capacity: u64, count: u64, period_ms: u64) -> Result<Policy, String> {
    let texts = [capacity, count, period_ms].map(|n| n.to_string());
    let [capacity, count, period_ms] = &texts;
    read(Algorithm::TokenBucket, [capacity, count, period_ms])
}

fn bucket(policy: Policy) -> BucketPolicy {
    match policy {
        Policy::Bucket(bucket) | Policy::LeakyBucket(bucket) => bucket,
        other => panic!("{other:?}"),
    }
}

// Names ----------------------------------------------------------------------------------

#[test]
fn an_algorithm_is_named_in_any_case() {
    for word in ["GCRA", "gcra", "Gcra", "gCrA"] {
        assert_eq!(Algorithm::named(word.as_bytes()), Ok(Algorithm::Gcra));
    }
    for word in ["LEAKYBUCKET", "leakybucket", "LeakyBucket"] {
        assert_eq!(
            Algorithm::named(word.as_bytes()),
            Ok(Algorithm::LeakyBucket)
        );
    }
    for word in ["TOKENBUCKET", "tokenbucket", "TokenBucket"] {
        assert_eq!(
            Algorithm::named(word.as_bytes()),
            Ok(Algorithm::TokenBucket)
        );
    }
    for algorithm in Algorithm::ALL {
        assert_eq!(Algorithm::named(algorithm.name().as_bytes()), Ok(algorithm));
    }
}

#[test]
fn any_other_name_is_a_syntax_error() {
    for word in [
        &b""[..],
        b"GCR",
        b"GCRAA",
        b" GCRA",
        b"GCRA\0",
        b"RL.GCRA",
        b"TOKEN_BUCKET",
        b"BUCKET",
        b"\xff",
        "GCR\u{410}".as_bytes(),
        // The Kelvin sign, whose lower case is k.
        "TO\u{212a}ENBUCKET".as_bytes(),
        &[b'A'; 10_000],
    ] {
        assert_eq!(Algorithm::named(word), Err(Error::Syntax));
    }
    assert_eq!(Error::Syntax.to_string(), "ERR syntax error");
}

#[test]
fn what_their_numbers_are_called() {
    assert_eq!(
        Algorithm::Gcra.parameters(),
        ["burst", "count", "period_ms"]
    );
    assert_eq!(
        Algorithm::TokenBucket.parameters(),
        ["capacity", "refill", "period_ms"]
    );
    assert_eq!(
        Algorithm::LeakyBucket.parameters(),
        ["capacity", "leak", "period_ms"]
    );
}

// Ranges ---------------------------------------------------------------------------------

/// The error of each number in its place, the others being right.
fn errors(algorithm: Algorithm, place: usize) -> &'static str {
    match (algorithm, place) {
        (Algorithm::Gcra, 0) => "ERR burst must be an integer between 1 and 1000000000",
        (Algorithm::Gcra, 1) => "ERR count must be an integer between 1 and 1000000000",
        (Algorithm::LeakyBucket, 1) => "ERR leak must be an integer between 1 and 1000000000",
        (Algorithm::TokenBucket | Algorithm::LeakyBucket, 0) => {
            "ERR capacity must be an integer between 1 and 1000000000"
        }
        (Algorithm::TokenBucket, 1) => "ERR refill must be an integer between 1 and 1000000000",
        (_, _) => "ERR period_ms must be an integer between 1 and 31536000000",
    }
}

#[test]
fn each_number_has_its_range_and_its_error() {
    let refused = [
        "",
        "0",
        "-1",
        "+1",
        "01",
        "1.0",
        "1e3",
        " 1",
        "1 ",
        "x",
        "1000000000000",
        "9223372036854775807",
        "18446744073709551615",
        "18446744073709551616",
    ];
    for algorithm in BUCKETS {
        for place in 0..3 {
            let above = if place == 2 {
                "31536000001"
            } else {
                "1000000001"
            };
            for text in refused.iter().copied().chain([above]) {
                let mut numbers = ["1", "1", "1000"];
                numbers[place] = text;
                assert_eq!(
                    read(algorithm, numbers),
                    Err(errors(algorithm, place).to_string()),
                    "{numbers:?}"
                );
            }
        }
    }
}

#[test]
fn both_ends_of_each_range_are_inside_it() {
    for algorithm in BUCKETS {
        for numbers in [
            ["1", "1", "1"],
            ["1", "1", YEAR_TEXT],
            ["1", MOST_TEXT, "1"],
            ["1", MOST_TEXT, YEAR_TEXT],
            [MOST_TEXT, "1", "1"],
            [MOST_TEXT, MOST_TEXT, "1"],
            [MOST_TEXT, MOST_TEXT, YEAR_TEXT],
        ] {
            let bucket = bucket(read(algorithm, numbers).unwrap());
            assert_eq!(bucket.capacity().to_string(), numbers[0]);
            assert_eq!(bucket.count().to_string(), numbers[1]);
            assert_eq!(bucket.period_ms().to_string(), numbers[2]);
        }
    }
}

#[test]
fn the_first_number_that_is_wrong_is_the_one_named() {
    for algorithm in BUCKETS {
        assert_eq!(
            read(algorithm, ["0", "0", "0"]),
            Err(errors(algorithm, 0).to_string())
        );
        assert_eq!(
            read(algorithm, ["1", "0", "0"]),
            Err(errors(algorithm, 1).to_string())
        );
        // A range before the rule on all three.
        assert_eq!(
            read(algorithm, [MOST_TEXT, "1", "31536000001"]),
            Err(errors(algorithm, 2).to_string())
        );
    }
}

#[test]
fn all_buckets_read_the_same_policy() {
    let numbers = ["10", "7", "1000"];
    assert_eq!(
        read(Algorithm::LeakyBucket, numbers).map(bucket),
        read(Algorithm::Gcra, numbers).map(bucket)
    );
    assert_eq!(
        read(Algorithm::Gcra, numbers),
        read(Algorithm::TokenBucket, numbers)
    );
}

// A hundred years ------------------------------------------------------------------------

#[test]
fn a_full_bucket_drains_within_100_years_to_the_token() {
    for (capacity, count, period_ms) in [
        (100, 1, YEAR_MS),
        (700, 7, YEAR_MS),
        (36_500, 1, 86_400_000),
        (876_000, 1, 3_600_000),
        (52_560_000, 1, 60_000),
        (MOST - 1, MOST / 100, YEAR_MS),
    ] {
        assert!(policy(capacity, count, period_ms).is_ok());
    }
    for (capacity, count, period_ms) in [
        (101, 1, YEAR_MS),
        (701, 7, YEAR_MS),
        (36_501, 1, 86_400_000),
        (876_001, 1, 3_600_000),
        (52_560_001, 1, 60_000),
        (MOST, 1, YEAR_MS),
        (MOST, MOST / 100 - 1, YEAR_MS),
    ] {
        assert_eq!(policy(capacity, count, period_ms), Err(DRAIN.to_string()));
    }
    assert!(policy(MOST, MOST / 100, YEAR_MS).is_ok());
}

#[test]
fn and_to_the_millisecond_of_the_period() {
    // 100 years are 997 × 3,163,089,267 ms, and 801 ms.
    assert!(policy(997, 1, 3_163_089_267).is_ok());
    assert_eq!(policy(997, 1, 3_163_089_268), Err(DRAIN.to_string()));
    assert!(policy(300, 3, YEAR_MS).is_ok());
    assert_eq!(policy(301, 3, YEAR_MS), Err(DRAIN.to_string()));
}

#[test]
fn the_limits_are_what_the_docs_say() {
    assert_eq!(MAX_TOKENS, MOST);
    assert_eq!(MAX_PERIOD_MS, YEAR_MS);
    assert_eq!(MAX_PERIOD_MS, 365 * 86_400_000);
    assert_eq!(BucketPolicy::MAX_DRAIN_US, 100 * u128::from(YEAR_MS) * 1000);
}

// Costs ----------------------------------------------------------------------------------

#[test]
fn a_cost_is_1_up_to_the_limit() {
    let ten = policy(10, 10, 1_000).unwrap();
    assert_eq!(ten.limit(), 10);
    assert_eq!(ten.cost(b"1"), Ok(1));
    assert_eq!(ten.cost(b"10"), Ok(10));
    let most = policy(MOST, MOST, 1).unwrap();
    assert_eq!(most.limit(), MOST);
    assert_eq!(most.cost(b"1000000000"), Ok(MOST));
}

/// redis/redis#15113: a cost larger than the burst was answered as if the bucket was full.
#[test]
fn a_cost_that_no_waiting_would_ever_admit_is_an_error_that_says_so() {
    let ten = policy(10, 10, 1_000).unwrap();
    for (text, error) in [
        (
            "11",
            "ERR COST 11 is above the limit of 10: it can never be admitted",
        ),
        (
            MOST_TEXT,
            "ERR COST 1000000000 is above the limit of 10: it can never be admitted",
        ),
    ] {
        assert_eq!(ten.cost(text.as_bytes()).unwrap_err().to_string(), error);
    }
}

#[test]
fn anything_else_is_no_cost() {
    let range = "ERR COST must be an integer between 1 and 1000000000";
    for limit in [1, 10, MOST] {
        let policy = policy(limit, MOST, 1).unwrap();
        for text in [
            "",
            "0",
            "-1",
            "-0",
            "+1",
            "01",
            "1.5",
            "1e1",
            "one",
            "1000000001",
            "9223372036854775807",
            "18446744073709551616",
        ] {
            assert_eq!(policy.cost(text.as_bytes()).unwrap_err().to_string(), range);
        }
        assert_eq!(policy.cost(b"\xff").unwrap_err().to_string(), range);
    }
}

// Replies --------------------------------------------------------------------------------

fn verdict(wait_us: u128, reset_us: u128) -> Verdict {
    Verdict {
        allowed: false,
        limit: 7,
        remaining: 3,
        wait_us,
        reset_us,
    }
}

#[test]
fn the_five_integers() {
    assert_eq!(verdict(2_000, 5_000).reply(), [0, 7, 3, 2, 5]);
    let allowed = Verdict {
        allowed: true,
        ..verdict(0, 1)
    };
    assert_eq!(allowed.reply(), [1, 7, 3, 0, 1]);
}

#[test]
fn times_are_rounded_up() {
    for (us, ms) in [
        (0, 0),
        (1, 1),
        (999, 1),
        (1_000, 1),
        (1_001, 2),
        (1_999, 2),
        (2_000, 2),
        (3_153_600_000_000_000, 3_153_600_000_000),
    ] {
        assert_eq!(verdict(us, 0).reply(), [0, 7, 3, ms, 0]);
        assert_eq!(verdict(0, us).reply(), [0, 7, 3, 0, ms]);
    }
}

#[test]
fn times_saturate_at_what_a_reply_holds() {
    let most = i64::MAX as u64;
    let most_us = u128::from(most) * 1000;
    for (us, ms) in [
        (most_us - 1_000, most - 1),
        (most_us - 999, most),
        (most_us, most),
        (most_us + 1, most),
        (most_us + 1_000, most),
        (u128::from(u64::MAX) * 1000, most),
        (u128::from(u64::MAX) * 1000 + 1, most),
        (1 << 96, most),
        (u128::MAX, most),
    ] {
        assert_eq!(verdict(us, us).reply(), [0, 7, 3, ms, ms]);
    }
}

// Any numbers ----------------------------------------------------------------------------

fn number(most: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => 1..=10u64,
        2 => (0..=36u32).prop_map(|bits| 1 << bits),
        2 => 1..=most,
        2 => most - 1..=most + 1,
        1 => any::<u64>(),
        1 => Just(0u64),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_policy_is_read_exactly_when_it_keeps_the_rules(
        capacity in number(MOST),
        count in number(MOST),
        period_ms in number(YEAR_MS),
    ) {
        let expected = if !(1..=MOST).contains(&capacity) {
            Err(errors(Algorithm::TokenBucket, 0).to_string())
        } else if !(1..=MOST).contains(&count) {
            Err(errors(Algorithm::TokenBucket, 1).to_string())
        } else if !(1..=YEAR_MS).contains(&period_ms) {
            Err(errors(Algorithm::TokenBucket, 2).to_string())
        } else if u128::from(capacity) * u128::from(period_ms)
            > u128::from(100 * YEAR_MS) * u128::from(count)
        {
            Err(DRAIN.to_string())
        } else {
            Ok([capacity, count, period_ms])
        };
        let read = policy(capacity, count, period_ms).map(bucket).map(|bucket| [
            u64::from(bucket.capacity()),
            u64::from(bucket.count()),
            bucket.period_ms(),
        ]);
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn the_edge_of_100_years_lies_between_two_capacities(
        count in 1..=MOST,
        period_ms in 1..=YEAR_MS,
    ) {
        let most = u128::from(100 * YEAR_MS) * u128::from(count) / u128::from(period_ms);
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        prop_assert!(policy(most.min(MOST), count, period_ms).is_ok());
        if most < MOST {
            prop_assert_eq!(policy(most + 1, count, period_ms), Err(DRAIN.to_string()));
        }
    }
}
