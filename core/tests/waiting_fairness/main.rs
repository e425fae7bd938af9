//! The queue and the lock together, driven as `src/waiting.rs` drives the two: in every mode
//! nobody overtakes and nobody is forgotten.

mod acts;
mod server;

use acts::{Act, How, Who, Wish};
use server::Server;
use sluice_core::Millis;

/// `w` writes; behind it wait r1 and r2, then `x` to write, then r3.
fn crossed() -> Server {
    let mut server = Server::new();
    let asks = [(0, false), (1, true), (2, true), (3, false), (4, true)];
    for (owner, is_shared) in asks {
        let wish = Wish {
            lease_ms: 100,
            is_shared,
            maxhold_ms: None,
        };
        let how = How::Block { wait_us: 1_000_000 };
        server.acquire(owner, &wish, false, how);
        server.check();
    }
    assert_eq!(server.holders(), [0]);
    server
}

fn release(server: &mut Server, owner: usize) {
    let who = Who::Anybody(owner);
    let keep_ms = None;
    server.apply(&Act::Release { who, keep_ms });
    server.check();
}

#[test]
fn adjacent_waiting_readers_are_granted_together_up_to_the_next_writer() {
    let mut server = crossed();
    release(&mut server, 0);
    assert_eq!(server.holders(), [1, 2]);
    release(&mut server, 1);
    assert_eq!(server.holders(), [2]);
    release(&mut server, 2);
    assert_eq!(server.holders(), [3]);
    release(&mut server, 3);
    assert_eq!(server.holders(), [4]);
    assert!(server.line.is_empty());
}

#[test]
fn a_downgrade_lets_the_waiting_readers_in() {
    let mut server = crossed();
    server.apply(&Act::Downgrade(Who::Anybody(0)));
    server.check();
    assert_eq!(server.holders(), [0, 1, 2]);
    assert_eq!(server.line.len(), 2);
}

#[test]
fn a_writer_that_gives_up_lets_the_readers_behind_it_in() {
    let mut server = crossed();
    release(&mut server, 0);
    let (owner, ids) = server.line[0].clone();
    assert_eq!(owner, 3);
    assert!(server.waiting.leave(ids[0]));
    server.gone(ids[0]);
    server.serve();
    assert_eq!(server.holders(), [1, 2, 4]);
}

#[test]
fn a_writer_behind_readers_is_granted_right_after_the_last_lease() {
    let mut server = crossed();
    release(&mut server, 0);
    let wish = Wish {
        lease_ms: 500,
        is_shared: true,
        maxhold_ms: None,
    };
    server.acquire(2, &wish, false, How::Plain);
    server.check();
    assert_eq!(server.waiting.next_due(), Some(Millis(server.ms().0 + 500)));
    server.now += 500_999;
    server.serve();
    assert_eq!(server.holders(), [2]);
    server.now += 1;
    server.serve();
    assert_eq!(server.holders(), [3]);
}
