//! The slot of a tag, and moving a slot from node to node, step by step.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{RedisCluster, RedisNode, SLOTS};

/// The slot of the keys with `{tag}` in them: CRC16 (XMODEM) of the tag, modulo 16,384.
pub fn slot_of(tag: &str) -> u16 {
    let step = |crc: u16, byte: &u8| {
        let crc = crc ^ (u16::from(*byte) << 8);
        (0..8).fold(crc, |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 })
    };
    tag.as_bytes().iter().fold(0, step) % SLOTS
}

/// A slot that is being moved from one master to another, by MIGRATE.
#[derive(Debug)]
pub struct MovingSlot<'a> {
    cluster: &'a RedisCluster,
    slot: u16,
    from: &'a RedisNode,
    to: &'a RedisNode,
}

impl RedisCluster {
    /// Begins to move the slot of `{tag}` to another master: from now on, commands for missing keys are answered with
    /// ASK.
    pub fn begin_move<'a>(&'a self, tag: &str, to: &'a RedisNode) -> Result<MovingSlot<'a>> {
        let (slot, from) = (slot_of(tag), self.master_of(tag)?);
        let number = slot.to_string();
        to.says(&["CLUSTER", "SETSLOT", &number, "IMPORTING", from.id()])?;
        from.says(&["CLUSTER", "SETSLOT", &number, "MIGRATING", to.id()])?;
        Ok(MovingSlot { cluster: self, slot, from, to })
    }
}

impl RedisCluster {
    /// Moves the slot of `{tag}` to another master as a whole, whatever its size, and waits until it is there. None if
    /// the server does not support that; Valkey 9 and later do.
    pub fn move_whole(&self, tag: &str, to: &RedisNode, within: Duration) -> Result<Option<Duration>> {
        let (slot, from) = (slot_of(tag).to_string(), self.master_of(tag)?);
        let began = Instant::now();
        if from.says(&["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &slot, &slot, "NODE", to.id()]).is_err() {
            return Ok(None);
        }
        while self.master_of(tag)?.id() != to.id() {
            ensure!(began.elapsed() < within, "Slot {slot} is not moved after {within:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Some(began.elapsed()))
    }
}

impl MovingSlot<'_> {
    /// Moves up to `count` keys, and returns how many there were.
    pub fn move_keys(&self, count: usize) -> Result<usize> {
        let (slot, port) = (self.slot.to_string(), self.to.port().to_string());
        let keys = self.from.says(&["CLUSTER", "GETKEYSINSLOT", &slot, &count.to_string()])?;
        let keys: Vec<&str> = keys.lines().filter(|key| !key.is_empty()).collect();
        if !keys.is_empty() {
            let mut command = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "10000", "KEYS"];
            command.extend(&keys);
            self.from.says(&command).context("Failed to move keys")?;
        }
        Ok(keys.len())
    }

    /// Moves all remaining keys, and makes the new owner of the slot known to all masters.
    pub fn finish(self) -> Result<()> {
        while self.move_keys(100)? > 0 {}
        let slot = self.slot.to_string();
        // The receiving node comes first, then the giving one: in between, no node thinks that the slot has no master.
        self.to.says(&["CLUSTER", "SETSLOT", &slot, "NODE", self.to.id()])?;
        self.from.says(&["CLUSTER", "SETSLOT", &slot, "NODE", self.to.id()])?;
        for node in self.cluster.nodes().iter().filter(|node| node.is_running()) {
            if node.master_id().is_none() {
                let _hears_it_from_the_others =
                    node.says(&["CLUSTER", "SETSLOT", &slot, "NODE", self.to.id()]);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::slot_of;

    #[test]
    fn slots_are_those_of_the_servers() {
        // The same results as CLUSTER KEYSLOT.
        assert_eq!(["123456789", "foo", "10"].map(slot_of), [12_739, 12_182, 247]);
    }
}
