//! Tests of the counting, on small texts.

use super::{exceeded, highest, numbers, product::Product, source_file::SourceFile, worst_places};

/// Code and tests in all the forms that the product has.
const SMALL: &str = r##"//! A file with "SELECT 1".

/* fn none() {} */
#[derive(Debug)] // as a command
pub struct Lane {
    pub name: &'static str,
    /// fn neither() {}
    batches: u64, /* not
    code */
    pub(crate) settings: u64,
}

impl Lane {
    /// Reads.
    pub async fn read(&self) -> &'static str {
        "redis://host // no comment

        /* neither */ }"
    }
    #[cfg(test)]
    pub fn forget(&self) {}
    /// Only for tests.
    #[must_use]
    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        true
    }
    fn outer(&self) { fn inner() {} }
}

mod inner {
    pub(crate) struct Lane(pub u8);
    #[cfg(test)]
    mod tests {
        #[cfg(test)]
        mod more { pub struct Lane; }
        #[test]
        fn passes() { assert!("}" != "{") }
    }
    #[cfg(all(test, feature = "otel"))]
    use std::{fmt, io};
    pub(super) trait Step { fn next(&self); fn is_done(&self) -> bool { format!("{}", r#"a"b"#).is_empty() } }
}

#[cfg(test)]
mod model;

impl<'a> Iterator for Lane<'a> { fn next(&mut self) {} }
impl<'a> Lane<'a> { pub const fn id(&self) -> char { '"' } pub(crate) fn more() {} }

#[derive(Debug, Subcommand)]
enum Command {
    /// Read
    Read(Args),
    #[command(subcommand)]
    Dead(DeadCommand),
    Trim,
}
"##;

#[test]
fn tests_and_comments_are_left_out_of_a_file() {
    let file = SourceFile::parse(SMALL);
    assert_eq!(SMALL.lines().count(), 58);
    assert_eq!(file.lines, 40, "18 are of tests");
    assert_eq!(file.code_lines, 26, "14 are comments or blank");
    assert_eq!(file.strings, ["redis://host // no comment\n\n        /* neither */ }", "{}", "a\"b"]);
    assert_eq!(file.test_modules, ["model"]);
    assert_eq!(file.commands, 2);
    assert_eq!(file.short_summaries, ["Reads."]);
}

#[test]
fn the_first_sentence_of_a_comment_is_its_summary() {
    let of = |comment: &str| SourceFile::parse(&format!("{comment}\npub struct Lane;")).short_summaries;
    assert_eq!(of("/// One of\n/// them. The others are not shown."), ["One of them."]);
    assert_eq!(of("/// A part of a partition.\n///\n/// More."), Vec::<String>::new());
    assert_eq!(of("/// A part\n///\n/// of a partition."), ["A part"]);
}

#[test]
fn functions_and_types_of_a_file_are_counted() {
    let file = SourceFile::parse(SMALL);
    let functions: Vec<(&str, usize)> =
        file.functions.iter().map(|(name, lines)| (name.as_str(), *lines)).collect();
    let short = ["outer", "inner", "is_done", "next", "id", "more"].map(|name| (name, 1));
    assert_eq!(functions, [&[("read", 5)][..], &short].concat());
    let types = file.types.iter().map(|it| (it.name.as_str(), it.is_public, it.fields, it.private_fields));
    assert_eq!(
        types.collect::<Vec<_>>(),
        [("Lane", true, 3, 2), ("Lane", true, 1, 0), ("Step", false, 0, 0), ("Command", false, 0, 0)]
    );
    assert_eq!(file.public_methods, [("Lane".to_owned(), 1), ("Lane".to_owned(), 1)]);
}

#[test]
fn blocks_of_a_type_are_added_up_in_its_crate_only() {
    let product = Product::of(&[
        ("crates/a/src/lane.rs", "pub struct Lane; impl Lane { pub fn a() {} pub fn b() {} }"),
        ("crates/a/src/lane/read.rs", "impl super::Lane { pub fn c() {} }"),
        ("crates/a/src/top/lane.rs", "pub(crate) type Lane = u8; impl Lane { pub fn d() {} }"),
        ("crates/b/src/lib.rs", "struct Lane; impl Lane { pub fn e() {} }"),
        ("crates/c/src/lib.rs", "lane!(); impl Lane { pub fn f() {} }"),
    ]);
    let of_type = |number, file: &str| (number, format!("Lane (crates/{file})"));
    assert_eq!(
        product.public_methods(),
        [
            of_type(3, "a/src/lane.rs"),
            of_type(1, "a/src/top/lane.rs"),
            of_type(1, "b/src/lib.rs"),
            of_type(1, "c/src/lib.rs"),
        ]
    );
    let names = [(2, "Lane (crates/a/src/lane.rs, crates/a/src/top/lane.rs)".to_owned())];
    assert_eq!(product.ambiguous_names(), names, "the type of b is private");
}

#[test]
fn modules_for_tests_are_left_out_with_all_their_files() {
    let product = Product::of(&[
        ("crates/a/src/lib.rs", "#[cfg(test)] mod model; mod lane;"),
        ("crates/a/src/model.rs", "fn a() {}"),
        ("crates/a/src/model/step.rs", "fn b() {}"),
        ("crates/a/src/lane.rs", "#[cfg(test)] mod model; mod models;"),
        ("crates/a/src/lane/model.rs", "fn c() {}"),
        ("crates/a/src/lane/models.rs", "fn d() {}"),
    ]);
    assert_eq!(product.functions(), [(1, "d (crates/a/src/lane/models.rs)".to_owned())]);
}

#[test]
fn sql_on_the_order_table_is_found_outside_ledger_and_schema() {
    let statement = r#"fn f() { query("SELECT 1 FROM \
        tb_voucher_order") }"#;
    let by_variable =
        r#"fn f() { for table in ["tb_voucher_order"] { query(format!("SELECT 1 FROM {table}")) } }"#;
    let remark = r#"/// FROM tb_voucher_order
        fn f() { panic!("tb_voucher_order lacks a key") }"#;
    let folder = |name: &str| format!("crates/tidegate-orders/src/{name}");
    let names = ["ledger/sql.rs", "schema.rs", "one/a.rs", "one/b.rs", "two/c.rs", "three/d.rs"].map(folder);
    let texts = [statement, statement, statement, statement, by_variable, remark];
    let files: Vec<(&str, &str)> = names.iter().map(String::as_str).zip(texts).collect();
    let found = Product::of(&files).order_sql();
    assert_eq!(found.iter().map(|(_, path)| path).collect::<Vec<_>>(), [&names[2], &names[3], &names[4]]);
    assert_eq!(Product::of(&files).folders_with_order_sql(), 2);
}

#[test]
fn a_number_above_its_bound_is_named() {
    let text = |lines: usize| format!("fn long() {{{}}}", "\n".repeat(lines - 1));
    let product = |lines| Product::of(&[("crates/a/src/lib.rs", &text(lines))]);
    assert_eq!(highest(&product(60).functions()), 60);
    assert_eq!((product(60).long_functions(), product(61).long_functions()), (0, 1));
    assert_eq!((product(350).long_files().len(), product(351).long_files().len()), (0, 1));
    assert!(exceeded(&numbers(&product(60))).is_empty());
    let exceeded = exceeded(&numbers(&product(1000)));
    assert!(exceeded[0].starts_with("lines of a function: 1000, above the bound of "), "{exceeded:?}");
    assert_eq!(exceeded.len(), 1, "{exceeded:?}");
    assert!(worst_places(&product(1000)).contains("   1000  long (crates/a/src/lib.rs)"));
}
