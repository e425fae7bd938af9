//! A command's arguments, borrowed from the server.

use super::api::api;
use super::context::Context;
use redis_module::raw::RedisModuleString;
use sluice_core::{parse, Error, Identity, Token};
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::ptr;

/// An argument as the server keeps it: key names and what is passed on as it is.
#[derive(Clone, Copy)]
pub(crate) struct Text<'a> {
    ptr: *mut RedisModuleString,
    lives: PhantomData<&'a RedisModuleString>,
}

impl<'a> Text<'a> {
    /// # Safety
    /// `ptr` must be a valid string of the server for as long as `'a`.
    pub(crate) unsafe fn new(ptr: *mut RedisModuleString) -> Text<'a> {
        Text {
            ptr,
            lives: PhantomData,
        }
    }

    pub(crate) fn as_ptr(self) -> *mut RedisModuleString {
        self.ptr
    }

    pub(crate) fn bytes(self) -> &'a [u8] {
        let mut len = 0;
        // SAFETY: `ptr` is valid for 'a (see `new`); the server returns where the bytes of
        // the string are and how many, never NULL.
        unsafe {
            let start = (api().string_ptr_len)(self.ptr, &mut len);
            std::slice::from_raw_parts(start.cast(), len)
        }
    }
}

/// A string made by us, for keys that no command named. Freed when dropped.
pub(crate) struct OwnedText {
    ptr: *mut RedisModuleString,
}

impl OwnedText {
    pub(crate) fn new(bytes: &[u8]) -> OwnedText {
        // SAFETY: without a context the string is ours alone to free.
        let ptr =
            unsafe { (api().create_string)(ptr::null_mut(), bytes.as_ptr().cast(), bytes.len()) };
        OwnedText { ptr }
    }

    pub(crate) fn text(&self) -> Text<'_> {
        // SAFETY: valid until dropped.
        unsafe { Text::new(self.ptr) }
    }
}

impl Drop for OwnedText {
    fn drop(&mut self) {
        // SAFETY: made by us without a context, freed once; the server keeps what it refers to.
        unsafe { (api().free_string)(ptr::null_mut(), self.ptr) };
    }
}

/// The arguments behind the command's name, taken one by one.
///
/// Running out of them is a wrong number of arguments, unless an option's word has been
/// read: then its value is missing, which is a syntax error.
#[derive(Clone)]
pub(crate) struct Args<'a> {
    rest: &'a [*mut RedisModuleString],
}

impl<'a> Args<'a> {
    /// # Safety
    /// `argv` must hold `argc` valid strings for as long as `'a`, the first of them the
    /// command's name.
    pub(crate) unsafe fn new(argv: *mut *mut RedisModuleString, argc: usize) -> Args<'a> {
        // SAFETY: as the caller promises.
        let all = unsafe { std::slice::from_raw_parts(argv, argc) };
        Args {
            rest: all.get(1..).unwrap_or_default(),
        }
    }

    pub(crate) fn text(&mut self) -> Result<Text<'a>, Error> {
        let (first, rest) = self.rest.split_first().ok_or(Error::WrongArity)?;
        self.rest = rest;
        // SAFETY: the strings of argv are valid for 'a.
        Ok(unsafe { Text::new(*first) })
    }

    /// All that are left.
    pub(crate) fn texts(mut self) -> impl Iterator<Item = Text<'a>> {
        std::iter::from_fn(move || self.text().ok())
    }

    /// The next option's word, or `None` at the end.
    pub(crate) fn word(&mut self) -> Option<&'a [u8]> {
        self.text().ok().map(Text::bytes)
    }

    /// The next word, which stays.
    pub(crate) fn next_word(&self) -> Option<&'a [u8]> {
        self.clone().word()
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Error> {
        self.text().map(Text::bytes)
    }

    pub(crate) fn integer(
        &mut self,
        name: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<u64, Error> {
        parse::integer(name, self.bytes()?, range)
    }

    pub(crate) fn owner(&mut self) -> Result<&'a [u8], Error> {
        parse::bytes("owner", self.bytes()?, 1..=Identity::MAX_OWNER)
    }

    /// An owner of permits.
    pub(crate) fn holder(&mut self) -> Result<&'a [u8], Error> {
        parse::bytes("holder", self.bytes()?, 1..=Identity::MAX_OWNER)
    }

    pub(crate) fn token(&mut self, name: &'static str) -> Result<Token, Error> {
        let value = self.integer(name, 1..=Token::MAX)?;
        Ok(Token::new(value).expect("in the range of tokens"))
    }

    /// `numkeys key [key …]`. A count that does not fit, or one key twice, is an error before
    /// any key is touched: the server checks permissions only for keys that it finds.
    pub(crate) fn keys(&mut self, most: u64) -> Result<Vec<Text<'a>>, Error> {
        let count = self.integer("numkeys", 1..=most)? as usize;
        if count > self.rest.len() {
            return Err(Error::TooFewKeys);
        }
        let names = (0..count)
            .map(|_| self.text())
            .collect::<Result<Vec<_>, _>>()?;
        let mut sorted: Vec<&[u8]> = names.iter().map(|name| name.bytes()).collect();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Error::SameKeyTwice);
        }
        Ok(names)
    }

    /// Answers the server's question where the keys are, if that is all it asks for: behind
    /// numkeys, or nowhere if that does not fit.
    pub(crate) fn reports_keys(&self, ctx: Context) -> bool {
        if !ctx.asks_for_keys() {
            return false;
        }
        let mut args = self.clone();
        // numkeys itself is among what is left.
        let most = args.rest.len().saturating_sub(1) as u64;
        let count = args.integer("numkeys", 1..=most);
        for position in 0..count.unwrap_or(0) as usize {
            // The command's name and numkeys come first.
            ctx.report_key_at(2 + position);
        }
        true
    }

    /// `[TOKEN t]`, and nothing else, to the end.
    pub(crate) fn token_option(mut self) -> Result<Option<Token>, Error> {
        let mut token = None;
        while let Some(word) = self.word() {
            if !parse::is_word(word, "TOKEN") {
                return Err(Error::Syntax);
            }
            parse::once(&mut token, self.value(|args| args.token("TOKEN"))?)?;
        }
        Ok(token)
    }

    /// Whatever follows an option's word: without it the syntax is wrong, not the arity.
    pub(crate) fn value<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.rest.is_empty() {
            return Err(Error::Syntax);
        }
        read(self)
    }

    /// The integer behind an option's word, which may be given once.
    #[inline]
    pub(crate) fn integer_option(
        &mut self,
        name: &'static str,
        range: RangeInclusive<u64>,
        option: &mut Option<u64>,
    ) -> Result<(), Error> {
        let value = self.value(|args| args.integer(name, range))?;
        parse::once(option, value)
    }

    pub(crate) fn finish(self) -> Result<(), Error> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Error::Syntax)
        }
    }
}
