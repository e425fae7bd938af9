//! SESSION: holds that end with the connection that acquired them.
//!
//! A binding belongs to this server and this run of it. It is no part of what is stored, so that
//! whatever moves or copies a key (RENAME, MOVE, COPY, RESTORE, a restart, a failover) keeps
//! the lease and drops the binding. Connection ids are never used twice, and a hold is freed
//! only under the token it was bound with.

use crate::waiting::Kind;
use sluice_core::waiting::KeyName;
use sluice_core::Token;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A connection, by the server's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientId(pub(crate) u64);

/// A hold that is bound to a connection.
#[derive(Clone)]
pub(crate) struct Bound {
    pub(crate) kind: Kind,
    pub(crate) key: KeyName,
    pub(crate) owner: Rc<[u8]>,
    pub(crate) token: Token,
}

#[derive(Default)]
struct Sessions {
    clients: HashMap<ClientId, Vec<Bound>>,
    keys: HashMap<KeyName, HashMap<Token, ClientId>>,
}

thread_local! {
    // The server's main thread only.
    static SESSIONS: RefCell<Sessions> = RefCell::default();
}

/// How many holds are bound, to be asked without a look into the registry.
static BOUND: AtomicUsize = AtomicUsize::new(0);

#[inline]
fn none() -> bool {
    BOUND.load(Relaxed) == 0
}

fn with<R>(f: impl FnOnce(&mut Sessions) -> R) -> R {
    SESSIONS.with_borrow_mut(|sessions| {
        let result = f(sessions);
        BOUND.store(sessions.keys.len(), Relaxed);
        result
    })
}

/// Binds a hold to a connection, and away from the one it was bound to.
pub(crate) fn bind(client: ClientId, bound: Bound) {
    with(|sessions| {
        sessions.unbind(&bound.key, bound.token);
        let tokens = sessions.keys.entry(bound.key.clone()).or_default();
        tokens.insert(bound.token, client);
        sessions.clients.entry(client).or_default().push(bound);
    });
}

pub(crate) fn is_bound(db: i32, name: &[u8], token: Token) -> bool {
    !none()
        && with(|sessions| {
            let tokens = sessions.keys.get(&key_name(db, name));
            tokens.is_some_and(|tokens| tokens.contains_key(&token))
        })
}

/// The connection that `owner`'s hold on a key is bound to.
#[inline]
pub(crate) fn connection_of(db: i32, name: &[u8], owner: &[u8]) -> Option<ClientId> {
    if none() {
        return None;
    }
    with(|sessions| {
        let key = key_name(db, name);
        let tokens = sessions.keys.get(&key)?;
        tokens.values().copied().find(|client| {
            let bound = sessions.clients.get(client).into_iter().flatten();
            bound
                .into_iter()
                .any(|bound| bound.key == key && *bound.owner == *owner)
        })
    })
}

/// Drops the bindings of a key's holds, but those that `keep` names.
#[inline]
pub(crate) fn forget(db: i32, name: &[u8], keep: impl Fn(Token) -> bool) {
    if none() {
        return;
    }
    with(|sessions| {
        let key = key_name(db, name);
        let tokens: Vec<Token> = sessions
            .keys
            .get(&key)
            .into_iter()
            .flat_map(|tokens| tokens.keys().copied())
            .filter(|token| !keep(*token))
            .collect();
        for token in tokens {
            sessions.unbind(&key, token);
        }
    });
}

/// Drops the bindings of these holds on a key.
pub(crate) fn forget_holds(db: i32, name: &[u8], tokens: &[Token]) {
    if none() {
        return;
    }
    with(|sessions| {
        let key = key_name(db, name);
        for token in tokens {
            sessions.unbind(&key, *token);
        }
    });
}

/// Drops the bindings in a database, or with `None` in all.
pub(crate) fn forget_db(db: Option<i32>) {
    if none() {
        return;
    }
    with(|sessions| {
        let keeps = |key: &KeyName| db.is_some_and(|db| db != key.db);
        sessions.keys.retain(|key, _| keeps(key));
        sessions.clients.retain(|_, bound| {
            bound.retain(|bound| keeps(&bound.key));
            !bound.is_empty()
        });
    });
}

/// A connection has closed: the holds that were bound to it.
pub(crate) fn closed(client: ClientId) -> Vec<Bound> {
    if none() {
        return Vec::new();
    }
    with(|sessions| {
        let bound = sessions.clients.remove(&client).unwrap_or_default();
        for Bound { key, token, .. } in &bound {
            sessions.unbind(key, *token);
        }
        bound
    })
}

impl Sessions {
    fn unbind(&mut self, key: &KeyName, token: Token) {
        let Some(tokens) = self.keys.get_mut(key) else {
            return;
        };
        let client = tokens.remove(&token);
        if tokens.is_empty() {
            self.keys.remove(key);
        }
        let Some(client) = client else {
            return;
        };
        if let Some(bound) = self.clients.get_mut(&client) {
            bound.retain(|bound| bound.token != token || bound.key != *key);
            if bound.is_empty() {
                self.clients.remove(&client);
            }
        }
    }
}

fn key_name(db: i32, name: &[u8]) -> KeyName {
    KeyName {
        db,
        name: name.into(),
    }
}
