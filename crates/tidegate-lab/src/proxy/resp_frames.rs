//! A counter of complete RESP messages in a stream of bytes, which finds the reply of one pipelined command among
//! others.

/// The position in a stream of RESP2 or RESP3 messages.
#[derive(Debug, Default)]
pub(super) struct RespFrames {
    /// The number of complete messages. Pushes (`>`), which answer no command, are not counted.
    complete: u64,
    /// The number of elements that the current message still needs; 0 between messages.
    open: u64,
    is_push: bool,
    /// The received part of a line, if the position is inside one.
    line: Vec<u8>,
    /// The bytes that a bulk string still needs, including its line end.
    bulk: usize,
}

impl RespFrames {
    pub fn complete(&self) -> u64 {
        self.complete
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        self.feed_until(bytes, u64::MAX);
    }

    /// Consumes bytes up to the begin of message number `target` (from 0), and returns how many bytes come before it.
    pub fn feed_until(&mut self, bytes: &[u8], target: u64) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            if self.is_between_messages() {
                if self.complete == target && bytes[at] != b'>' {
                    break;
                }
                self.open = 1;
                self.is_push = bytes[at] == b'>';
            }
            at += self.step(&bytes[at..]);
        }
        at
    }

    fn is_between_messages(&self) -> bool {
        self.open == 0 && self.line.is_empty() && self.bulk == 0
    }

    /// Consumes the rest of a bulk string, or one byte of a line.
    fn step(&mut self, bytes: &[u8]) -> usize {
        if self.bulk > 0 {
            let taken = self.bulk.min(bytes.len());
            self.bulk -= taken;
            if self.bulk == 0 {
                self.close_element();
            }
            return taken;
        }
        self.line.push(bytes[0]);
        if bytes[0] == b'\n' {
            let line = std::mem::take(&mut self.line);
            self.end_of_line(&line);
        }
        1
    }

    fn end_of_line(&mut self, line: &[u8]) {
        // A null has the length -1, so it has no content.
        let number = || str::from_utf8(&line[1..]).ok().and_then(|text| text.trim_end().parse::<u64>().ok());
        match line[0] {
            b'$' | b'=' | b'!' => match number() {
                Some(length) => self.bulk = length as usize + 2,
                None => self.close_element(),
            },
            b'*' | b'~' | b'>' => self.open_elements(number().unwrap_or(0)),
            b'%' => self.open_elements(2 * number().unwrap_or(0)),
            // Attributes come before the element that they belong to.
            b'|' => self.open += 2 * number().unwrap_or(0),
            _ => self.close_element(),
        }
    }

    fn open_elements(&mut self, count: u64) {
        self.open += count;
        self.close_element();
    }

    fn close_element(&mut self) {
        self.open -= 1;
        if self.open == 0 && !self.is_push {
            self.complete += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RespFrames;

    const REPLIES: &[u8] =
        b"+OK\r\n*2\r\n$3\r\nfoo\r\n*1\r\n:1\r\n$-1\r\n>2\r\n+a\r\n+b\r\n%1\r\n+k\r\n_\r\n*0\r\n$0\r\n\r\n";

    #[test]
    fn counts_messages_however_they_are_cut() {
        for size in 1..REPLIES.len() {
            let mut frames = RespFrames::default();
            REPLIES.chunks(size).for_each(|chunk| frames.feed(chunk));
            assert_eq!(frames.complete(), 6, "in chunks of {size}");
        }
    }

    #[test]
    fn finds_where_a_message_begins_behind_pushes() {
        let begins = |target| RespFrames::default().feed_until(REPLIES, target);
        assert_eq!(begins(0), 0);
        assert_eq!(begins(1), 5);
        assert_eq!(&REPLIES[begins(2)..][..5], b"$-1\r\n");
        assert_eq!(&REPLIES[begins(3)..][..4], b"%1\r\n");
        assert_eq!(begins(6), REPLIES.len());
    }
}
