//! Waiters in a cluster: what happens to them when the slot of their key leaves the node.

use crate::support::*;
use crate::waiting_failover::{assert_quiet, let_wait, wait_for_waiters};
use std::time::{Duration, Instant};

/// The check for slots that left runs once a second.
const SOON: Duration = Duration::from_millis(2000);

/// Two primaries that share the slots: the lower half is the first's. The clock runs, since the bus
/// counts by it.
pub(crate) struct Cluster {
    pub(crate) nodes: [Server; 2],
    pub(crate) ids: [String; 2],
}

impl Cluster {
    pub(crate) fn start() -> Cluster {
        let nodes = [0, 1].map(|_| Options::new().cluster().start());
        for (node, slots) in nodes.iter().zip([(0, 8191), (8192, 16383)]) {
            let reply = cmd!(
                node.conn(),
                "CLUSTER",
                "ADDSLOTSRANGE",
                slots.0.to_string(),
                slots.1.to_string()
            );
            assert_eq!(reply, ok());
        }
        let met = cmd!(
            nodes[0].conn(),
            "CLUSTER",
            "MEET",
            "127.0.0.1",
            nodes[1].port()
        );
        assert_eq!(met, ok());
        for node in &nodes {
            eventually("the cluster is up", || {
                let info = cmd!(node.conn(), "CLUSTER", "INFO").as_text();
                let known = info.contains("cluster_known_nodes:2");
                known && info.contains("cluster_state:ok")
            });
        }
        let ids = [0, 1].map(|i: usize| cmd!(nodes[i].conn(), "CLUSTER", "MYID").as_text());
        Cluster { nodes, ids }
    }

    /// A key, its slot, and the numbers of the node that has it and of the other.
    pub(crate) fn place(&self, key: &str) -> (i64, usize, usize) {
        let slot = cmd!(self.nodes[0].conn(), "CLUSTER", "KEYSLOT", key).as_int();
        match slot {
            0..=8191 => (slot, 0, 1),
            _ => (slot, 1, 0),
        }
    }

    pub(crate) fn setslot(&self, at: usize, slot: i64, how: &str, node: usize) {
        let id = &self.ids[node];
        let reply = cmd!(
            self.nodes[at].conn(),
            "CLUSTER",
            "SETSLOT",
            slot,
            how,
            id.as_str()
        );
        assert_eq!(reply, ok(), "SETSLOT {slot} {how} at {at}");
    }

    pub(crate) fn open_slot(&self, slot: i64, from: usize, to: usize) {
        self.setslot(to, slot, "IMPORTING", from);
        self.setslot(from, slot, "MIGRATING", to);
    }

    pub(crate) fn migrate(&self, key: &str, from: usize, to: usize) {
        let port = self.nodes[to].port();
        let reply = cmd!(
            self.nodes[from].conn(),
            "MIGRATE",
            "127.0.0.1",
            port,
            key,
            0,
            5000
        );
        assert_eq!(reply, ok());
    }

    pub(crate) fn close_slot(&self, slot: i64, from: usize, to: usize) {
        self.setslot(to, slot, "NODE", to);
        // Not before the source has deleted what expired there.
        eventually("the slot is empty", || {
            let count = cmd!(self.nodes[from].conn(), "CLUSTER", "COUNTKEYSINSLOT", slot);
            count == int(0)
        });
        self.setslot(from, slot, "NODE", to);
    }
}

/// A waiter's answer, which must be that it asks again elsewhere, and soon.
#[track_caller]
pub(crate) fn assert_sent_away(waiter: &mut Conn, since: Instant) {
    let reply = waiter.recv_timeout(SOON.saturating_sub(since.elapsed()));
    let reply = reply.expect("the waiter is told within a second");
    let text = reply.as_text();
    let elsewhere = ["TRYAGAIN", "MOVED", "ASK"]
        .iter()
        .any(|word| text.starts_with(word));
    assert!(reply.is_error() && elsewhere, "{text}");
}

fn run(server: &Server, line: &str) -> Reply {
    server.conn().cmd(&words(line))
}

#[test]
fn a_held_lock_that_migrates_is_granted_at_the_target_alone() {
    let cluster = Cluster::start();
    let (slot, from, to) = cluster.place("{a}k");
    let (source, target) = (&cluster.nodes[from], &cluster.nodes[to]);
    let first = run(source, "LOCK.ACQUIRE {a}k holder 60000").as_int();
    let mut waiters: Vec<Conn> = (0..2)
        .map(|i| {
            let line = format!("LOCK.ACQUIRE {{a}}k w{i} 60000 BLOCK 60000");
            let_wait(source, &line)
        })
        .collect();

    cluster.open_slot(slot, from, to);
    cluster.migrate("{a}k", from, to);
    let gone = Instant::now();
    cluster.close_slot(slot, from, to);
    for waiter in &mut waiters {
        assert_sent_away(waiter, gone);
    }
    assert_quiet(source);
    let moved = run(source, "LOCK.ACQUIRE {a}k w0 60000 BLOCK 60000").as_text();
    assert!(moved.starts_with("MOVED"), "{moved}");

    // The same owners again, where the lock is now.
    let mut waiters: Vec<Conn> = (0..2)
        .map(|i| {
            let line = format!("LOCK.ACQUIRE {{a}}k w{i} 60000 BLOCK 60000");
            let_wait(target, &line)
        })
        .collect();
    assert_eq!(run(target, "LOCK.RENEW {a}k holder 70000"), int(70000));
    let info = run(target, "LOCK.INFO {a}k");
    assert_eq!(info.field("token"), &int(first));
    assert_eq!(run(target, "LOCK.RELEASE {a}k holder"), int(1));
    let second = waiters[0].recv().as_int();
    assert!(second > first);
    assert_eq!(run(target, "LOCK.RELEASE {a}k w0"), int(1));
    assert!(waiters[1].recv().as_int() > second);
    assert_eq!(counter(source, "lock_granted"), 1, "granted at the source");
    assert_quiet(target);
}

#[test]
fn while_its_slot_is_migrating_a_lock_that_is_still_here_is_handed_over_here() {
    let cluster = Cluster::start();
    let (slot, from, to) = cluster.place("{a}k");
    let (source, target) = (&cluster.nodes[from], &cluster.nodes[to]);
    let first = run(source, "LOCK.ACQUIRE {a}k holder 60000").as_int();
    let mut here = let_wait(source, "LOCK.ACQUIRE {a}k here 60000 BLOCK 60000");
    let mut there = let_wait(source, "LOCK.ACQUIRE {a}k there 60000 BLOCK 60000");
    cluster.open_slot(slot, from, to);
    // More than one round of the check: the key has not gone.
    let told = here.recv_timeout(Duration::from_millis(1500));
    assert_eq!(told, None);
    assert_eq!(run(source, "LOCK.RELEASE {a}k holder"), int(1));
    let second = here.recv().as_int();
    assert!(second > first);

    cluster.migrate("{a}k", from, to);
    assert_sent_away(&mut there, Instant::now());
    cluster.close_slot(slot, from, to);
    let mut there = let_wait(target, "LOCK.ACQUIRE {a}k there 60000 BLOCK 60000");
    assert_eq!(run(target, "LOCK.RELEASE {a}k here"), int(1));
    assert!(there.recv().as_int() > second);
    assert_eq!(counter(source, "lock_granted"), 2);
    assert_quiet(source);
    assert_quiet(target);
}

#[test]
fn a_lock_that_becomes_free_in_a_migrating_slot_is_not_granted_there() {
    let cluster = Cluster::start();
    // By its lease, and by a DEL: in both cases the next ACQUIRE belongs to the target.
    for (key, lease) in [("{a}ends", 300), ("{b}deleted", 60000)] {
        let (slot, from, to) = cluster.place(key);
        let (source, target) = (&cluster.nodes[from], &cluster.nodes[to]);
        let granted = counter(source, "lock_granted");
        let first = run(source, &format!("LOCK.ACQUIRE {key} holder {lease}")).as_int();
        let again = format!("LOCK.ACQUIRE {key} w 60000 BLOCK 60000");
        let mut waiter = let_wait(source, &again);
        cluster.open_slot(slot, from, to);
        if lease > 1000 {
            assert_eq!(run(source, &format!("DEL {key}")), int(1));
        }
        assert_sent_away(&mut waiter, Instant::now());
        assert_eq!(counter(source, "lock_granted"), granted + 1);
        // As a cluster client follows ASK.
        let asked = run(source, &again).as_text();
        assert!(asked.starts_with("ASK"), "{asked}");
        let replies = target.conn().pipeline(&[args!["ASKING"], words(&again)]);
        assert!(replies[1].as_int() > first, "{replies:?}");
        cluster.close_slot(slot, from, to);
        assert_eq!(
            run(target, &format!("LOCK.RENEW {key} holder 1000")),
            int(0)
        );
        assert_eq!(run(target, &format!("LOCK.RELEASE {key} w")), int(1));
        assert_quiet(source);
    }
}

#[test]
fn only_the_keys_of_the_slot_that_left_lose_their_waiters() {
    let cluster = Cluster::start();
    let (slot, from, to) = cluster.place("{a}k");
    let source = &cluster.nodes[from];
    // Another slot of the same node.
    let stays = (0..)
        .map(|i| format!("stays{i}"))
        .find(|key| {
            let (other, node, _) = cluster.place(key);
            node == from && other != slot
        })
        .expect("there are many keys");
    for key in ["{a}k", "{a}l", &stays] {
        run(source, &format!("LOCK.ACQUIRE {key} holder 60000"));
    }
    let mut gone: Vec<Conn> = ["{a}k", "{a}l"]
        .iter()
        .map(|key| let_wait(source, &format!("LOCK.ACQUIRE {key} w 60000 BLOCK 60000")))
        .collect();
    let mut stayed = let_wait(source, &format!("LOCK.ACQUIRE {stays} w 60000 BLOCK 60000"));
    cluster.open_slot(slot, from, to);
    cluster.migrate("{a}k", from, to);
    cluster.migrate("{a}l", from, to);
    let since = Instant::now();
    cluster.close_slot(slot, from, to);
    for waiter in &mut gone {
        assert_sent_away(waiter, since);
    }
    wait_for_waiters(source, 1);
    // Two more rounds of the check.
    assert_eq!(stayed.recv_timeout(Duration::from_millis(2100)), None);
    assert_eq!(run(source, &format!("LOCK.RELEASE {stays} holder")), int(1));
    assert!(stayed.recv().as_int() > 0);
    assert_quiet(source);
}

#[test]
fn waiters_of_a_node_that_lost_its_slots_at_once_are_told_within_a_second() {
    // No key to migrate: the kept lock goes by DEL, the slot by decree. What stays is a queue whose
    // key nothing will ever touch again at this node.
    let cluster = Cluster::start();
    let (slot, from, to) = cluster.place("{a}k");
    let (source, target) = (&cluster.nodes[from], &cluster.nodes[to]);
    run(source, "LOCK.ACQUIRE {a}k holder 60000");
    let mut waiter = let_wait(source, "LOCK.ACQUIRE {a}k w 60000 BLOCK 60000");
    let mut c = source.conn();
    let id = cluster.ids[to].as_str();
    let since = Instant::now();
    let replies = c.pipeline(&[
        args!["DEL", "{a}k"],
        args!["CLUSTER", "SETSLOT", slot, "NODE", id],
    ]);
    assert_eq!(replies, [int(1), ok()]);
    assert_sent_away(&mut waiter, since);
    cluster.setslot(to, slot, "NODE", to);
    assert_eq!(counter(source, "lock_granted"), 1);
    assert!(run(target, "LOCK.ACQUIRE {a}k w 60000 BLOCK 60000").as_int() > 0);
    assert_quiet(source);
}
