//! Reading back what a server propagated.

use std::fs;

use crate::{reply, server::Server};

impl Server {
    /// The commands in the server's AOF, base and increments in order; needs a pure AOF.
    ///
    /// What a primary propagates stands here as its replicas get it, SELECT, MULTI and EXEC included.
    #[track_caller]
    pub fn aof_commands(&self) -> Vec<Vec<Vec<u8>>> {
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
}
