//! Small files with a secret, such as the files that Docker and Kubernetes mount.

use std::{
    fs,
    io::{self, Read},
    path::Path,
};

/// The largest size of a file with a secret, in bytes.
const MOST_BYTES: usize = 64 << 10;

/// Reads the text of a file with a secret.
///
/// # Errors
/// Fails if the file cannot be read, is no regular file, is too large or is not UTF-8. The error does not show the text.
pub fn read(path: &Path) -> io::Result<String> {
    // Reading a pipe or a device might never end.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MOST_BYTES {
        return Err(io::Error::other(format!("it has more than {MOST_BYTES} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_too_large_or_not_utf_8_or_no_file_is_refused_without_its_text() {
        let path = std::env::temp_dir().join(format!("tidegate-secret-{}", std::process::id()));
        let read = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            super::read(&path).map_err(|error| error.to_string())
        };
        assert_eq!(read(b"hunter2\n").as_deref(), Ok("hunter2\n"));
        assert_eq!(read(&[b'x'; MOST_BYTES]).map(|text| text.len()), Ok(MOST_BYTES));
        assert_eq!(read(&[b'x'; MOST_BYTES + 1]).unwrap_err(), "it has more than 65536 bytes");
        assert_eq!(read(b"hunter2\xff").unwrap_err(), "it is not UTF-8");
        fs::remove_file(&path).unwrap();
        assert_eq!(super::read(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(super::read(&std::env::temp_dir()).unwrap_err().to_string(), "it is no regular file");
    }
}
