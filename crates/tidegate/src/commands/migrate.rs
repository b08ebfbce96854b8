//! The command `tidegate migrate`: creates the MySQL tables, or upgrades existing ones.

use clap::Args;
use tidegate_compare::text::counted;
use tidegate_operations::{
    Stores, System,
    migrate::{self, MigrationState},
    shard_claims,
};

use crate::{
    exit::Exit,
    operator::{Change, ChangeArgs, PlanText, ReportText},
    partitions::over_shards,
    scope::SystemCommand,
};

const EXAMPLES: &str = "\
Examples:
  tidegate migrate --dry-run
  tidegate migrate
  tidegate migrate --yes     # in a script, for a database that holds the tutorial's tables

Works on an empty database, and on a database with the tutorial's tables and rows. Running it again does nothing. If
rows break a new rule, such as one live order for each user, it lists these rows, changes nothing, and exits with 1. It
asks before it changes a table that exists. You may run two migrations at once: the second waits for the first. In a
replication group with several primaries, it runs at only one primary. At another primary, it refuses and names the
right one. For the reasons, see migrations/README.md.";

/// The arguments of `tidegate migrate`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct MigrateArgs {
    #[command(flatten)]
    change: ChangeArgs,
}

impl SystemCommand for MigrateArgs {
    /// Migrates the database, or shows what a migration would do.
    async fn run(&self, system: &System) -> anyhow::Result<Exit> {
        shard_claims::check(system).await?;
        let exit = over_shards(system, async |stores| migrate_one(stores, self).await).await?;
        if exit == Exit::Ok && !self.change.is_dry_run() {
            shard_claims::claim(system).await?;
        }
        Ok(exit)
    }
}

async fn migrate_one(stores: &Stores, args: &MigrateArgs) -> anyhow::Result<Exit> {
    let mysql = migrate::open(stores.settings()).await?;
    let plan = migrate::plan(&mysql).await?;
    Change::new(stores, &args.change).run(plan, async |_plan, _job| migrate::run(&mysql).await).await
}

impl PlanText for MigrationState {
    fn text(&self) -> String {
        render(self)
    }
}

impl ReportText for MigrationState {
    fn text(&self) -> String {
        render(self)
    }
}

fn render(schema: &MigrationState) -> String {
    let MigrationState { database, applied, missing, problems, other_unique_keys, .. } = schema;
    let mut lines = vec![format!("database {database}: {}", summary(schema))];
    lines.extend(applied.iter().map(|change| format!("  done      {}: {}", change.file, change.what)));
    lines.extend(missing.iter().map(|change| format!("  to do     {}: {}", change.file, change.what)));
    lines.extend(problems.iter().map(|problem| format!("  problem   {problem}")));
    lines.extend(other_unique_keys.iter().map(|key| {
        format!(
            "  note      tb_voucher_order has the unique key {key}: it may refuse orders that Tidegate admits"
        )
    }));
    lines.join("\n")
}

fn summary(schema: &MigrationState) -> String {
    let MigrationState { applied, missing, problems, .. } = schema;
    match (problems.len(), applied.len(), missing.len()) {
        (0, 0, 0) => "nothing to do, the schema is up to date".to_owned(),
        (0, 0, missing) => format!("{} to do", counted(missing as u64, "step")),
        (0, applied, _) => format!("{} done, the schema is up to date", counted(applied as u64, "step")),
        (_, 0, _) => "cannot be migrated because of the problems below; nothing was changed".to_owned(),
        (_, applied, _) => {
            format!(
                "stopped after {}, which stay done; fix the cause, then migrate again",
                counted(applied as u64, "step")
            )
        }
    }
}
