//! A client connection that shows replies exactly as the server sent them.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read, Write},
    net::{Ipv4Addr, TcpStream},
    time::{Duration, Instant},
};

use crate::reply::{self, Reply};

/// How long a reply may take before the test fails.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends a command and returns its reply: `cmd!(conn, "LOCK.ACQUIRE", key, owner, 1000)`.
/// Arguments are anything that is [`ToArg`](crate::ToArg), mixed.
#[macro_export]
macro_rules! cmd {
    ($conn:expr, $($arg:expr),+ $(,)?) => {
        $conn.cmd(&$crate::args![$($arg),+])
    };
}

/// The arguments of one command, for [`Conn::send`], [`Conn::pipeline`] and the like.
#[macro_export]
macro_rules! args {
    ($($arg:expr),* $(,)?) => {{
        let args: ::std::vec::Vec<::std::vec::Vec<u8>> =
            ::std::vec![$($crate::ToArg::to_arg(&$arg)),*];
        args
    }};
}

/// Something that can stand as a command's argument.
pub trait ToArg {
    fn to_arg(&self) -> Vec<u8>;
}

impl<T: ToArg + ?Sized> ToArg for &T {
    fn to_arg(&self) -> Vec<u8> {
        (**self).to_arg()
    }
}

impl ToArg for [u8] {
    fn to_arg(&self) -> Vec<u8> {
        self.to_vec()
    }
}

impl<const N: usize> ToArg for [u8; N] {
    fn to_arg(&self) -> Vec<u8> {
        self.to_vec()
    }
}

impl ToArg for Vec<u8> {
    fn to_arg(&self) -> Vec<u8> {
        self.clone()
    }
}

macro_rules! displayed_args {
    ($($kind:ty),*) => {$(
        impl ToArg for $kind {
            fn to_arg(&self) -> Vec<u8> {
                self.to_string().into_bytes()
            }
        }
    )*};
}

displayed_args!(str, String, i32, i64, i128, u16, u32, u64, u128, usize, f64);

/// One connection. Methods panic when the server is gone or does not answer within ten seconds, and
/// say what was sent; the `try_` ones return the error.
pub struct Conn {
    stream: TcpStream,
    /// Bytes read and not yet taken. An incomplete reply stays here across a timeout.
    unread: Vec<u8>,
    /// Pushes that came in while a command's own reply was awaited.
    pushes: VecDeque<Reply>,
    last_sent: String,
}

impl Conn {
    /// Connects to a local server, RESP2.
    #[track_caller]
    pub fn connect(port: u16) -> Self {
        Self::try_connect(port).unwrap_or_else(|error| panic!("cannot connect to {port}: {error}"))
    }

    pub fn try_connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            unread: Vec::new(),
            pushes: VecDeque::new(),
            last_sent: String::new(),
        })
    }

    /// Sends one command and returns its reply. Pushes that come before it are kept for
    /// [`Conn::recv`]; use `send` and `recv` for commands that RESP3 answers with a push (SUBSCRIBE).
    #[track_caller]
    pub fn cmd<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Reply {
        self.send(args);
        self.own_reply()
    }

    /// Like [`Conn::cmd`]; a connection closed by the server or a timeout is an error.
    pub fn try_cmd<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Reply> {
        self.write(&[args])?;
        self.try_own_reply(REPLY_TIMEOUT)
    }

    /// Sends one command without waiting for its reply.
    #[track_caller]
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        self.write(&[args])
            .unwrap_or_else(|error| self.fail(&error));
    }

    /// The next thing the server sent, pushes included.
    #[track_caller]
    pub fn recv(&mut self) -> Reply {
        match self.try_recv(REPLY_TIMEOUT) {
            Ok(reply) => reply,
            Err(error) => self.fail(&error),
        }
    }

    /// Like [`Conn::recv`]; `None` when nothing came in time. Panics when the connection is closed.
    #[track_caller]
    pub fn recv_timeout(&mut self, timeout: Duration) -> Option<Reply> {
        match self.try_recv(timeout) {
            Ok(reply) => Some(reply),
            Err(error) if error.kind() == ErrorKind::TimedOut => None,
            Err(error) => self.fail(&error),
        }
    }

    /// The next thing the server sent; `TimedOut` when nothing came, `UnexpectedEof` or
    /// `ConnectionReset` when the server closed the connection.
    pub fn try_recv(&mut self, timeout: Duration) -> io::Result<Reply> {
        match self.pushes.pop_front() {
            Some(push) => Ok(push),
            None => self.read_reply(timeout),
        }
    }

    /// Sends all commands in one write and returns their replies in order.
    #[track_caller]
    pub fn pipeline<A: AsRef<[u8]>, C: AsRef<[A]>>(&mut self, commands: &[C]) -> Vec<Reply> {
        match self.try_pipeline(commands) {
            Ok(replies) => replies,
            Err(error) => self.fail(&error),
        }
    }

    pub fn try_pipeline<A: AsRef<[u8]>, C: AsRef<[A]>>(
        &mut self,
        commands: &[C],
    ) -> io::Result<Vec<Reply>> {
        self.write(commands)?;
        commands
            .iter()
            .map(|_| self.try_own_reply(REPLY_TIMEOUT))
            .collect()
    }

    /// Runs the commands in MULTI … EXEC, in one write, and returns EXEC's reply as it is.
    #[track_caller]
    pub fn multi(&mut self, commands: &[Vec<Vec<u8>>]) -> Reply {
        let mut all = vec![args!["MULTI"]];
        all.extend_from_slice(commands);
        all.push(args!["EXEC"]);
        self.pipeline(&all).pop().expect("EXEC has a reply")
    }

    /// Like [`Conn::multi`], for transactions that must run: the replies of the commands.
    #[track_caller]
    pub fn exec_multi(&mut self, commands: &[Vec<Vec<u8>>]) -> Vec<Reply> {
        match self.multi(commands) {
            Reply::Array(replies) => replies,
            other => panic!("EXEC answered {other:?} to {}", self.last_sent),
        }
    }

    /// `EVAL`; further arguments come from [`args!`](crate::args).
    #[track_caller]
    pub fn eval(&mut self, script: &str, keys: &[&str], arguments: &[Vec<u8>]) -> Reply {
        let mut all = args!["EVAL", script, keys.len()];
        all.extend(keys.iter().map(ToArg::to_arg));
        all.extend_from_slice(arguments);
        self.cmd(&all)
    }

    #[track_caller]
    pub fn client_id(&mut self) -> i64 {
        cmd!(self, "CLIENT", "ID").as_int()
    }

    /// Sends bytes as they are, for malformed or partial commands.
    #[track_caller]
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.last_sent = bytes.escape_ascii().to_string();
        if let Err(error) = self.stream.write_all(bytes) {
            self.fail(&error);
        }
    }

    #[track_caller]
    fn own_reply(&mut self) -> Reply {
        match self.try_own_reply(REPLY_TIMEOUT) {
            Ok(reply) => reply,
            Err(error) => self.fail(&error),
        }
    }

    pub(crate) fn try_own_reply(&mut self, timeout: Duration) -> io::Result<Reply> {
        loop {
            match self.read_reply(timeout)? {
                push @ Reply::Push(_) => self.pushes.push_back(push),
                reply => return Ok(reply),
            }
        }
    }

    pub(crate) fn write<A: AsRef<[u8]>, C: AsRef<[A]>>(
        &mut self,
        commands: &[C],
    ) -> io::Result<()> {
        let mut wire = Vec::new();
        self.last_sent.clear();
        for command in commands {
            let args = command.as_ref();
            wire.extend(format!("*{}\r\n", args.len()).as_bytes());
            for arg in args {
                let arg = arg.as_ref();
                wire.extend(format!("${}\r\n", arg.len()).as_bytes());
                wire.extend(arg);
                wire.extend(b"\r\n");
                // Enough to recognise the command; a pipeline can be megabytes.
                if self.last_sent.len() < 500 {
                    let shown = &arg[..arg.len().min(100)];
                    self.last_sent += &format!("{} ", shown.escape_ascii());
                }
            }
            self.last_sent += "· ";
        }
        self.stream.write_all(&wire)
    }

    fn read_reply(&mut self, timeout: Duration) -> io::Result<Reply> {
        let deadline = Instant::now() + timeout;
        loop {
            let mut rest = &self.unread[..];
            if let Some(reply) = reply::take(&mut rest) {
                let taken = self.unread.len() - rest.len();
                self.unread.drain(..taken);
                return Ok(reply);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut chunk = [0; 64 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.unread.extend_from_slice(&chunk[..n]),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
    }

    #[track_caller]
    fn fail(&self, error: &io::Error) -> ! {
        panic!("no reply ({error}) after sending: {}", self.last_sent)
    }
}
