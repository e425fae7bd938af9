//! How to start a server.

use std::{ffi::OsString, fmt, path::PathBuf, time::Duration};

use crate::{
    clock::Clock,
    flavour::{flavour, module_path, Kind},
    port::Port,
    server::Server,
};

/// Append-only file of a server. Every command is on disk before its reply (`appendfsync always`):
/// a frozen clock would stop `everysec` from syncing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aof {
    Off,
    /// Commands only, also after a rewrite.
    Pure,
    /// A rewrite starts the file with an RDB.
    Preamble,
}

/// A server to start; the defaults are a quiet, loopback-only server with the module under test,
/// without any persistence, on a free port and in a fresh directory.
#[derive(Clone)]
pub struct Options {
    config: Vec<String>,
    pub(crate) env: Vec<(OsString, OsString)>,
    module: Option<PathBuf>,
    module_args: Vec<String>,
    pub(crate) wrapper: Vec<String>,
    pub(crate) clock: Option<Clock>,
    pub(crate) preload_clock: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    pub fn new() -> Self {
        Self {
            config: Vec::new(),
            env: Vec::new(),
            module: module_path(),
            module_args: Vec::new(),
            wrapper: Vec::new(),
            clock: None,
            preload_clock: true,
        }
    }

    /// Adds a line to the configuration file. The value is written as it is: quote what needs it.
    pub fn config(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.config.push(format!("{name} {value}"));
        self
    }

    pub fn aof(self, aof: Aof) -> Self {
        let (append, preamble) = match aof {
            Aof::Off => ("no", "yes"),
            Aof::Pure => ("yes", "no"),
            Aof::Preamble => ("yes", "yes"),
        };
        self.config("appendonly", append)
            .config("aof-use-rdb-preamble", preamble)
            .config("appendfsync", "always")
    }

    /// Follows `primary` from the start. The start does not wait for the link: see
    /// [`Server::wait_synced_with`].
    pub fn replica_of(self, primary: &Server) -> Self {
        self.config("replicaof", format_args!("127.0.0.1 {}", primary.port()))
    }

    /// Cluster mode; the bus port (port + 10000) is free as well.
    pub fn cluster(self) -> Self {
        self.config("cluster-enabled", "yes")
    }

    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Arguments of the module, after those already given.
    pub fn module_args(mut self, args: &[&str]) -> Self {
        self.module_args
            .extend(args.iter().map(|arg| arg.to_string()));
        self
    }

    /// Another build of the module.
    pub fn module(mut self, path: impl Into<PathBuf>) -> Self {
        self.module = Some(path.into());
        self
    }

    pub fn without_module(mut self) -> Self {
        self.module = None;
        self
    }

    /// Runs the server under a command such as `["valgrind", "--error-exitcode=9"]`; its output goes
    /// to the server's log. Starting and stopping may then take minutes.
    pub fn wrapper(mut self, command: &[&str]) -> Self {
        self.wrapper = command.iter().map(|word| word.to_string()).collect();
        self
    }

    /// Shares a clock with other servers.
    pub fn clock(mut self, clock: &Clock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// Starts without the clock shim, which makes each look at the clock a system call. For
    /// measurements; the server's `clock()` has no effect then.
    pub fn without_clock(mut self) -> Self {
        self.preload_clock = false;
        self
    }

    /// Starts the server and waits until it serves commands. Panics with its log if it does not.
    #[track_caller]
    pub fn start(self) -> Server {
        match self.try_start() {
            Ok(server) => server,
            Err(error) => panic!("{error}"),
        }
    }

    /// Like [`Options::start`], for a start that may be refused.
    pub fn try_start(self) -> Result<Server, StartError> {
        if let Some(module) = self.module.as_ref().filter(|path| !path.exists()) {
            panic!("no module at {module:?}: run `cargo build --release` or set SLUICE_MODULE");
        }
        // Ports are reserved among test processes only: anyone else may be faster now and then.
        for _ in 0..10 {
            let server = Server::prepare(self.clone(), Port::reserve());
            match server.launch() {
                Ok(()) => return Ok(server),
                Err(error) if error.is_port_taken() => {}
                Err(error) => return Err(error),
            }
        }
        panic!("ten free ports in a row were taken by someone else")
    }

    pub(crate) fn start_timeout(&self) -> Duration {
        Duration::from_secs(if self.wrapper.is_empty() { 10 } else { 180 })
    }

    /// The configuration file: our defaults, then the module, then what the test asked for, which
    /// wins.
    pub(crate) fn config_file(&self, port: u16, dir: &str) -> String {
        let mut lines = vec![
            "bind 127.0.0.1".to_string(),
            format!("port {port}"),
            format!("dir {dir}"),
            "daemonize no".to_string(),
            "protected-mode no".to_string(),
            "save \"\"".to_string(),
            "appendonly no".to_string(),
            "hz 10".to_string(),
            "enable-debug-command yes".to_string(),
            "repl-diskless-sync-delay 0".to_string(),
            "shutdown-timeout 0".to_string(),
            // Links must outlive jumps of the clock by decades. The server also uses 1000 times this
            // value as a 32-bit socket timeout: this number wraps to 18 days there, where 2000000000
            // wraps to a negative one.
            "repl-timeout 2003000000".to_string(),
        ];
        if flavour().kind == Kind::Valkey {
            // Valkey 9.1 downloads to disk in a thread and looks once a second whether it is done.
            lines.push("repl-diskless-load on-empty-db".to_string());
        }
        if let Some(module) = &self.module {
            let args = self.module_args.join(" ");
            lines.push(format!("loadmodule {} {args}", module.display()));
        }
        lines.extend_from_slice(&self.config);
        lines.join("\n") + "\n"
    }
}

/// A server that did not come up.
#[derive(Debug)]
pub struct StartError {
    pub reason: String,
    /// All that the server (and its wrapper) wrote.
    pub log: String,
}

impl StartError {
    fn is_port_taken(&self) -> bool {
        self.log.contains("Address already in use")
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tail = crate::server::tail(&self.log);
        write!(f, "server did not start: {}\n{tail}", self.reason)
    }
}

impl std::error::Error for StartError {}
