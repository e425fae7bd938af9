//! The model of semaphores that random interleavings are checked against: lists, and the rules of
//! the design in their plainest form.

use std::time::Duration;

use crate::sem_model::*;
use crate::sem_support::{high_water, permits_changed};
use crate::support::*;

impl Run<'_> {
    /// `None`: it waits.
    pub(crate) fn decide(&mut self, ask: Ask) -> Option<Due> {
        let Ask { limit, permits, .. } = ask;
        let now = self.now();
        if permits > limit {
            let text = format!(
                "ERR PERMITS {permits} is above the limit of {limit}: it can never be granted"
            );
            return Some(Due::Is(err(&text)));
        }
        let token = Due::Token {
            key: ask.key,
            holder: ask.holder,
        };
        let above = self.highest;
        let key = &mut self.keys[ask.key];
        if let Some(hold) = key.holds.iter_mut().find(|h| h.holder == ask.holder) {
            if hold.permits != permits {
                return Some(Due::Is(permits_changed(hold.permits as u32)));
            }
            hold.deadline = hold.deadline.max(now + ask.lease);
            if ask.session {
                hold.session = Some(ask.client);
            }
            return Some(token);
        }
        let live: i64 = key.holds.iter().map(|hold| hold.permits).sum();
        if key.queue.is_empty() && live + permits <= limit {
            key.holds.push(Hold {
                holder: ask.holder,
                permits,
                deadline: now + ask.lease,
                token: None,
                above,
                session: ask.session.then_some(ask.client),
            });
            return Some(token);
        }
        let place = key.queue.iter_mut().find(|p| p.holder == ask.holder);
        if let Some(place) = place.as_ref().filter(|place| place.permits != permits) {
            return Some(Due::Is(permits_changed(place.permits as u32)));
        }
        let Some(wait) = ask.wait else {
            return Some(Due::Is(nil()));
        };
        let seat = Seat {
            client: ask.client,
            lease: ask.lease,
            limit,
            until: self.mono + wait,
            session: ask.session,
        };
        match place {
            Some(place) => place.seats.push(seat),
            None => key.queue.push_back(Place {
                holder: ask.holder,
                permits,
                seats: vec![seat],
            }),
        }
        None
    }

    /// The client is gone, with its wait and with what was bound to it; another comes.
    pub(crate) fn replace(&mut self, client: usize) {
        self.clients[client] = client_of(&self.chain.primary);
        self.due.retain(|(other, _)| *other != client);
        for key in &mut self.keys {
            key.holds.retain(|hold| hold.session != Some(client));
            for place in &mut key.queue {
                place.seats.retain(|seat| seat.client != client);
            }
            key.queue.retain(|place| !place.seats.is_empty());
        }
    }

    pub(crate) fn leave_where(&mut self, leaves: impl Fn(&Seat) -> bool, answer: Reply) {
        for key in &mut self.keys {
            for place in &mut key.queue {
                for seat in place.seats.iter().filter(|seat| leaves(seat)) {
                    self.due.push((seat.client, Due::Is(answer.clone())));
                }
                place.seats.retain(|seat| !leaves(seat));
            }
            key.queue.retain(|place| !place.seats.is_empty());
        }
    }

    pub(crate) fn now(&self) -> i64 {
        self.chain.clock().now_ms()
    }

    pub(crate) fn hold(&self, key: usize, holder: usize) -> Option<&Hold> {
        let mut holds = self.keys[key].holds.iter();
        holds.find(|hold| hold.holder == holder)
    }

    /// Leases end; then whoever at the head of the queue can have what it wants gets it.
    pub(crate) fn settle(&mut self, key: usize) -> Vec<(usize, Vec<usize>)> {
        let (now, above) = (self.now(), self.highest);
        let key_number = key;
        let key = &mut self.keys[key];
        key.holds.retain(|hold| now <= hold.deadline);
        let mut granted = Vec::new();
        while let Some(place) = key.queue.front() {
            let limit = place.seats.iter().map(|seat| seat.limit).max();
            let lease = place.seats.iter().map(|seat| seat.lease).max();
            let live: i64 = key.holds.iter().map(|hold| hold.permits).sum();
            if live + place.permits > limit.expect("somebody waits") {
                break;
            }
            let sessions = place.seats.iter().rev().filter(|seat| seat.session);
            key.holds.push(Hold {
                holder: place.holder,
                permits: place.permits,
                deadline: now + lease.expect("somebody waits"),
                token: None,
                above,
                session: sessions.map(|seat| seat.client).next(),
            });
            let clients: Vec<usize> = place.seats.iter().map(|seat| seat.client).collect();
            for client in &clients {
                let due = Due::Token {
                    key: key_number,
                    holder: place.holder,
                };
                self.due.push((*client, due));
            }
            granted.push((place.holder, clients));
            key.queue.pop_front();
        }
        granted
    }

    pub(crate) fn settle_all(&mut self) {
        for key in 0..KEYS {
            self.settle(key);
        }
    }

    // --- what the server says ---

    /// Every reply that is due and no other, and then what SEM.INFO shows.
    pub(crate) fn check(&mut self) {
        for (client, due) in std::mem::take(&mut self.due) {
            let reply = self.clients[client].conn.recv();
            self.clients[client].waits = false;
            match due {
                Due::Is(expected) => assert_eq!(reply, expected, "client {client}"),
                Due::Token { key, holder } => {
                    let Reply::Int(token) = reply else {
                        panic!("client {client}: {reply:?} instead of a token");
                    };
                    self.learn(key, holder, token);
                }
            }
        }
        for client in &mut self.clients {
            let came = client.conn.recv_timeout(Duration::ZERO);
            assert_eq!(came, None, "a reply that nobody is due");
        }
        let waiting: usize = self
            .keys
            .iter()
            .flat_map(|key| &key.queue)
            .map(|place| place.seats.len())
            .sum();
        let primary = &self.chain.primary;
        eventually("as many wait", || {
            counter(primary, "waiters") == waiting as i64
        });
        for key in 0..KEYS {
            let name = format!("k{key}");
            let expected = self.expected(key);
            let mut seen = Vec::new();
            let control = &mut self.control;
            // What a dead client leaves is taken back a little later.
            for _ in 0..500 {
                seen = observed(control, &name);
                let shown: Vec<_> = seen
                    .iter()
                    .map(|(h, n, ttl, s, _)| (h.clone(), *n, *ttl, *s))
                    .collect();
                if shown == expected {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            let shown: Vec<_> = seen
                .iter()
                .map(|(h, n, ttl, s, _)| (h.clone(), *n, *ttl, *s))
                .collect();
            assert_eq!(shown, expected, "{name}");
            for (at, (.., token)) in seen.iter().enumerate() {
                let holder = self.keys[key].holds[at].holder;
                self.learn(key, holder, *token);
            }
        }
        let highest = high_water(&self.chain.primary);
        assert!(highest >= self.highest);
        self.highest = highest;
    }

    pub(crate) fn learn(&mut self, key: usize, holder: usize, token: i64) {
        let hold = self.keys[key].holds.iter_mut().find(|h| h.holder == holder);
        // It may have been given back within the step.
        let Some(hold) = hold else { return };
        match hold.token {
            Some(known) => assert_eq!(token, known, "h{holder}"),
            None => assert!(token > hold.above, "h{holder}: {token}"),
        }
        hold.token = Some(token);
    }

    /// Holder, permits, ttl_ms and session of each.
    pub(crate) fn expected(&self, key: usize) -> Vec<(String, i64, i64, i64)> {
        let now = self.now();
        let holds = self.keys[key].holds.iter();
        holds
            .map(|hold| {
                let session = hold.session.is_some().into();
                (
                    format!("h{}", hold.holder),
                    hold.permits,
                    hold.deadline - now,
                    session,
                )
            })
            .collect()
    }
}

/// Holder, permits, ttl_ms, session and token of each that SEM.INFO shows.
fn observed(c: &mut Conn, key: &str) -> Vec<(String, i64, i64, i64, i64)> {
    let info = cmd!(c, "SEM.INFO", key);
    let Some(holders) = info.map_get("holders") else {
        return Vec::new();
    };
    let one = |holder: &Reply| {
        let number = |field: &str| holder.field(field).as_int();
        let name = holder.field("holder").as_text();
        let (permits, ttl) = (number("permits"), number("ttl_ms"));
        (name, permits, ttl, number("session"), number("token"))
    };
    let all: Vec<_> = holders.items().iter().map(one).collect();
    let permits: i64 = all.iter().map(|(_, permits, ..)| permits).sum();
    assert_eq!(info.field("permits"), &int(permits));
    let ttl = all.iter().map(|(_, _, ttl, ..)| *ttl).max();
    assert_eq!(Some(info.field("ttl_ms").as_int()), ttl);
    all
}
