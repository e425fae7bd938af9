//! The text of every error, as it goes over the wire.

use sluice_core::Error;

#[test]
fn every_error_has_its_text() {
    let all = [
        (Error::Syntax, "ERR syntax error"),
        (Error::WrongArity, "ERR wrong number of arguments"),
        (
            Error::WrongType,
            "WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
        (
            Error::Range {
                name: "lease_ms",
                min: 1,
                max: 86_400_000,
            },
            "ERR lease_ms must be an integer between 1 and 86400000",
        ),
        (
            Error::SignedRange {
                name: "quantity",
                most: 1_000_000_000,
            },
            "ERR quantity must be an integer between -1000000000 and 1000000000",
        ),
        (
            Error::Length {
                name: "META",
                min: 0,
                max: 1024,
            },
            "ERR META must be between 0 and 1024 bytes long",
        ),
        (
            Error::CostAboveLimit {
                cost: 11,
                limit: 10,
            },
            "ERR COST 11 is above the limit of 10: it can never be admitted",
        ),
        (
            Error::DrainTooLong,
            "ERR a full bucket must drain within 100 years: check the policy",
        ),
        (
            Error::LogLimit { max: 100_000 },
            "ERR limit must be an integer between 1 and 100000 (sluice.rl-max-log-entries)",
        ),
        (
            Error::ChargeTooLarge,
            "ERR the charge would take more than 100 years to drain",
        ),
        (
            Error::OtherAlgorithm {
                holds: "FIXEDWINDOW",
                wanted: "bucket",
            },
            "ERR key holds a FIXEDWINDOW limiter, not bucket",
        ),
        (
            Error::QueueFull,
            "QUEUEFULL too many clients wait for this key",
        ),
        (
            Error::PermitsAboveLimit {
                permits: 5,
                limit: 3,
            },
            "ERR PERMITS 5 is above the limit of 3: it can never be granted",
        ),
        (
            Error::PermitsChanged { permits: 2 },
            "ERR this holder asked for 2 permits before: PERMITS cannot change",
        ),
        (
            Error::PermitsChanged { permits: 1 },
            "ERR this holder asked for 1 permit before: PERMITS cannot change",
        ),
        (
            Error::TooManyHolders,
            "ERR a semaphore has at most 100000 holders",
        ),
        (
            Error::SlotMoved,
            "TRYAGAIN the key's slot is moving: ask again where it is served",
        ),
        (
            Error::SessionInScript,
            "ERR SESSION is not possible in a script: it has no connection to bind to",
        ),
        (
            Error::TooFewKeys,
            "ERR numkeys is more than the keys that follow",
        ),
        (Error::SameKeyTwice, "ERR the same key is given twice"),
        (
            Error::TokensExhausted,
            "ERR no fencing token is left below 2^53: check the server's clock",
        ),
        (
            Error::EffectOrigin,
            "ERR internal command: accepted only from the primary or the append-only file",
        ),
        (
            Error::EffectVersion,
            "ERR effect of a newer sluice version: upgrade replicas first",
        ),
        (Error::EffectMalformed, "ERR malformed effect"),
        (
            Error::Internal,
            "ERR internal error in sluice: see the server log",
        ),
    ];
    for (error, text) in all {
        assert_eq!(error.to_string(), text);
        // One line, or the reply would end in the middle of it.
        assert!(!text.contains(['\r', '\n']));
    }
}
