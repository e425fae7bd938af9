//! Reading back what a server propagated.

use std::{fs, time::Duration};

use crate::{
    reply,
    server::{fields, Server},
    wait::poll,
};

impl Server {
    /// The commands in the server's AOF, base and increments in order; needs a pure AOF.
    ///
    /// What a primary propagates stands here as its replicas get it, SELECT, MULTI and EXEC included.
    #[track_caller]
    pub fn aof_commands(&self) -> Vec<Vec<Vec<u8>>> {
        self.wait_for_aof_rewrite();
        let dir = self.dir().join("appendonlydir");
        let manifest = fs::read_to_string(dir.join("appendonly.aof.manifest"))
            .expect("no AOF manifest: is appendonly on?");
        // Lines such as: file appendonly.aof.1.incr.aof seq 1 type i
        let files = manifest.lines().filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            (words[5] != "h").then(|| dir.join(words[1]))
        });
        let bytes: Vec<u8> = files
            .flat_map(|file| fs::read(file).expect("cannot read the AOF"))
            .collect();
        assert!(
            !bytes.starts_with(b"REDIS") && !bytes.starts_with(b"VALKEY"),
            "the AOF starts with an RDB: use Aof::Pure"
        );
        let mut rest = &bytes[..];
        std::iter::from_fn(|| reply::take(&mut rest))
            .map(|command| {
                let words = command.items().iter();
                words.map(|word| word.as_bytes().to_vec()).collect()
            })
            .collect()
    }

    /// After a full sync a replica writes its AOF anew; what it propagates meanwhile goes to a file
    /// that the manifest does not name yet. A server that is not there writes nothing.
    fn wait_for_aof_rewrite(&self) {
        let Ok(mut conn) = self.try_conn() else {
            return;
        };
        let written = poll(Duration::from_secs(10), || {
            let Ok(info) = conn.try_cmd(&["INFO", "persistence"]) else {
                return Some(());
            };
            let info = fields(&info);
            let is_no = |field: &str| info.get(field).is_none_or(|value| value == "0");
            (is_no("aof_rewrite_in_progress") && is_no("aof_rewrite_scheduled")).then_some(())
        });
        written.expect("the AOF is still being rewritten after ten seconds");
    }
}
