//! A reply as it stood on the wire.
//!
//! Our own reader instead of the `redis` crate's: that one splits errors into code and detail, fails
//! on an error line that is not UTF-8, and costs the tests a long dependency tree.

use std::fmt;

/// One RESP2 or RESP3 value. Attributes are read and dropped.
#[derive(Clone, PartialEq)]
pub enum Reply {
    /// `$-1`, `*-1` or `_`.
    Nil,
    Int(i64),
    Status(String),
    Bulk(Vec<u8>),
    /// The whole error line without the leading `-`.
    Error(String),
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    Set(Vec<Reply>),
    Push(Vec<Reply>),
    Bool(bool),
    Double(f64),
    BigNumber(String),
    /// Text behind a `txt:` or `mkd:` mark.
    Verbatim(Vec<u8>),
}

pub fn nil() -> Reply {
    Reply::Nil
}

pub fn ok() -> Reply {
    status("OK")
}

pub fn int(value: i64) -> Reply {
    Reply::Int(value)
}

pub fn status(line: &str) -> Reply {
    Reply::Status(line.to_string())
}

pub fn bulk(bytes: impl AsRef<[u8]>) -> Reply {
    Reply::Bulk(bytes.as_ref().to_vec())
}

/// An error by its exact line, as in `err("ERR syntax error")`.
pub fn err(line: &str) -> Reply {
    Reply::Error(line.to_string())
}

pub fn array(items: impl IntoIterator<Item = Reply>) -> Reply {
    Reply::Array(items.into_iter().collect())
}

impl Reply {
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }

    pub fn is_nil(&self) -> bool {
        matches!(self, Self::Nil)
    }

    /// The number in an integer, or in a string that is one. Panics on anything else.
    #[track_caller]
    pub fn as_int(&self) -> i64 {
        match self {
            Self::Int(value) => *value,
            Self::Bulk(_) | Self::Status(_) => self
                .as_text()
                .parse()
                .unwrap_or_else(|_| panic!("not an integer: {self:?}")),
            _ => panic!("not an integer: {self:?}"),
        }
    }

    /// The text of a string, an error line or a number. Panics on aggregates and nil.
    #[track_caller]
    pub fn as_text(&self) -> String {
        match self {
            Self::Status(text) | Self::Error(text) | Self::BigNumber(text) => text.clone(),
            Self::Bulk(bytes) | Self::Verbatim(bytes) => String::from_utf8_lossy(bytes).into(),
            Self::Int(value) => value.to_string(),
            Self::Double(value) => value.to_string(),
            _ => panic!("not text: {self:?}"),
        }
    }

    /// The bytes of a string. Panics on anything else.
    #[track_caller]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Bulk(bytes) | Self::Verbatim(bytes) => bytes,
            Self::Status(text) => text.as_bytes(),
            _ => panic!("not a string: {self:?}"),
        }
    }

    /// The items of an array, set or push. Panics on anything else.
    #[track_caller]
    pub fn items(&self) -> &[Reply] {
        match self {
            Self::Array(items) | Self::Set(items) | Self::Push(items) => items,
            _ => panic!("not a list: {self:?}"),
        }
    }

    /// The value behind `field`, in a RESP3 map or a RESP2 flat array of pairs.
    pub fn map_get(&self, field: &str) -> Option<&Reply> {
        let is_field = |key: &Reply| match key {
            Self::Bulk(bytes) => bytes == field.as_bytes(),
            Self::Status(text) => text == field,
            _ => false,
        };
        match self {
            Self::Map(pairs) => pairs.iter().find(|(key, _)| is_field(key)).map(|(_, v)| v),
            Self::Array(items) => items
                .chunks_exact(2)
                .find(|pair| is_field(&pair[0]))
                .map(|pair| &pair[1]),
            _ => None,
        }
    }

    /// Like [`Reply::map_get`], but panics with the whole reply when the field is missing.
    #[track_caller]
    pub fn field(&self, field: &str) -> &Reply {
        self.map_get(field)
            .unwrap_or_else(|| panic!("no field {field:?} in {self:?}"))
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("nil"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Status(line) => write!(f, "+{line}"),
            Self::Error(line) => write!(f, "-{line}"),
            Self::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::Verbatim(bytes) => write!(f, "verbatim\"{}\"", bytes.escape_ascii()),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Double(value) => write!(f, "{value:?}"),
            Self::BigNumber(digits) => write!(f, "({digits}"),
            Self::Array(items) => f.debug_list().entries(items).finish(),
            Self::Set(items) => f.debug_set().entries(items).finish(),
            Self::Map(pairs) => f
                .debug_map()
                .entries(pairs.iter().map(|(k, v)| (k, v)))
                .finish(),
            Self::Push(items) => {
                f.write_str("push")?;
                f.debug_list().entries(items).finish()
            }
        }
    }
}

/// Takes one reply off the front of `input`; `None` while it is incomplete. Panics on bytes that are
/// not RESP: a server that sends those has failed the test.
pub(crate) fn take(input: &mut &[u8]) -> Option<Reply> {
    let end = input.windows(2).position(|pair| pair == b"\r\n")?;
    let (kind, line) = (input[0], &input[1..end]);
    let mut rest = &input[end + 2..];
    let text = || String::from_utf8_lossy(line).into_owned();
    let malformed = || -> ! { panic!("not RESP: \"{}\"", input[..end].escape_ascii()) };
    let number = || text().parse::<i64>().unwrap_or_else(|_| malformed());
    let reply = match kind {
        b'+' => Reply::Status(text()),
        b'-' => Reply::Error(text()),
        b':' => Reply::Int(number()),
        b'_' => Reply::Nil,
        b'#' => Reply::Bool(line == b"t"),
        b',' => Reply::Double(text().parse().unwrap_or_else(|_| malformed())),
        b'(' => Reply::BigNumber(text()),
        b'$' | b'*' if number() < 0 => Reply::Nil,
        b'$' => Reply::Bulk(take_bytes(&mut rest, number())?),
        b'!' => Reply::Error(String::from_utf8_lossy(&take_bytes(&mut rest, number())?).into()),
        b'=' => Reply::Verbatim(take_bytes(&mut rest, number())?.split_off(4)),
        b'*' => Reply::Array(take_many(&mut rest, number())?),
        b'~' => Reply::Set(take_many(&mut rest, number())?),
        b'>' => Reply::Push(take_many(&mut rest, number())?),
        b'%' => Reply::Map(take_pairs(&mut rest, number())?),
        b'|' => {
            take_pairs(&mut rest, number())?;
            take(&mut rest)?
        }
        _ => malformed(),
    };
    *input = rest;
    Some(reply)
}

fn take_bytes(input: &mut &[u8], length: i64) -> Option<Vec<u8>> {
    let length = usize::try_from(length).ok()?;
    let bytes = input.get(..length)?.to_vec();
    *input = input.get(length + 2..)?;
    Some(bytes)
}

fn take_many(input: &mut &[u8], count: i64) -> Option<Vec<Reply>> {
    (0..count).map(|_| take(input)).collect()
}

fn take_pairs(input: &mut &[u8], count: i64) -> Option<Vec<(Reply, Reply)>> {
    (0..count)
        .map(|_| Some((take(input)?, take(input)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_kind_and_waits_for_the_rest() {
        let wire: &[u8] = b"*9\r\n+OK\r\n-WRONGTYPE no\r\n:-5\r\n$3\r\na\r\n\r\n*-1\r\n%1\r\n+k\r\n_\r\n#t\r\n,1.5\r\n=7\r\ntxt:abc\r\n";
        for cut in 0..wire.len() {
            assert_eq!(take(&mut &wire[..cut]), None, "cut at {cut}");
        }
        let mut rest = wire;
        let expected = array([
            ok(),
            err("WRONGTYPE no"),
            int(-5),
            bulk("a\r\n"),
            nil(),
            Reply::Map(vec![(status("k"), nil())]),
            Reply::Bool(true),
            Reply::Double(1.5),
            Reply::Verbatim(b"abc".to_vec()),
        ]);
        assert_eq!(take(&mut rest), Some(expected));
        assert!(rest.is_empty());
    }

    #[test]
    fn a_field_is_found_in_both_protocols() {
        let flat = array([bulk("a"), int(1), bulk("b"), int(2)]);
        let map = Reply::Map(vec![(bulk("a"), int(1)), (bulk("b"), int(2))]);
        assert_eq!(flat.field("b"), map.field("b"));
        assert_eq!(map.map_get("c"), None);
    }
}
