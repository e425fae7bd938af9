//! Child processes that cannot outlive the test process.

use std::{
    io,
    os::unix::process::CommandExt,
    process::{Child, Command},
    sync::{mpsc, OnceLock},
    thread,
};

type Job = (Command, mpsc::Sender<io::Result<Child>>);

/// Spawns `command` so that the kernel kills it when this process ends in any way, SIGKILL included.
///
/// The kernel sends that signal when the *thread* that spawned the child ends, and a test's thread
/// ends with the test. So one thread that never ends spawns all children.
pub(crate) fn spawn(mut command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (jobs, inbox) = mpsc::channel::<Job>();
        thread::Builder::new()
            .name("server-spawner".to_string())
            .spawn(move || {
                for (mut command, answer) in inbox {
                    // A caller that is gone needs no answer.
                    let _ = answer.send(command.spawn());
                }
            })
            .expect("cannot start the spawner thread");
        jobs
    });
    // Its own group, so that a kill also reaches the child's forks (BGSAVE) and a wrapper's child.
    command.process_group(0);
    let parent = std::process::id();
    // SAFETY: the closure makes system calls only, which are async-signal-safe.
    unsafe { command.pre_exec(move || die_with_parent(parent)) };
    let (answer, reply) = mpsc::channel();
    spawner
        .send((command, answer))
        .expect("the spawner never ends");
    reply.recv().expect("the spawner always answers")
}

fn die_with_parent(parent: u32) -> io::Result<()> {
    // SAFETY: plain system calls without pointers.
    unsafe {
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
            return Err(io::Error::last_os_error());
        }
        // The parent may have died before the call above.
        if libc::getppid() as u32 != parent {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
    }
    Ok(())
}
