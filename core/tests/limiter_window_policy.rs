//! The policies of windows and logs, and ALIGN, as clients write them.

use sluice_core::limiter::{Algorithm, Policy};
use sluice_core::Error;

const WINDOWS: [Algorithm; 3] = [
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::SlidingLog,
];
const REFUSED: [&str; 12] = [
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
    "18446744073709551616",
    "\u{661}",
];

fn read(algorithm: Algorithm, numbers: [&str; 2]) -> Result<Policy, String> {
    algorithm
        .policy(&numbers.map(str::as_bytes), 100_000)
        .map_err(|error| error.to_string())
}

#[test]
fn what_they_are_called() {
    for (algorithm, name) in WINDOWS
        .into_iter()
        .zip(["FixedWindow", "slidingWINDOW", "SLIDINGLOG"])
    {
        assert_eq!(Algorithm::named(name.as_bytes()), Ok(algorithm));
        assert_eq!(algorithm.parameters(), ["limit", "window_ms"]);
    }
    assert_eq!(Algorithm::named(b"SLIDING"), Err(Error::Syntax));
    let most = Algorithm::ALL.map(|algorithm| algorithm.parameters().len());
    assert_eq!(most.into_iter().max(), Some(Algorithm::MOST_PARAMETERS));
}

#[test]
fn both_ends_of_each_range() {
    for algorithm in WINDOWS {
        for window in ["1", "31536000000"] {
            assert_eq!(read(algorithm, ["1", window]).unwrap().limit(), 1);
        }
        let limit = match algorithm {
            Algorithm::SlidingLog => "100000",
            _ => "1000000000",
        };
        let policy = read(algorithm, [limit, "31536000000"]).unwrap();
        assert_eq!(policy.limit().to_string(), limit);
    }
}

#[test]
fn beyond_them() {
    for algorithm in WINDOWS {
        let (above, error) = match algorithm {
            Algorithm::SlidingLog => (
                "100001",
                "ERR limit must be an integer between 1 and 100000 (sluice.rl-max-log-entries)",
            ),
            _ => (
                "1000000001",
                "ERR limit must be an integer between 1 and 1000000000",
            ),
        };
        for limit in REFUSED.into_iter().chain([above]) {
            assert_eq!(
                read(algorithm, [limit, "0"]),
                Err(error.to_string()),
                "{limit}"
            );
        }
        for window in REFUSED.into_iter().chain(["31536000001"]) {
            let error = "ERR window_ms must be an integer between 1 and 31536000000";
            assert_eq!(
                read(algorithm, ["1", window]),
                Err(error.to_string()),
                "{window}"
            );
        }
    }
}

#[test]
fn the_setting_bounds_a_log_and_nothing_else() {
    let at = |algorithm: Algorithm, limit: &str, most| {
        algorithm
            .policy(&[limit.as_bytes(), b"1000"], most)
            .map(|policy| policy.limit())
    };
    assert_eq!(at(Algorithm::SlidingLog, "5", 5), Ok(5));
    assert_eq!(
        at(Algorithm::SlidingLog, "6", 5),
        Err(Error::LogLimit { max: 5 })
    );
    assert_eq!(
        at(Algorithm::SlidingLog, "1000000", 1_000_000),
        Ok(1_000_000)
    );
    assert_eq!(at(Algorithm::SlidingWindow, "6", 5), Ok(6));
    assert_eq!(at(Algorithm::FixedWindow, "6", 5), Ok(6));
}

#[test]
fn align_is_for_fixed_windows() {
    let fixed = read(Algorithm::FixedWindow, ["10", "1000"]).unwrap();
    for offset in ["0", "1", "999", "1000", "31536000000"] {
        let aligned = fixed.aligned(offset.as_bytes()).unwrap();
        assert_eq!(aligned.limit(), 10);
        assert_ne!(aligned, fixed);
    }
    for offset in REFUSED
        .into_iter()
        .filter(|text| *text != "0")
        .chain(["31536000001"])
    {
        let error = fixed.aligned(offset.as_bytes()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ERR ALIGN must be an integer between 0 and 31536000000"
        );
    }
    for algorithm in [Algorithm::SlidingWindow, Algorithm::SlidingLog] {
        let policy = read(algorithm, ["10", "1000"]).unwrap();
        assert_eq!(policy.aligned(b"0"), Err(Error::Syntax));
        assert_eq!(policy.aligned(b"x"), Err(Error::Syntax));
    }
    let bucket = Algorithm::LeakyBucket
        .policy(&[b"1", b"1", b"1"], 1)
        .unwrap();
    assert_eq!(bucket.aligned(b"0"), Err(Error::Syntax));
}

#[test]
fn a_call_costs_at_most_the_limit_and_a_charge_what_it_likes() {
    for algorithm in WINDOWS {
        let ten = read(algorithm, ["10", "1000"]).unwrap();
        assert_eq!(ten.cost(b"10"), Ok(10));
        assert_eq!(
            ten.cost(b"11").unwrap_err().to_string(),
            "ERR COST 11 is above the limit of 10: it can never be admitted"
        );
    }
    assert_eq!(Policy::amount(b"1"), Ok(1));
    assert_eq!(Policy::amount(b"1000000000"), Ok(1_000_000_000));
    for text in REFUSED.into_iter().chain(["1000000001"]) {
        assert_eq!(
            Policy::amount(text.as_bytes()).unwrap_err().to_string(),
            "ERR COST must be an integer between 1 and 1000000000"
        );
    }
}
