//! A minimal parser of answers in the bytes of a connection, so that the measurement takes little of the machine.

use anyhow::{Context, Result, ensure};

const HEAD_END: &[u8] = b"\r\n\r\n";

/// The received bytes of one connection.
#[derive(Debug, Default)]
pub struct Answers {
    received: Vec<u8>,
    /// The number of bytes that were consumed.
    taken: usize,
}

impl Answers {
    pub fn push(&mut self, bytes: &[u8]) {
        if self.taken == self.received.len() {
            self.received.clear();
            self.taken = 0;
        }
        self.received.extend_from_slice(bytes);
    }

    /// Consumes the next answer; false: it is not complete yet. An answer with another status is an error.
    pub fn take(&mut self, wanted_status: u16) -> Result<bool> {
        let rest = &self.received[self.taken..];
        let Some(head_end) = rest.windows(HEAD_END.len()).position(|bytes| bytes == HEAD_END) else {
            return Ok(false);
        };
        let head = std::str::from_utf8(&rest[..head_end]).context("The head of an answer is no text")?;
        let whole = head_end + HEAD_END.len() + body_length(head)?;
        if rest.len() < whole {
            return Ok(false);
        }
        let status = head.split(' ').nth(1).unwrap_or_default();
        let is_wanted = status.parse() == Ok(wanted_status);
        ensure!(is_wanted, "Instead of {wanted_status}: {}", String::from_utf8_lossy(&rest[..whole]));
        self.taken += whole;
        Ok(true)
    }
}

fn body_length(head: &str) -> Result<usize> {
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    let length = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let (_, length) = length.with_context(|| format!("An answer without a length: {head}"))?;
    Ok(length.trim().parse()?)
}

#[cfg(test)]
mod tests {
    use super::Answers;

    #[test]
    fn answers_are_taken_one_by_one_as_they_come() {
        let mut answers = Answers::default();
        answers.push(b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r");
        assert!(!answers.take(202).unwrap());
        answers.push(b"\n{}HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nHTTP/1.1 409 C");
        assert!(answers.take(202).unwrap());
        assert!(answers.take(200).unwrap());
        assert!(!answers.take(202).unwrap());
        answers.push(b"onflict\r\ncontent-length: 4\r\n\r\nsold");
        assert!(answers.take(202).unwrap_err().to_string().ends_with("sold"));
    }
}
