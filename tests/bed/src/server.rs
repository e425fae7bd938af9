//! One real server process.

use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use tempfile::TempDir;

use crate::{
    clock::{Clock, SHIM},
    cmd,
    conn::Conn,
    flavour::flavour,
    options::{Options, StartError},
    port::Port,
    reply::Reply,
    wait::poll,
};

/// Lines of a log that a failure shows.
const TAIL_LINES: usize = 40;

/// A server, its directory and its clock. Dropping it kills the process and removes the directory.
///
/// Methods take `&self`, so that a server can be stopped and started in the middle of a topology.
pub struct Server {
    options: Options,
    port: Port,
    clock: Clock,
    /// `None` while stopped.
    child: Mutex<Option<Child>>,
    /// Last, so that it is removed after the process is gone.
    dir: TempDir,
}

impl Server {
    pub fn port(&self) -> u16 {
        self.port.number
    }

    /// Where its RDB, AOF and configuration file are.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The process. Panics while the server is stopped.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.child().as_ref().expect("the server is stopped").id()
    }

    pub fn is_alive(&self) -> bool {
        match self.child().as_mut() {
            Some(child) => matches!(child.try_wait(), Ok(None)),
            None => false,
        }
    }

    /// A new connection, RESP2.
    #[track_caller]
    pub fn conn(&self) -> Conn {
        Conn::connect(self.port())
    }

    /// A new connection, RESP3.
    #[track_caller]
    pub fn conn3(&self) -> Conn {
        let mut conn = self.conn();
        let hello = cmd!(conn, "HELLO", 3);
        assert!(!hello.is_error(), "no RESP3: {hello:?}");
        conn
    }

    /// The fields of an INFO section.
    #[track_caller]
    pub fn info(&self, section: &str) -> HashMap<String, String> {
        fields(&cmd!(self.conn(), "INFO", section))
    }

    /// All that the server and its wrapper wrote, over all its runs.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until the log contains `text`.
    #[track_caller]
    pub fn wait_log(&self, text: &str) {
        let found = poll(Duration::from_secs(10), || {
            self.log().contains(text).then_some(())
        });
        assert!(
            found.is_some(),
            "no {text:?} in the log:\n{}",
            tail(&self.log())
        );
    }

    /// Empties the log, for a [`Server::wait_log`] that must not see older lines.
    pub fn clear_log(&self) {
        File::create(self.log_path()).expect("cannot empty the log");
    }

    /// Clean stop with an RDB written.
    #[track_caller]
    pub fn shutdown_save(&self) -> ExitStatus {
        self.shutdown("SAVE")
    }

    /// Clean stop without an RDB; an AOF is complete.
    #[track_caller]
    pub fn shutdown_nosave(&self) -> ExitStatus {
        self.shutdown("NOSAVE")
    }

    /// Kills the process and its forks.
    pub fn kill9(&self) {
        if let Some(mut child) = self.child().take() {
            // SAFETY: a plain system call. When the child is reaped already, its number is not given
            // to another group while a fork of it lives in this one.
            unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
            let _ = child.wait();
        }
    }

    /// Starts a stopped server again: same port, directory, clock and configuration file.
    #[track_caller]
    pub fn start_again(&self) {
        assert!(!self.is_alive(), "the server is still running");
        if let Err(error) = self.launch() {
            panic!("{error}");
        }
    }

    /// Clean stop without an RDB, then start again.
    #[track_caller]
    pub fn restart(&self) {
        self.shutdown_nosave();
        self.start_again();
    }

    /// Clean stop with an RDB, then start again.
    #[track_caller]
    pub fn restart_saving(&self) {
        self.shutdown_save();
        self.start_again();
    }

    /// Suspends the process; returns when it stands still.
    #[track_caller]
    pub fn sigstop(&self) {
        self.signal(libc::SIGSTOP);
        let stopped = poll(Duration::from_secs(5), || {
            (process_state(self.pid()) == Some('T')).then_some(())
        });
        assert!(stopped.is_some(), "the server did not stop");
    }

    #[track_caller]
    pub fn sigcont(&self) {
        self.signal(libc::SIGCONT);
    }

    /// Waits until this replica has all that `primary` wrote, over an established link.
    #[track_caller]
    pub fn wait_synced_with(&self, primary: &Server) {
        if let Err(why) = self.try_sync_with(primary, Duration::from_secs(10)) {
            panic!("{why}");
        }
    }

    /// Same history, same offset, link up. The history (replication id) counts because a primary
    /// that came back starts at a lower offset, which its replica may not have noticed yet.
    pub(crate) fn try_sync_with(&self, primary: &Server, timeout: Duration) -> Result<(), String> {
        let (mut ours, mut theirs) = (self.try_conn()?, primary.try_conn()?);
        let mut last = String::new();
        poll(timeout, || {
            let their = fields(&theirs.try_cmd(&["INFO", "replication"]).ok()?);
            let our = fields(&ours.try_cmd(&["INFO", "replication"]).ok()?);
            let synced = our.get("master_link_status").map(String::as_str) == Some("up")
                && our.get("master_replid") == their.get("master_replid")
                && our.get("slave_repl_offset") == their.get("master_repl_offset");
            last = format!("replica {our:?}\nits primary {their:?}");
            synced.then_some(())
        })
        .ok_or_else(|| format!("no sync in {timeout:?}:\n{last}"))
    }

    pub(crate) fn try_conn(&self) -> Result<Conn, String> {
        Conn::try_connect(self.port()).map_err(|error| format!("cannot connect: {error}"))
    }

    /// A directory and a configuration file for a server that does not run yet.
    pub(crate) fn prepare(options: Options, port: Port) -> Self {
        let dir = TempDir::with_prefix("sluice-").expect("cannot create a directory");
        // A link with the right name: by its name the binary decides which tool it plays, and a
        // wrapper does not let us set argv[0].
        symlink(&flavour().binary, dir.path().join("redis-server"))
            .expect("cannot link the server");
        let clock = options.clock.clone().unwrap_or_default();
        let server = Self {
            options,
            port,
            clock,
            child: Mutex::new(None),
            dir,
        };
        server.write_config();
        server
    }

    /// Writes the configuration file as it was at the first start.
    pub(crate) fn write_config(&self) {
        let dir = self
            .dir()
            .to_str()
            .expect("the temporary directory is UTF-8");
        fs::write(
            self.config_path(),
            self.options.config_file(self.port(), dir),
        )
        .expect("cannot write the configuration");
    }

    pub(crate) fn launch(&self) -> Result<(), StartError> {
        let log_start = self.log().len();
        let failed = |reason: String| StartError {
            reason,
            log: self.log().split_off(log_start),
        };
        let child = crate::spawn::spawn(self.command().map_err(|e| failed(e.to_string()))?)
            .map_err(|error| failed(format!("cannot run it: {error}")))?;
        *self.child() = Some(child);
        let timeout = self.options.start_timeout();
        let outcome = poll(timeout, || {
            // Looked at first: a refused start may let us connect for a moment.
            let exited = self
                .child()
                .as_mut()
                .and_then(|child| child.try_wait().ok()?);
            match exited {
                Some(status) => Some(Err(failed(format!("{status}")))),
                None => self.serves().then_some(Ok(())),
            }
        });
        let outcome =
            outcome.unwrap_or_else(|| Err(failed(format!("it does not answer in {timeout:?}"))));
        if outcome.is_err() {
            self.kill9();
        }
        outcome
    }

    fn command(&self) -> io::Result<Command> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path())?;
        let program = self.dir().join("redis-server");
        let mut command = match self.options.wrapper.split_first() {
            None => Command::new(program),
            Some((wrapper, rest)) => {
                let mut command = Command::new(wrapper);
                command.args(rest).arg(program);
                command
            }
        };
        command
            .arg(self.config_path())
            .current_dir(self.dir())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        if self.options.preload_clock {
            command
                .env("LD_PRELOAD", SHIM)
                .env("SLUICE_CLOCK", self.clock.path());
        }
        for (name, value) in &self.options.env {
            command.env(name, value);
        }
        Ok(command)
    }

    /// Whether our own process (someone else might hold the port) answers and is not loading.
    fn serves(&self) -> bool {
        let ask = || -> io::Result<(Reply, Reply)> {
            let mut conn = Conn::try_connect(self.port())?;
            Ok((conn.try_cmd(&["PING"])?, conn.try_cmd(&["INFO", "server"])?))
        };
        match ask() {
            Err(_) => false,
            Ok((Reply::Error(line), _)) => line.starts_with("NOAUTH"),
            Ok((_, info)) => {
                fields(&info).get("config_file").map(PathBuf::from) == Some(self.config_path())
            }
        }
    }

    #[track_caller]
    fn shutdown(&self, how: &str) -> ExitStatus {
        // Refused while the server writes its first AOF, so ask again.
        let exited = poll(self.options.start_timeout(), || {
            if let Ok(mut conn) = self.try_conn() {
                // Stopped: the connection ends. Refused: an error comes.
                let _ = conn.try_cmd(&["SHUTDOWN", how]);
            }
            let mut child = self.child();
            let child = child.as_mut().expect("the server is stopped already");
            child.try_wait().expect("cannot wait for the server")
        });
        let Some(status) = exited else {
            panic!("SHUTDOWN {how} did nothing:\n{}", tail(&self.log()));
        };
        // Its forks, if any are left, must not write into the directory later.
        self.kill9();
        status
    }

    #[track_caller]
    fn signal(&self, signal: i32) {
        let pid = self.pid() as i32;
        // SAFETY: a plain system call on a child that is not reaped yet.
        let rc = unsafe { libc::kill(pid, signal) };
        assert_eq!(rc, 0, "cannot signal the server");
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn config_path(&self) -> PathBuf {
        self.dir().join("redis.conf")
    }

    /// The server logs to standard output, so that crash reports, messages from before it reads its
    /// configuration and a wrapper's report stand in the same file.
    fn log_path(&self) -> PathBuf {
        self.dir().join("server.log")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill9();
        if thread::panicking() {
            eprintln!(
                "--- log of the server on port {}:\n{}",
                self.port(),
                tail(&self.log())
            );
        }
    }
}

/// The `name:value` lines of an INFO reply.
pub(crate) fn fields(info: &Reply) -> HashMap<String, String> {
    info.as_text()
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect()
}

pub(crate) fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

/// The state letter in /proc, as in R, S, T or Z; `None` when there is no such process.
fn process_state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold anything, so read from its end.
    stat.rsplit_once(") ")?.1.chars().next()
}
