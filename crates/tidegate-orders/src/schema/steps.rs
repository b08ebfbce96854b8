//! The steps of the migration: each file of `migrations/`, and the fact that it makes true.

use super::{
    found::Found,
    tables::{
        CAMPAIGN, CARRIED_WINDOW, EVENT, FLEET_MARK, LIMIT, LIMIT_USE, ORDER, PROBE, REFUSAL,
        UNANNOUNCED_RESULT, UNITS, UNPAID_ORDER, VOUCHER,
    },
};

/// The types that hold a small number.
pub(super) const NUMBERS: &[&str] = &["tinyint", "smallint", "mediumint", "int", "bigint"];
/// The types that hold a time.
pub(super) const TIMES: &[&str] = &["timestamp", "datetime"];

/// A migration file, and the fact that it makes true.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) file: &'static str,
    pub(super) what: &'static str,
    pub(super) sql: &'static str,
    pub(super) fact: Fact,
}

impl Step {
    /// Whether the fact of the step is missing in the database.
    pub(super) fn is_missing(&self, found: &Found) -> bool {
        !holds(&self.fact, found)
    }

    /// The existing table that the step changes. `None` if the step changes only what it creates.
    pub(super) fn alters(&self) -> Option<&'static str> {
        match &self.fact {
            Fact::Column(column) => Some(column.table),
            Fact::UniqueKey | Fact::OrderDefault(_) => Some(ORDER),
            Fact::VoucherIndex(_) => Some(VOUCHER),
            Fact::Table(_) | Fact::View(_) | Fact::ProbeRow => None,
        }
    }
}

/// The fact that a step makes true.
#[derive(Debug)]
pub(super) enum Fact {
    Table(&'static str),
    View(&'static str),
    Column(AddedColumn),
    UniqueKey,
    /// The table of vouchers has an index with this name.
    VoucherIndex(&'static str),
    /// This column of the orders has a default, unless the column is missing or has another type.
    OrderDefault(OrderColumn),
    ProbeRow,
}

/// A column of the tutorial's table that the worker's insert leaves to its default.
#[derive(Debug)]
pub(super) struct OrderColumn {
    pub(super) name: &'static str,
    /// The types for which a default is known.
    pub(super) types: &'static [&'static str],
}

impl OrderColumn {
    fn lacks_default(&self, found: &Found) -> bool {
        found.column(ORDER, self.name).is_some_and(|column| {
            self.types.contains(&column.data_type.as_str())
                && column.default.is_none()
                && !column.is_generated()
        })
    }
}

/// A column that a migration adds, with all properties that the worker relies on.
#[derive(Debug)]
pub(super) struct AddedColumn {
    pub(super) table: &'static str,
    pub(super) name: &'static str,
    /// The type as in the migration file, for messages.
    pub(super) sql_type: &'static str,
    pub(super) data_type: &'static str,
    pub(super) unsigned: Sign,
    pub(super) null: Null,
    pub(super) default: Option<&'static str>,
    /// The number of characters that must fit, 0 for numbers.
    pub(super) min_length: i64,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Signed,
    Unsigned,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Null {
    Allowed,
    Refused,
}

macro_rules! step {
    ($file:literal, $what:literal, $fact:expr) => {
        Step {
            file: $file,
            what: $what,
            sql: include_str!(concat!("../../../../migrations/", $file, ".sql")),
            fact: $fact,
        }
    };
}

/// All steps in the order in which they run.
pub(super) const STEPS: &[Step] = &[
    step!("0001_seckill_voucher_table", "create tb_seckill_voucher", Fact::Table(VOUCHER)),
    step!("0002_voucher_order_table", "create tb_voucher_order", Fact::Table(ORDER)),
    step!(
        "0003_voucher_initial_stock",
        "add the column tb_seckill_voucher.initial_stock",
        Fact::Column(AddedColumn {
            table: VOUCHER,
            name: "initial_stock",
            sql_type: "BIGINT NULL",
            data_type: "bigint",
            unsigned: Sign::Signed,
            null: Null::Allowed,
            default: None,
            min_length: 0,
        })
    ),
    step!(
        "0004_voucher_refusals",
        "add the column tb_seckill_voucher.refusals",
        Fact::Column(AddedColumn {
            table: VOUCHER,
            name: "refusals",
            sql_type: "INT UNSIGNED NOT NULL DEFAULT 0",
            data_type: "int",
            unsigned: Sign::Unsigned,
            null: Null::Refused,
            default: Some("0"),
            min_length: 0,
        })
    ),
    step!(
        "0005_order_quantity",
        "add the column tb_voucher_order.quantity, with the value 1 for existing orders",
        Fact::Column(AddedColumn {
            table: ORDER,
            name: "quantity",
            sql_type: "INT UNSIGNED NOT NULL DEFAULT 1",
            data_type: "int",
            unsigned: Sign::Unsigned,
            null: Null::Refused,
            default: Some("1"),
            min_length: 0,
        })
    ),
    step!(
        "0006_order_slot",
        "add the column tb_voucher_order.slot, with the value 1 for existing orders",
        Fact::Column(AddedColumn {
            table: ORDER,
            name: "slot",
            sql_type: "INT UNSIGNED NULL DEFAULT 1",
            data_type: "int",
            unsigned: Sign::Unsigned,
            null: Null::Allowed,
            default: Some("1"),
            min_length: 0,
        })
    ),
    // To read all orders at every start, to find whether this step has run, would be expensive; the key after it proves
    // it.
    step!(
        "0007_order_free_cancelled_slots",
        "free the slots of cancelled and refunded orders",
        Fact::UniqueKey
    ),
    step!(
        "0008_order_entry_id",
        "add the column tb_voucher_order.entry_id",
        Fact::Column(AddedColumn {
            table: ORDER,
            name: "entry_id",
            sql_type: "VARCHAR(41) NULL",
            data_type: "varchar",
            unsigned: Sign::Signed,
            null: Null::Allowed,
            default: None,
            min_length: 41,
        })
    ),
    step!(
        "0009_order_unique_key",
        "add the unique key uk_voucher_user_slot: one live order per user, voucher and slot",
        Fact::UniqueKey
    ),
    step!("0010_refusal_table", "create tidegate_refusal", Fact::Table(REFUSAL)),
    step!("0011_probe_table", "create tidegate_probe", Fact::Table(PROBE)),
    step!("0012_probe_row", "fill tidegate_probe", Fact::ProbeRow),
    step!(
        "0013_order_status_default",
        "give the column tb_voucher_order.status the default 1 (unpaid)",
        Fact::OrderDefault(OrderColumn { name: "status", types: NUMBERS })
    ),
    step!(
        "0014_order_create_time_default",
        "give the column tb_voucher_order.create_time the default CURRENT_TIMESTAMP",
        Fact::OrderDefault(OrderColumn { name: "create_time", types: TIMES })
    ),
    step!("0015_event_table", "create tidegate_event", Fact::Table(EVENT)),
    step!(
        "0016_voucher_pay_within",
        "add the column tb_seckill_voucher.pay_within",
        Fact::Column(AddedColumn {
            table: VOUCHER,
            name: "pay_within",
            sql_type: "INT UNSIGNED NULL",
            data_type: "int",
            unsigned: Sign::Unsigned,
            null: Null::Allowed,
            default: None,
            min_length: 0,
        })
    ),
    step!("0017_unpaid_order_table", "create tidegate_unpaid_order", Fact::Table(UNPAID_ORDER)),
    step!("0018_fleet_mark_table", "create tidegate_fleet_mark", Fact::Table(FLEET_MARK)),
    step!(
        "0019_unannounced_result_table",
        "create tidegate_unannounced_result",
        Fact::Table(UNANNOUNCED_RESULT)
    ),
    step!("0020_voucher_units_view", "create the view tidegate_voucher_units", Fact::View(UNITS)),
    step!(
        "0021_voucher_delisted",
        "add the column tb_seckill_voucher.delisted_at",
        Fact::Column(AddedColumn {
            table: VOUCHER,
            name: "delisted_at",
            sql_type: "TIMESTAMP NULL",
            data_type: "timestamp",
            unsigned: Sign::Signed,
            null: Null::Allowed,
            default: None,
            min_length: 0,
        })
    ),
    step!("0022_limit_table", "create tidegate_limit", Fact::Table(LIMIT)),
    step!("0023_campaign_table", "create tidegate_campaign", Fact::Table(CAMPAIGN)),
    step!("0024_limit_use_table", "create tidegate_limit_use", Fact::Table(LIMIT_USE)),
    step!(
        "0025_voucher_limits_since",
        "add the column tb_seckill_voucher.limits_since",
        Fact::Column(AddedColumn {
            table: VOUCHER,
            name: "limits_since",
            sql_type: "BIGINT NULL",
            data_type: "bigint",
            unsigned: Sign::Signed,
            null: Null::Allowed,
            default: None,
            min_length: 0,
        })
    ),
    step!(
        "0026_unpaid_order_partition",
        "add the column tidegate_unpaid_order.partition_code, also as the first column of the index idx_ask",
        Fact::Column(AddedColumn {
            table: UNPAID_ORDER,
            name: "partition_code",
            sql_type: "SMALLINT UNSIGNED NOT NULL DEFAULT 0",
            data_type: "smallint",
            unsigned: Sign::Unsigned,
            null: Null::Refused,
            default: Some("0"),
            min_length: 0,
        })
    ),
    step!(
        "0027_voucher_keeps_journal",
        "add the column tb_seckill_voucher.keeps_journal",
        Fact::Column(AddedColumn {
            table: VOUCHER,
            name: "keeps_journal",
            sql_type: "TINYINT NULL",
            data_type: "tinyint",
            unsigned: Sign::Signed,
            null: Null::Allowed,
            default: None,
            min_length: 0,
        })
    ),
    step!("0028_carried_window_table", "create tidegate_carried_window", Fact::Table(CARRIED_WINDOW)),
    step!(
        "0029_voucher_begin_index",
        "add the index idx_begin_time to tb_seckill_voucher",
        Fact::VoucherIndex("idx_begin_time")
    ),
];

/// The steps whose facts are missing.
pub(super) fn missing(found: &Found) -> Vec<&'static Step> {
    STEPS.iter().filter(|step| step.is_missing(found)).collect()
}

fn holds(fact: &Fact, found: &Found) -> bool {
    match fact {
        Fact::Table(name) | Fact::View(name) => found.has_table(name),
        Fact::Column(column) => found.column(column.table, column.name).is_some(),
        Fact::UniqueKey => found.has_unique_key(),
        Fact::VoucherIndex(name) => found.table(VOUCHER).is_some_and(|table| table.keys.contains_key(*name)),
        Fact::OrderDefault(column) => !column.lacks_default(found),
        Fact::ProbeRow => found.probe_row,
    }
}

/// Whether a step gives this column of the orders the default that it lacks.
pub(super) fn gives_default(column: &str, found: &Found) -> bool {
    STEPS.iter().any(|step| match &step.fact {
        Fact::OrderDefault(given) => given.name == column && given.lacks_default(found),
        _ => false,
    })
}

/// The columns that migrations add, to compare them with the existing ones.
pub(super) fn added_columns() -> impl Iterator<Item = &'static AddedColumn> {
    STEPS.iter().filter_map(|step| match &step.fact {
        Fact::Column(column) => Some(column),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statements(sql: &str) -> String {
        sql.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn every_file_holds_one_statement_and_says_why() {
        for step in STEPS {
            assert!(step.sql.starts_with("-- "), "{} does not begin with its reason", step.file);
            assert_eq!(statements(step.sql).matches(';').count(), 1, "{}: one statement", step.file);
        }
    }

    #[test]
    fn every_file_of_the_folder_is_a_step_in_its_order() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../migrations");
        let names = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
        let mut files: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        files.retain(|name| name.ends_with(".sql"));
        files.sort();
        let steps: Vec<_> = STEPS.iter().map(|step| format!("{}.sql", step.file)).collect();
        assert_eq!(files, steps);
    }

    #[test]
    fn a_columns_file_adds_it_with_the_type_that_is_checked() {
        for step in STEPS {
            if let Fact::Column(column) = &step.fact {
                let wanted = format!("ADD COLUMN {} {} COMMENT", column.name, column.sql_type);
                assert!(step.sql.contains(&wanted), "{}: {wanted}", step.file);
            }
        }
    }
}
