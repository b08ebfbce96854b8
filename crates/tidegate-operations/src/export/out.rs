//! The target of exported lines: a new file that is made durable, or a writer.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
    thread,
};

use anyhow::Context;
use tokio::sync::oneshot;

use crate::change::InvalidInput;

/// The file or the writer to which an export writes its lines.
pub enum ExportTarget {
    /// A file at this path, which must not exist yet.
    File(PathBuf),
    /// A writer, such as the standard output.
    Writer {
        /// The writer that gets the lines.
        writer: Box<dyn Write + Send>,
        /// The name of the writer in errors, such as `stdout`.
        name: &'static str,
    },
}

/// A target that is open.
pub(super) enum Out {
    Writer {
        writer: Box<dyn Write + Send>,
        name: &'static str,
    },
    File {
        file: File,
        path: PathBuf,
        /// The length of the file after the last whole page.
        length: u64,
    },
}

impl Out {
    pub(super) fn open(target: ExportTarget) -> anyhow::Result<Self> {
        let path = match target {
            ExportTarget::File(path) => path,
            ExportTarget::Writer { writer, name } => return Ok(Self::Writer { writer, name }),
        };
        match File::create_new(&path) {
            Ok(file) => Ok(Self::File { file, path, length: 0 }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let message = format!(
                    "the file {} already exists and is not overwritten: choose another file",
                    path.display()
                );
                Err(InvalidInput(message).into())
            }
            Err(error) => Err(error).with_context(|| format!("Failed to create {}", path.display())),
        }
    }

    /// Returns the path of the file, if the target is a file.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::File { path, .. } => Some(path),
            Self::Writer { .. } => None,
        }
    }

    /// Writes whole lines to the target. It returns false if the reader of the output has closed it.
    pub(super) fn write(&mut self, lines: &str) -> anyhow::Result<bool> {
        match self {
            Self::Writer { writer, name } => match writer.write_all(lines.as_bytes()) {
                Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
                written => {
                    let failed = || format!("Failed to write to {name}; the last line may be incomplete");
                    written.with_context(failed).map(|()| true)
                }
            },
            Self::File { file, path, length } => {
                if let Err(error) = file.write_all(lines.as_bytes()) {
                    // The file is cut to whole lines, so that the rest can be appended.
                    let cut = file.set_len(*length).and_then(|()| file.sync_all());
                    let cut = if cut.is_ok() { "" } else { "; the last line of the file may be incomplete" };
                    return Err(error).with_context(|| format!("Failed to write to {}{cut}", path.display()));
                }
                *length += lines.len() as u64;
                Ok(true)
            }
        }
    }

    /// Makes the output durable, because the stream may be trimmed next. An empty file is removed, so that it does not
    /// block the next export.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        match self {
            Self::Writer { mut writer, .. } => Ok(writer.flush().or_else(is_gone)?),
            Self::File { path, length: 0, .. } => fs::remove_file(&path)
                .with_context(|| format!("Failed to remove the empty file {}", path.display())),
            Self::File { file, path, .. } => {
                file.sync_all().with_context(|| format!("Failed to write to {}", path.display()))
            }
        }
    }
}

/// Ignores a broken pipe: a reader that ended early (`| head`) is no failure.
fn is_gone(error: io::Error) -> io::Result<()> {
    if error.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(error) }
}

/// Runs `work` on a thread that the program does not wait for when it ends.
pub(super) async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, done) = oneshot::channel();
    thread::spawn(move || _ = sender.send(work()));
    done.await.expect("it does not panic")
}
