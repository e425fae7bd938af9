//! Argument values, as strict as the server's own.

use proptest::prelude::*;
use sluice_core::{parse, Error};

/// Nothing but the decimal form of a value in range is an integer.
#[test]
fn malformed_integers() {
    let malformed: [&[u8]; 33] = [
        b"",
        b" ",
        b" 1",
        b"1 ",
        b"1\n",
        b"+1",
        b"-1",
        b"-0",
        b"--1",
        b"00",
        b"01",
        b"0000000000000000001",
        b"0x1",
        b"1.0",
        b"1.",
        b".1",
        b"1e3",
        b"1_000",
        b"1,000",
        b"a",
        b"1a",
        b"/",
        b":",
        b"NaN",
        b"inf",
        b"\0",
        b"1\0",
        b"\x001",
        b"\xff",
        b"18446744073709551616",
        b"99999999999999999999",
        b"100000000000000000000",
        "\u{661}\u{662}".as_bytes(),
    ];
    for text in malformed {
        let error = parse::integer("lease_ms", text, 0..=u64::MAX).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ERR lease_ms must be an integer between 0 and 18446744073709551615",
            "{}",
            text.escape_ascii()
        );
    }
    // Fullwidth digits, and a very long one.
    for text in ["\u{ff11}".as_bytes(), &[b'1'; 100_000]] {
        assert!(parse::integer("n", text, 0..=u64::MAX).is_err());
    }
}

#[test]
fn integers_at_the_ends_of_64_bits() {
    let any = 0..=u64::MAX;
    assert_eq!(parse::integer("n", b"0", any.clone()), Ok(0));
    assert_eq!(parse::integer("n", b"9", any.clone()), Ok(9));
    assert_eq!(parse::integer("n", b"10", any.clone()), Ok(10));
    assert_eq!(
        parse::integer("n", b"18446744073709551615", any),
        Ok(u64::MAX)
    );
}

#[test]
fn both_ends_of_a_range_are_inside_it() {
    let error = Error::Range {
        name: "token",
        min: 10,
        max: 20,
    };
    assert_eq!(
        error.to_string(),
        "ERR token must be an integer between 10 and 20"
    );
    assert_eq!(parse::integer("token", b"9", 10..=20), Err(error));
    assert_eq!(parse::integer("token", b"10", 10..=20), Ok(10));
    assert_eq!(parse::integer("token", b"20", 10..=20), Ok(20));
    assert_eq!(parse::integer("token", b"21", 10..=20), Err(error));
    assert_eq!(parse::integer("token", b"x", 10..=20), Err(error));
}

#[test]
fn a_signed_integer_lies_between_minus_the_most_and_the_most() {
    let error = Error::SignedRange {
        name: "quantity",
        most: 20,
    };
    assert_eq!(
        error.to_string(),
        "ERR quantity must be an integer between -20 and 20"
    );
    for (text, value) in [
        (&b"0"[..], 0),
        (b"1", 1),
        (b"-1", -1),
        (b"20", 20),
        (b"-20", -20),
    ] {
        assert_eq!(parse::signed("quantity", text, 20), Ok(value));
    }
    for text in [
        &b""[..],
        b"-",
        b"--1",
        b"-+1",
        b"+1",
        b"-0",
        b"-01",
        b"01",
        b"00",
        b" -1",
        b"- 1",
        b"-1 ",
        b"1-",
        b"-x",
        b"-1.0",
        b"21",
        b"-21",
        b"9223372036854775808",
        b"-9223372036854775808",
        b"-18446744073709551616",
        // The minus sign of typesetters.
        "\u{2212}1".as_bytes(),
    ] {
        let read = parse::signed("quantity", text, 20);
        assert_eq!(read, Err(error), "{}", text.escape_ascii());
    }
}

#[test]
fn signed_integers_at_the_ends_of_64_bits() {
    let most = i64::MAX as u64;
    let read = |text: &str| parse::signed("n", text.as_bytes(), most).ok();
    assert_eq!(read("9223372036854775807"), Some(i64::MAX));
    assert_eq!(read("-9223372036854775807"), Some(-i64::MAX));
    assert_eq!(read("9223372036854775808"), None);
    assert_eq!(read("-9223372036854775808"), None);
}

#[test]
fn byte_strings_have_bounded_lengths() {
    let error = Error::Length {
        name: "owner",
        min: 1,
        max: 512,
    };
    assert_eq!(
        error.to_string(),
        "ERR owner must be between 1 and 512 bytes long"
    );
    assert_eq!(parse::bytes("owner", b"", 1..=512), Err(error));
    assert_eq!(parse::bytes("owner", b"\0", 1..=512), Ok(&b"\0"[..]));
    assert_eq!(
        parse::bytes("owner", &[7; 512], 1..=512),
        Ok(&[7u8; 512][..])
    );
    assert_eq!(parse::bytes("owner", &[7; 513], 1..=512), Err(error));
    assert_eq!(parse::bytes("META", b"", 0..=1024), Ok(&b""[..]));
}

#[test]
fn an_option_is_given_once() {
    let mut option = None;
    assert_eq!(parse::once(&mut option, 1), Ok(()));
    assert_eq!(option, Some(1));
    assert_eq!(parse::once(&mut option, 1), Err(Error::Syntax));
    assert_eq!(parse::once(&mut option, 2), Err(Error::Syntax));
}

#[test]
fn words_match_without_regard_to_case_and_in_whole() {
    for word in [&b"TOKEN"[..], b"token", b"Token", b"tOkEn"] {
        assert!(parse::is_word(word, "TOKEN"));
    }
    for other in [
        &b""[..],
        b"TOKE",
        b"TOKENS",
        b" TOKEN",
        b"TOKEN\0",
        b"T\xd6KEN",
        // The Kelvin sign, whose lower case is k.
        "TO\u{212a}EN".as_bytes(),
    ] {
        assert!(!parse::is_word(other, "TOKEN"), "{}", other.escape_ascii());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn every_value_in_range_is_read_back(value: u64, a: u64, b: u64) {
        let range = a.min(b)..=a.max(b);
        let read = parse::integer("n", value.to_string().as_bytes(), range.clone());
        prop_assert_eq!(read.ok(), range.contains(&value).then_some(value));
    }

    #[test]
    fn every_signed_value_in_range_is_read_back(value: i64, most in 0..=i64::MAX as u64) {
        for (value, most) in [(value, most), (value % 100, most % 100)] {
            let read = parse::signed("n", value.to_string().as_bytes(), most);
            prop_assert_eq!(read.ok(), (value.unsigned_abs() <= most).then_some(value));
        }
    }

    #[test]
    fn nothing_but_the_decimal_form_is_accepted(
        text in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..4),
            prop::collection::vec(prop::sample::select(&b"0123456789"[..]), 0..24),
            prop::collection::vec(prop::sample::select(&b"019 +-."[..]), 0..6),
        ],
    ) {
        let decimal = String::from_utf8(text.clone())
            .ok()
            .and_then(|text| text.parse::<u64>().ok().filter(|n| n.to_string() == text));
        prop_assert_eq!(parse::integer("n", &text, 0..=u64::MAX).ok(), decimal);
    }
}
