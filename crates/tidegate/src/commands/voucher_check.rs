//! The command `tidegate voucher check`: whether a user would be admitted now.

use anyhow::Context;
use clap::Args;
use tidegate_operations::{
    Stores,
    admit::{self, AdmitRequest, PredictedAdmission},
};
use tidegate_orders::{
    Quantity, Subjects, UserId, VoucherId,
    scripts::{AdmitReply, ScriptError},
};

use super::admit::{parse_subject, sentence};
use crate::{
    exit::{Exit, WrongUsage},
    output::OutputArgs,
    scope::{PartitionCommand, Scope},
};

const EXAMPLES: &str = "\
Examples:
  tidegate voucher check --voucher 7 --user 1001
  tidegate voucher check --voucher 7 --user 1001 --quantity 2 --subject phone=8d969eef6ecad3c2 --json

Checks in Redis whether the order would be admitted, and changes nothing. Exits with 0 if the user would be admitted
now. Otherwise it exits with 1, and prints which rule refuses the order, and for how long.";

/// The arguments of `tidegate voucher check`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct VoucherCheckArgs {
    /// The voucher to check an order for
    #[arg(long, value_name = "ID")]
    pub voucher: VoucherId,
    /// The user who would place the order
    #[arg(long, value_name = "ID")]
    user: UserId,
    /// The number of units, up to 10,000
    #[arg(long, value_name = "UNITS", default_value = "1", allow_negative_numbers = true)]
    quantity: Quantity,
    /// A name and its value, such as phone=8d969eef6ecad3c2, by which limits count orders. You can give several
    #[arg(long = "subject", value_name = "NAME=VALUE", value_parser = parse_subject)]
    subjects: Vec<(String, String)>,
    #[command(flatten)]
    output: OutputArgs,
}

impl PartitionCommand for VoucherCheckArgs {
    fn scope(&self) -> Scope<'_> {
        Scope::Voucher(self.voucher)
    }

    /// Prints the answer that an admission would give now.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let redis = stores.redis().await?;
        let VoucherCheckArgs { voucher, user, quantity, .. } = *self;
        let subjects =
            self.subjects.iter().try_fold(Subjects::none(), |all, (name, value)| all.with(name, value));
        let subjects = subjects.map_err(|error| WrongUsage(format!("--subject: {error}")))?;
        let request = AdmitRequest { voucher, user, order: None, quantity, subjects, traceparent: None };
        let would = admit::would_admit(redis, &request).await;
        if let Err(error) = would.reply {
            return match error {
                error @ ScriptError::NoSubject { .. } => Err(WrongUsage(error.to_string()).into()),
                error => Err(error).context("Failed to ask Redis"),
            };
        }
        self.output.print(&would, text)?;
        Ok(if matches!(would.reply, Ok(AdmitReply::Admitted)) { Exit::Ok } else { Exit::No })
    }
}

fn text(would: &PredictedAdmission) -> String {
    let PredictedAdmission { voucher, user, reply, .. } = would;
    match reply {
        Ok(AdmitReply::Admitted) => format!("voucher {voucher}: user {user} would be admitted now"),
        reply => format!("voucher {voucher}: user {user} would be {}", sentence(reply)),
    }
}
