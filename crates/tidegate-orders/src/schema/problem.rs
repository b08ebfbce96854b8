//! Finds the problems that stop a migration: pure decisions over the facts that were read.

use serde::Serialize;

use super::{
    MigrationStep,
    duplicates::DuplicateOrders,
    found::{Column, Found, Table},
    steps::{AddedColumn, NUMBERS, Null, Sign, TIMES, added_columns, gives_default},
    tables::{LIMIT_USE, ORDER, PROBE, REFUSAL, UNIQUE_COLUMNS, UNIQUE_KEY, UNITS, UNITS_COLUMNS, VOUCHER},
};

/// A table, column, key or view of the database that is not as Tidegate needs it, and that a migration does not change
/// by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum SchemaProblem {
    /// The table is a view, or has an engine without transactions.
    #[error("{table} is a {found}, but it must be an InnoDB table")]
    Engine {
        /// The name of the table.
        table: &'static str,
        /// The kind or the engine of the table.
        found: String,
    },
    /// The table has another primary key than the tutorial's.
    #[error("{table} has the primary key ({found}), but the key must be ({expected})")]
    PrimaryKey {
        /// The name of the table.
        table: &'static str,
        /// The columns of the key.
        found: String,
        /// The column that the key must have.
        expected: &'static str,
    },
    /// A column of the tutorial's table is missing.
    #[error("the column {table}.{column} is missing")]
    MissingColumn {
        /// The name of the table.
        table: &'static str,
        /// The name of the column.
        column: &'static str,
    },
    /// A column has the name of ours, but another type.
    #[error("{table}.{column} is `{found}`, but must be `{expected}`: rename or change the column")]
    ColumnType {
        /// The name of the table.
        table: &'static str,
        /// The name of the column.
        column: &'static str,
        /// The definition of the column.
        found: String,
        /// The definition that the column must have.
        expected: &'static str,
    },
    /// Every insert must fill this column, and the worker's does not.
    #[error(
        "{table}.{column} is NOT NULL without a default, so no order can be written: give the column a default"
    )]
    Unfilled {
        /// The name of the table.
        table: &'static str,
        /// The name of the column.
        column: String,
    },
    /// A key has the name of ours, but other columns.
    #[error(
        "{table} has a key {UNIQUE_KEY} over ({found}), not a unique key over (voucher_id, user_id, slot): rename the key"
    )]
    KeyTaken {
        /// The name of the table.
        table: &'static str,
        /// The columns of the key.
        found: String,
    },
    /// Another table or view has the name of our view.
    #[error("{view} is {found}, but it must be the view of Tidegate's migration: rename or drop {view}")]
    ViewTaken {
        /// The name of the view.
        view: &'static str,
        /// The thing that has the name.
        found: String,
    },
    /// Live orders that break the unique key.
    #[error("{0}")]
    Duplicates(DuplicateOrders),
}

pub(super) fn done_before(applied: &[MigrationStep]) -> String {
    match applied {
        [] => "nothing was changed".to_owned(),
        [_] => "the first step was made and is kept".to_owned(),
        steps => format!("the first {} steps were made and are kept", steps.len()),
    }
}

/// Formats problems, one in each line.
pub(super) fn list(problems: &[SchemaProblem]) -> String {
    problems.iter().map(|problem| format!("  - {problem}")).collect::<Vec<_>>().join("\n")
}

const IDS: &[&str] = &["bigint"];
const WORDS: &[&str] = &["varchar"];
const BYTES: &[&str] = &["varbinary"];

/// A column of the tutorial's tables that the worker or a command names.
struct Needed {
    table: &'static str,
    name: &'static str,
    types: &'static [&'static str],
    expected: &'static str,
}

const fn needed(
    table: &'static str,
    name: &'static str,
    types: &'static [&'static str],
    expected: &'static str,
) -> Needed {
    Needed { table, name, types, expected }
}

const NEEDED: &[Needed] = &[
    needed(VOUCHER, "voucher_id", IDS, "BIGINT"),
    needed(VOUCHER, "stock", NUMBERS, "INT"),
    needed(VOUCHER, "begin_time", TIMES, "TIMESTAMP"),
    needed(VOUCHER, "end_time", TIMES, "TIMESTAMP"),
    needed(ORDER, "id", IDS, "BIGINT"),
    needed(ORDER, "user_id", IDS, "BIGINT"),
    needed(ORDER, "voucher_id", IDS, "BIGINT"),
    needed(ORDER, "status", NUMBERS, "TINYINT UNSIGNED"),
    needed(ORDER, "update_time", TIMES, "TIMESTAMP"),
    needed(REFUSAL, "order_id", IDS, "BIGINT"),
    needed(REFUSAL, "user_id", IDS, "BIGINT"),
    needed(REFUSAL, "voucher_id", IDS, "BIGINT"),
    needed(REFUSAL, "quantity", NUMBERS, "INT UNSIGNED"),
    needed(REFUSAL, "reason", WORDS, "VARCHAR(32)"),
    needed(REFUSAL, "entry_id", WORDS, "VARCHAR(41)"),
    needed(LIMIT_USE, "order_id", IDS, "BIGINT"),
    needed(LIMIT_USE, "voucher_id", IDS, "BIGINT"),
    needed(LIMIT_USE, "uses", BYTES, "VARBINARY(1024)"),
    needed(PROBE, "id", NUMBERS, "TINYINT"),
    needed(PROBE, "at", TIMES, "TIMESTAMP(3)"),
];

const PRIMARY_KEYS: [(&str, &str); 5] =
    [(VOUCHER, "voucher_id"), (ORDER, "id"), (REFUSAL, "order_id"), (LIMIT_USE, "order_id"), (PROBE, "id")];

/// The columns that the worker's insert fills.
const FILLED: [&str; 6] = ["id", "user_id", "voucher_id", "quantity", "slot", "entry_id"];

/// Finds everything in the existing tables, columns and keys that does not fit.
pub(super) fn of_structure(found: &Found) -> Vec<SchemaProblem> {
    let mut problems = Vec::new();
    for (name, primary_key) in PRIMARY_KEYS {
        if let Some(table) = found.table(name) {
            problems.extend(of_engine(name, table));
            problems.extend(of_primary_key(name, table, primary_key));
            problems.extend(
                NEEDED.iter().filter(|needed| needed.table == name).filter_map(|n| of_needed(n, table)),
            );
        }
    }
    problems.extend(added_columns().filter_map(|added| of_added(added, found)));
    problems.extend(of_unfilled(found));
    problems.extend(of_key_name(found));
    problems.extend(of_view(found));
    problems
}

fn of_engine(name: &'static str, table: &Table) -> Option<SchemaProblem> {
    if table.engine.eq_ignore_ascii_case("InnoDB") {
        return None;
    }
    let found =
        if table.engine.is_empty() { table.kind.to_lowercase() } else { format!("{} table", table.engine) };
    Some(SchemaProblem::Engine { table: name, found })
}

fn of_primary_key(name: &'static str, table: &Table, expected: &'static str) -> Option<SchemaProblem> {
    let columns = table.keys.get("PRIMARY").map_or(&[][..], |key| &key.columns);
    let found = columns.join(", ");
    (found != expected).then_some(SchemaProblem::PrimaryKey { table: name, found, expected })
}

fn of_needed(needed: &Needed, table: &Table) -> Option<SchemaProblem> {
    let Needed { table: name, name: column, types, expected } = *needed;
    let Some(found) = table.columns.get(column) else {
        return Some(SchemaProblem::MissingColumn { table: name, column });
    };
    let fits = types.contains(&found.data_type.as_str());
    (!fits).then(|| SchemaProblem::ColumnType {
        table: name,
        column,
        found: found.column_type.clone(),
        expected,
    })
}

fn of_added(added: &AddedColumn, found: &Found) -> Option<SchemaProblem> {
    let column = found.column(added.table, added.name)?;
    let fits = column.data_type == added.data_type
        && column.column_type.contains("unsigned") == (added.unsigned == Sign::Unsigned)
        && column.nullable == (added.null == Null::Allowed)
        && column.default.as_deref() == added.default
        && column.length >= added.min_length
        && !column.is_generated();
    (!fits).then(|| SchemaProblem::ColumnType {
        table: added.table,
        column: added.name,
        found: definition(column),
        expected: added.sql_type,
    })
}

fn of_unfilled(found: &Found) -> Vec<SchemaProblem> {
    let must_fill = |column: &Column| {
        !column.nullable
            && column.default.is_none()
            && !column.extra.contains("auto_increment")
            && !column.is_generated()
    };
    let is_filled = |name: &str| FILLED.contains(&name) || gives_default(name, found);
    let columns = found.table(ORDER).into_iter().flat_map(|table| &table.columns);
    let columns = columns.filter(|(name, column)| must_fill(column) && !is_filled(name));
    columns.map(|(name, _)| SchemaProblem::Unfilled { table: ORDER, column: name.clone() }).collect()
}

fn of_key_name(found: &Found) -> Option<SchemaProblem> {
    let key = found.table(ORDER)?.keys.get(UNIQUE_KEY)?;
    let fits = key.unique && key.columns == UNIQUE_COLUMNS;
    (!fits).then(|| SchemaProblem::KeyTaken { table: ORDER, found: key.columns.join(", ") })
}

fn of_view(found: &Found) -> Option<SchemaProblem> {
    let view = found.table(UNITS)?;
    let taken = |found: String| Some(SchemaProblem::ViewTaken { view: UNITS, found });
    if view.kind != "VIEW" {
        return taken(format!("a {}", view.kind.to_lowercase()));
    }
    let lacks = UNITS_COLUMNS.iter().find(|column| !view.columns.contains_key(**column))?;
    taken(format!("a view without the column {lacks}"))
}

fn definition(column: &Column) -> String {
    let null = if column.nullable { "null" } else { "not null" };
    let default = column.default.as_ref().map(|default| format!(" default {default}")).unwrap_or_default();
    format!("{} {null}{default}", column.column_type)
}
