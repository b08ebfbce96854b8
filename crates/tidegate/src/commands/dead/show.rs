//! The command `tidegate dead show`: everything that a letter holds.

use anyhow::Context;
use clap::Args;
use std::slice;
use tidegate_compare::text::{counted, printable};
use tidegate_orders::{
    DeadLetters,
    wire::{FieldNames, Message},
};
use tidegate_stream::{Burial, EntryId, Letter};

use super::text::shown_time;
use crate::{
    entry_arg::EntryArg,
    exit::Exit,
    output::OutputArgs,
    scope::{PartitionCommand, Scope},
};
use tidegate_operations::{
    Stores,
    dead_letters::{FullLetter, reason_of},
};

/// The most fields of a letter that are shown to people.
const SHOWN_FIELDS: usize = 50;
const SHOWN_BYTES: usize = 200;

const EXAMPLES: &str = "\
Examples:
  tidegate dead show 1795175193179-0
  tidegate dead show 1795175193179-0 --json | jq .dead.history

The text escapes bytes that are not UTF-8, and cuts long values. --json prints everything, in the format of tidegate
dead export. If there is no such letter, the command exits with 1, and the JSON is null.";

/// The arguments of `tidegate dead show`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DeadShowArgs {
    /// The id of the letter
    pub letter: EntryArg,
    #[command(flatten)]
    output: OutputArgs,
}

impl PartitionCommand for DeadShowArgs {
    fn scope(&self) -> Scope<'_> {
        Scope::Entries(slice::from_ref(&self.letter))
    }

    /// Shows one dead letter.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let settings = stores.settings();
        let redis = stores.redis().await?;
        let found = DeadLetters::new(redis.clone()).find(self.letter.id).await;
        let found = found.context("Failed to read the dead letters")?;
        self.output.print(&found.as_ref().map(FullLetter::from), |_| match &found {
            Some(letter) => render(&settings.keys.fields, letter),
            None => {
                format!(
                    "the stream {} has no dead letter {}: see tidegate dead list",
                    settings.stream.dead, self.letter
                )
            }
        })?;
        Ok(if found.is_some() { Exit::Ok } else { Exit::No })
    }
}

fn render(fields: &FieldNames, letter: &Letter) -> String {
    let mut lines =
        vec![format!("letter     {}", letter.id), format!("reason     {}", printable(reason_of(letter)))];
    if let Some(burial) = &letter.burial {
        lines.extend([
            format!("error      {}", printable(&burial.error)),
            format!("buried     {} by {}", shown_time(letter.id), printable(&burial.consumer)),
            format!("entry      {}, delivered {}", burial.entry, counted(burial.deliveries, "time")),
        ]);
    }
    lines.push(match fields.decode_message(&letter.entry()) {
        Ok(Message::Event(event)) => {
            let reference = event.reference.map(|text| format!(", ref {text}")).unwrap_or_default();
            format!(
                "event      {} of order {} of user {} for voucher {}{reference}",
                event.kind, event.order, event.user, event.voucher
            )
        }
        Ok(Message::Order(order)) => format!(
            "order      {} of user {} for {} of voucher {}, slot {}",
            order.id, order.user, order.quantity, order.voucher, order.slot
        ),
        Err(error) => format!("order      not an order: {error}"),
    });
    lines.push(format!("requeued   {}", counted(letter.history.requeued, "time")));
    lines.extend(letter.history.burials.iter().map(earlier));
    lines.push(format!("fields     {}", letter.fields.len()));
    let shown = letter.fields.iter().take(SHOWN_FIELDS);
    lines.extend(shown.map(|(name, value)| format!("  {} = {}", escaped(name), escaped(value))));
    let more = letter.fields.len().saturating_sub(SHOWN_FIELDS);
    lines.extend((more > 0).then(|| format!("  and {more} more: --json shows them")));
    lines.join("\n")
}

fn earlier(Burial { entry, reason, error, at_ms, .. }: &Burial) -> String {
    let at = shown_time(EntryId { ms: *at_ms, seq: 0 });
    format!("  buried {at} as {entry}: {}, {}", printable(reason), printable(error))
}

fn escaped(bytes: &[u8]) -> String {
    let shown = bytes[..bytes.len().min(SHOWN_BYTES)].escape_ascii().to_string();
    let text = match std::str::from_utf8(bytes) {
        Ok(text) if text.len() <= SHOWN_BYTES && !text.contains(char::is_control) => text.to_owned(),
        _ => shown,
    };
    if bytes.len() > SHOWN_BYTES { format!("{text}... ({} bytes)", bytes.len()) } else { text }
}
