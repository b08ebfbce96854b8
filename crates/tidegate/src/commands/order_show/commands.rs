//! The command line for each step that an operator can take with an order.

use tidegate_operations::order_show::{NextStep, OrderQuery};
use tidegate_orders::{Keys, OrderId};

use crate::{command_line::CommandLine, pending::shell_word};

/// The names of Redis keys that command lines for `redis-cli` contain.
#[derive(Clone, Debug)]
pub struct RedisNames {
    /// The name of the stream of orders.
    pub stream: String,
    /// The names of all keys in Redis except the streams.
    pub keys: Keys,
}

/// The command line for an action that the report suggests, without the flags of the configuration.
pub fn command(step: &NextStep, order: OrderId, names: &RedisNames) -> String {
    match step {
        NextStep::AuditVoucher(voucher) => format!("tidegate audit --voucher {voucher}"),
        NextStep::ClaimOf(consumer) => CommandLine::new("consumers drain").operand(consumer).to_string(),
        NextStep::StartWorker => "tidegate worker".to_owned(),
        NextStep::ShowLetter(letter) => format!("tidegate dead show {letter}"),
        NextStep::RequeueLetter { letter, force } => {
            let force = if *force { " --force" } else { "" };
            format!("tidegate dead requeue {letter}{force}")
        }
        NextStep::CancelLetter(letter) => format!("tidegate dead cancel {letter}"),
        NextStep::DropLetter(letter) => format!("tidegate dead drop {letter}"),
        NextStep::Replay(entry) => format!("tidegate replay --from {entry} --to {entry}"),
        NextStep::Append { user, voucher, quantity } => {
            let quantity = if *quantity == 1 { String::new() } else { format!(" quantity {quantity}") };
            let stream = shell_word(&names.stream);
            redis_cli(&format!("XADD {stream} '*' userId {user} voucherId {voucher} id {order}{quantity}"))
        }
        NextStep::ReadNote(voucher) => {
            let journal = shell_word(&names.keys.journal(*voucher).as_str_lossy());
            redis_cli(&format!("HGET {journal} {order}"))
        }
        NextStep::Release { user, voucher, quantity } => {
            let keys = &names.keys;
            let keys = [keys.stock(*voucher), keys.buyers(*voucher), keys.journal(*voucher)];
            let keys = keys.map(|key| shell_word(&key.as_str_lossy())).join(" ");
            redis_cli(&format!(
                "--eval lua/release.lua {keys} , {order} {user} {quantity} 1 operator:by_hand"
            ))
        }
        NextStep::SearchFurther(query) => search(query),
    }
}

/// A command line for `redis-cli`, for a step that no command of Tidegate can take.
fn redis_cli(command: &str) -> String {
    format!("redis-cli -u \"$TIDEGATE_REDIS_URL\" {command}")
}

/// The command line that repeats the search with more entries.
fn search(OrderQuery { order, voucher, user, entry, budget }: &OrderQuery) -> String {
    let hints = [
        voucher.map(|voucher| format!(" --voucher {voucher}")),
        user.map(|user| format!(" --user {user}")),
        entry.map(|entry| format!(" --entry {entry}")),
    ];
    let hints: String = hints.into_iter().flatten().collect();
    format!("tidegate order show {order}{hints} --scan {budget}")
}
