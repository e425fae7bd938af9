//! Argument values: integers and options, as every command reads them.

use crate::Error;
use std::ops::RangeInclusive;

/// A decimal integer in `range`. As strict as the server's own parser: digits only, no
/// sign, no leading zero, no surrounding space.
pub fn integer(name: &'static str, text: &[u8], range: RangeInclusive<u64>) -> Result<u64, Error> {
    let out_of_range = Error::Range {
        name,
        min: *range.start(),
        max: *range.end(),
    };
    let leading_zero = text.len() > 1 && text[0] == b'0';
    // 20 digits are as many as 2^64 has; more would only be a slow way to overflow.
    if text.is_empty() || text.len() > 20 || leading_zero {
        return Err(out_of_range);
    }
    let mut value: u64 = 0;
    for &byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(out_of_range);
        }
        value = value
            .checked_mul(10)
            .and_then(|v| v.checked_add(u64::from(digit)))
            .ok_or(out_of_range)?;
    }
    if range.contains(&value) {
        Ok(value)
    } else {
        Err(out_of_range)
    }
}

/// A decimal integer from `-most` to `most`.
pub fn signed(name: &'static str, text: &[u8], most: u64) -> Result<i64, Error> {
    let (is_negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    // −0 is none.
    let least = u64::from(is_negative);
    match integer(name, digits, least..=most) {
        Ok(value) if is_negative => Ok(-(value as i64)),
        Ok(value) => Ok(value as i64),
        Err(_) => Err(Error::SignedRange { name, most }),
    }
}

/// Bytes whose number lies in `range`.
pub fn bytes<'a>(
    name: &'static str,
    bytes: &'a [u8],
    range: RangeInclusive<usize>,
) -> Result<&'a [u8], Error> {
    if range.contains(&bytes.len()) {
        Ok(bytes)
    } else {
        Err(Error::Length {
            name,
            min: *range.start(),
            max: *range.end(),
        })
    }
}

/// Sets an option's value; naming an option twice is a syntax error.
pub fn once<T>(option: &mut Option<T>, value: T) -> Result<(), Error> {
    match option.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::Syntax),
    }
}

/// Keywords are matched without regard to case.
pub fn is_word(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}
