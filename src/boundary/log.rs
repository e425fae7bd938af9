//! Lines in the server's log.

use super::api::api;
use std::ffi::{CStr, CString};
use std::ptr;

/// Something an operator did or may want to know.
pub(crate) fn notice(line: &str) {
    write(c"notice", line);
}

/// Something that needs an operator.
pub(crate) fn warning(line: &str) {
    write(c"warning", line);
}

fn write(level: &CStr, line: &str) {
    let Ok(line) = CString::new(line.replace('\0', "\\x00")) else {
        return;
    };
    // SAFETY: a NULL context is allowed here; both strings are NUL-terminated and "%s"
    // consumes exactly the one argument.
    unsafe {
        (api().log)(
            ptr::null_mut(),
            level.as_ptr(),
            c"<sluice> %s".as_ptr(),
            line.as_ptr(),
        )
    }
}

/// A client's bytes as one quoted word of a log line: printable, and bounded as it is
/// printed, so that the server's line limit (1024 bytes) never cuts off what follows.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    const MOST: usize = 256;
    let mut text = String::new();
    for (shown, byte) in bytes.iter().enumerate() {
        let escaped = byte.escape_ascii().to_string();
        if text.len() + escaped.len() > MOST {
            return format!("\"{text}\"... ({} more bytes)", bytes.len() - shown);
        }
        text.push_str(&escaped);
    }
    format!("\"{text}\"")
}
