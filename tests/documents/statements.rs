//! Tests of SQL statements: on tables that several partitions share, a statement limits its rows, and all transactions
//! begin in the same way.
//!
//! The tests parse no SQL: a statement is text that names such a table, and its function has to contain text that
//! limits it.

use crate::tree::{Tree, has_word, is_of_product};

/// Tables with the rows of all partitions that share a MySQL.
const TABLES: [&str; 12] = [
    "{orders}",
    "{vouchers}",
    "{refusals}",
    "{events}",
    "{limit_uses}",
    "tb_seckill_voucher",
    "tb_voucher_order",
    "tidegate_event",
    "tidegate_limit_use",
    "tidegate_refusal",
    "tidegate_unannounced_result",
    "tidegate_unpaid_order",
];

/// The tables with the facts of orders, which only the folders of [`OF_FACTS`] read and change.
const FACTS: [&str; 5] =
    ["tb_seckill_voucher", "tb_voucher_order", "tidegate_event", "tidegate_limit_use", "tidegate_refusal"];
const OF_FACTS: [&str; 3] =
    ["tidegate-orders/src/ledger", "tidegate-orders/src/schema", "tidegate-orders/src/records"];

/// The names of these tables in statements of the records.
const NAMED: [&str; 5] =
    ["tables.orders", "tables.vouchers", "tables.refusals", "tables.events", "tables.limit_uses"];

/// Texts that limit a statement to the rows of a partition, to named vouchers or orders, or to no rows.
const LIMITS: [&str; 11] = [
    "condition(",
    "{own}",
    "of_partition(",
    "of_voucher(",
    "id = ?",
    "id = {",
    "id = n.",
    "id IN (",
    "LIMIT 0",
    "WHERE FALSE",
    "SET v.stock = v.stock + n.units",
];

/// Functions whose statements are limited in another way: file, function, reason.
const LIMITED_OTHERWISE: [(&str, &str, &str); 9] = [
    ("tidegate-orders/src/records/manual_sql.rs", "insert_voucher", "it is about one voucher"),
    ("tidegate-orders/src/records/owners.rs", "outside", "it looks for rows of other partitions"),
    ("tidegate-orders/src/schema/found.rs", "duplicates", "a migration is about the whole database"),
    ("tidegate-orders/src/records/order_counts.rs", "count", "its callers name a voucher"),
    ("tidegate-orders/src/records/orders.rs", "order_rows", "its callers say which rows they mean"),
    ("tidegate-orders/src/records/orders.rs", "columns", "it asks for the columns of the table"),
    ("tidegate-orders/src/records/refusals.rs", "select_refusals", "its callers say which rows they mean"),
    (
        "tidegate-orders/src/records/orders.rs",
        "vouchers",
        "it asks the partition of each voucher whether it owns it",
    ),
    ("tidegate-orders/src/records/events.rs", "sums_between", "the range is that of a page of own rows"),
];

/// The sources of the program, with paths that begin after `crates/`, without their tests.
fn sources(tree: &Tree) -> Vec<(String, String)> {
    let without_tests = |text: String| text.split("#[cfg(test)]\nmod ").next().unwrap_or_default().to_owned();
    let paths = tree.paths_of(".rs").filter(|path| is_of_product(path));
    paths
        .filter_map(|path| Some((path.strip_prefix("crates/")?.to_owned(), without_tests(tree.read(path)))))
        .collect()
}

/// The name of the function that begins on a line.
fn function(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip_while(|word| {
        word.starts_with("pub") || ["async", "const", "in", "super)", "crate)"].contains(word)
    });
    let name = words.next().filter(|word| *word == "fn").and_then(|_| words.next())?;
    name.split(['(', '<']).next()
}

/// The parts of a file: its head, then each function with the text after it.
fn functions(text: &str) -> Vec<(&str, String)> {
    let mut pieces = vec![("", String::new())];
    for line in text.lines() {
        if let Some(name) = function(line) {
            pieces.push((name, String::new()));
        }
        let piece = &mut pieces.last_mut().expect("the head").1;
        match line.trim_end().strip_suffix('\\') {
            // The line is part of a string that continues on the next line.
            Some(line) => piece.push_str(line.trim_start()),
            None => piece.extend([line.trim_start(), "\n"]),
        }
    }
    pieces
}

/// Whether the text reads, changes or deletes rows of such a table.
fn is_statement(text: &str) -> bool {
    NAMED
        .iter()
        .any(|name| text.contains(&format!(".{name}")) || text.contains(&name.replace("tables", "DEFAULT")))
        || names_one_of(&TABLES, &["FROM", "JOIN", "UPDATE"], text)
}

/// Whether the text reads, changes or adds rows of a table with the facts of orders.
fn is_of_facts(text: &str) -> bool {
    names_one_of(&FACTS, &["FROM", "JOIN", "UPDATE", "INTO"], text)
}

fn names_one_of(tables: &[&str], keywords: &[&str], text: &str) -> bool {
    tables.iter().any(|table| follows_keyword(text, table, keywords))
}

/// Whether `table` comes directly after one of these SQL keywords.
pub fn follows_keyword(text: &str, table: &str, keywords: &[&str]) -> bool {
    text.match_indices(table).any(|(at, _)| {
        let before = text[..at].trim_end();
        // A placeholder may stand between the keyword and the table: `FROM {} tidegate_event`.
        let before = match before.ends_with('}') {
            true => before.rfind('{').map_or(before, |brace| before[..brace].trim_end()),
            false => before,
        };
        keywords.iter().any(|keyword| before.ends_with(keyword))
    })
}

fn is_limited(text: &str) -> bool {
    LIMITS.iter().any(|limit| text.contains(limit))
}

/// The constants of a file's head that hold the beginning of a statement.
fn beginnings(head: &str) -> Vec<&str> {
    let constants = head.split("const ").skip(1).filter_map(|constant| constant.split_once(": "));
    let open = constants.filter(|(_, text)| {
        let text = text.split(";\n").next().unwrap_or_default();
        is_statement(text) && !is_limited(text)
    });
    open.map(|(name, _)| name).collect()
}

#[test]
fn every_statement_over_rows_of_several_partitions_says_which_ones_it_means() {
    let tree = Tree::read_all();
    let (mut found, mut seen) = (Vec::new(), Vec::new());
    for (path, text) in sources(&tree) {
        let pieces = functions(&text);
        let (head, functions) = pieces.split_first().expect("the head");
        let beginnings = beginnings(&head.1);
        for (name, text) in functions {
            let is_statement =
                is_statement(text) || beginnings.iter().any(|beginning| has_word(text, beginning));
            if !is_statement {
                continue;
            }
            seen.push((path.clone(), (*name).to_owned()));
            let is_known =
                LIMITED_OTHERWISE.iter().any(|(file, function, _)| (*file, *function) == (&*path, *name));
            if !is_known && !is_limited(text) {
                found.push(format!("{path}: {name}"));
            }
        }
    }
    assert!(
        found.is_empty(),
        "these statements read rows of all partitions: add `Partition::condition`\n{}",
        found.join("\n")
    );
    assert!(seen.len() > 30, "it finds the statements: {}", seen.len());
    for (path, name, _) in LIMITED_OTHERWISE {
        let is_there = seen.iter().any(|(file, function)| (file.as_str(), function.as_str()) == (path, name));
        assert!(is_there, "{path} has no such function any more: {name}");
    }
}

#[test]
fn the_facts_of_orders_are_read_in_one_folder_beside_the_ledger_and_the_schema() {
    let mut found = Vec::new();
    for (path, text) in sources(&Tree::read_all()) {
        if !OF_FACTS.iter().any(|folder| path.starts_with(folder)) {
            let of_facts = functions(&text).into_iter().filter(|(_, text)| is_of_facts(text));
            found.extend(of_facts.map(|(name, _)| format!("{path}: {name}")));
        }
    }
    assert!(found.is_empty(), "put these statements into tidegate-orders/src/records\n{}", found.join("\n"));
}

#[test]
fn a_statement_that_forgets_the_partition_is_found() {
    let piece = |condition: &str| {
        format!(
            "async fn old() {{\nlet sql = \"SELECT 1 FROM tidegate_refusal \\\n    WHERE order_id > ?{condition}\";\n}}\n"
        )
    };
    for (condition, is_found) in [("", true), ("{own}", false), (" AND voucher_id = ?", false)] {
        let text = piece(condition);
        let pieces = functions(&text);
        assert_eq!(pieces[1].0, "old");
        assert_eq!(is_statement(&pieces[1].1) && !is_limited(&pieces[1].1), is_found, "{condition}");
    }
}

/// `Session::begin` gives the reason.
#[test]
fn no_transaction_begins_in_a_way_that_a_timeout_leaves_open() {
    let tree = Tree::read_all();
    let begins = |text: &str| {
        ["pool.begin()", "mysql.begin()", "connection.begin()"].iter().any(|it| text.contains(it))
    };
    let found: Vec<String> =
        sources(&tree).into_iter().filter(|(_, text)| begins(text)).map(|(path, _)| path).collect();
    assert!(found.is_empty(), "begin a transaction by Session::begin: {found:?}");
}
