//! Which server and which module build the tests run against.

use std::{
    env,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Redis,
    Valkey,
}

/// The server under test.
#[derive(Clone, Debug)]
pub struct Flavour {
    pub kind: Kind,
    /// (major, minor, patch)
    pub version: (u32, u32, u32),
    /// For people, as in "redis 7.0.15".
    pub name: String,
    /// Absolute path of the binary.
    pub binary: PathBuf,
}

/// The server named by `SLUICE_SERVER`, by default the `redis-server` on `PATH`.
pub fn flavour() -> &'static Flavour {
    static FLAVOUR: OnceLock<Flavour> = OnceLock::new();
    FLAVOUR.get_or_init(|| {
        let wanted = env::var("SLUICE_SERVER").unwrap_or_else(|_| "redis-server".to_string());
        let binary = locate(&wanted)
            .unwrap_or_else(|| panic!("no server binary {wanted:?} (set SLUICE_SERVER)"));
        // One binary plays several tools by its name: Debian's Valkey server is unpacked under the
        // name valkey-check-rdb, and is the server only when called something else.
        let output = Command::new(&binary)
            .arg0("redis-server")
            .arg("--version")
            .output()
            .unwrap_or_else(|error| panic!("cannot run {binary:?}: {error}"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        parse(&text, binary).unwrap_or_else(|| panic!("not a server's --version: {text:?}"))
    })
}

/// The module under test: `SLUICE_MODULE`, by default the workspace's release build. `None` when the
/// variable is empty, for tests of the bed alone.
pub fn module_path() -> Option<PathBuf> {
    match env::var_os("SLUICE_MODULE") {
        Some(path) if path.is_empty() => None,
        Some(path) => Some(path.into()),
        None => {
            let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
            Some(workspace.join("target/release/libsluice.so"))
        }
    }
}

fn locate(wanted: &str) -> Option<PathBuf> {
    let candidates: Vec<PathBuf> = if wanted.contains('/') {
        vec![wanted.into()]
    } else {
        let path = env::var_os("PATH")?;
        env::split_paths(&path)
            .map(|dir| dir.join(wanted))
            .collect()
    };
    candidates
        .into_iter()
        .find_map(|file| file.canonicalize().ok())
}

/// Reads "Redis server v=7.0.15 sha=…" or "Valkey server v=8.0.1 sha=…".
fn parse(text: &str, binary: PathBuf) -> Option<Flavour> {
    let kind = if text.starts_with("Valkey") {
        Kind::Valkey
    } else {
        Kind::Redis
    };
    let number = text.split_once("v=")?.1.split_whitespace().next()?;
    let mut parts = number.split('.').map(|part| part.parse().ok());
    let version = (parts.next()??, parts.next()??, parts.next()??);
    let label = match kind {
        Kind::Redis => "redis",
        Kind::Valkey => "valkey",
    };
    Some(Flavour {
        kind,
        version,
        name: format!("{label} {number}"),
        binary,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_kinds_of_version() {
        let redis = parse("Redis server v=7.0.15 sha=0:0 malloc=x", PathBuf::new()).unwrap();
        assert_eq!((redis.kind, redis.version), (Kind::Redis, (7, 0, 15)));
        let valkey = parse("Valkey server v=8.0.1 sha=0:0 malloc=x", PathBuf::new()).unwrap();
        assert_eq!((valkey.kind, valkey.version), (Kind::Valkey, (8, 0, 1)));
        assert_eq!(valkey.name, "valkey 8.0.1");
    }
}
