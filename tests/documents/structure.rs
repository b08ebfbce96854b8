//! The structure of the product in numbers, with the places where it is worst. `just count` prints them.
//!
//! Two numbers are left out, because a person has to count them:
//! - The Rust files that one plain order passes. Count them by a walk: the distinct files in the backtraces
//!   at the script call, the read, the packet and the acknowledgement, and the files that these read.
//! - The engines that compare both stores. Only their purpose tells them from other modules.

pub mod product;
mod source_file;
mod tests;

use std::fmt::Write as _;

use self::product::{Product, Ranked};
use crate::tree::Tree;

/// The name of a number, the number that is wanted at most, the bound that it must not exceed, and the way to count.
type Count = (&'static str, usize, usize, fn(&Product) -> usize);

/// A commit that lowers a number lowers its bound, too. So no later commit can raise the number unnoticed.
const COUNTS: [Count; 18] = [
    ("lines of code", 50_000, 72_200, |it| it.code_lines()),
    ("lines of tidegate-operations", 16_500, 21_800, |it| it.lines_below("crates/tidegate-operations/src/")),
    ("lines of tidegate/src/commands", 7_500, 10_900, |it| it.lines_below("crates/tidegate/src/commands/")),
    ("other folders with SQL on the order table", 1, 1, |it| it.folders_with_order_sql()),
    ("public methods of a type", 15, 15, |it| highest(&it.public_methods())),
    ("fields of a struct", 12, 12, |it| highest(&it.fields())),
    ("fields of a struct that are not pub", 12, 12, |it| highest(&it.private_fields())),
    ("functions above 60 lines", 3, 3, |it| it.long_functions()),
    ("lines of a function", 80, 80, |it| highest(&it.functions())),
    ("files above 350 lines", 15, 15, |it| it.long_files().len()),
    ("names of several public types", 5, 1, |it| it.ambiguous_names().len()),
    ("summaries of at most four words", 80, 22, |it| it.short_summaries().len()),
    ("Lua sources with the time idiom", 1, 1, |it| it.scripts_with("'00000' .. time[2], -6, -4)")),
    ("Lua sources with the bounds of an id", 1, 1, |it| it.scripts_with("9223372036854775807")),
    ("Lua sources with the note of a release", 1, 1, |it| it.scripts_with("'{\"action\":\"release\",")),
    ("Lua sources with the text of IDTAKEN", 1, 1, |it| it.scripts_with("IDTAKEN the order id belongs to")),
    ("commands", 50, 53, |it| it.commands()),
    ("settings", 70, 74, |it| it.settings()),
];

#[test]
fn no_number_of_the_structure_exceeds_its_bound() {
    let product = Product::read(&Tree::read_all());
    let numbers = numbers(&product);
    println!("\n{}\n{}", table(&numbers), worst_places(&product));
    let exceeded = exceeded(&numbers);
    assert!(
        exceeded.is_empty(),
        "\n{}\nMake this smaller. If the product has to grow, raise the bound, and say why in the commit.\n",
        exceeded.join("\n")
    );
}

/// All numbers, in the order of `COUNTS`.
fn numbers(product: &Product) -> [usize; COUNTS.len()] {
    COUNTS.map(|(_, _, _, count)| count(product))
}

fn table(numbers: &[usize]) -> String {
    let mut table = format!("{:<42} {:>7} {:>7} {:>7}\n", "number", "now", "wanted", "bound");
    for ((name, wanted, bound, _), now) in COUNTS.iter().zip(numbers) {
        writeln!(table, "{name:<42} {now:>7} {wanted:>7} {bound:>7}").expect("a string has room");
    }
    table
}

fn exceeded(numbers: &[usize]) -> Vec<String> {
    let above = COUNTS.iter().zip(numbers).filter(|((_, _, bound, _), now)| *now > bound);
    above.map(|((name, _, bound, _), now)| format!("{name}: {now}, above the bound of {bound}")).collect()
}

fn worst_places(product: &Product) -> String {
    let mut text = String::new();
    for (title, places, shown) in [
        ("The longest functions, by lines", product.functions(), 10),
        ("Files above 350 lines", product.long_files(), usize::MAX),
        ("Names of several public types, by types", product.ambiguous_names(), usize::MAX),
        ("Summaries of public items, by words", product.short_summaries(), 10),
        ("The largest types, by public methods", product.public_methods(), 10),
        ("The largest structs, by fields", product.fields(), 10),
        ("The largest structs, by fields that are not pub", product.private_fields(), 10),
        ("Files with SQL on the order table, by statements", product.order_sql(), usize::MAX),
    ] {
        text.extend([title, ":\n"]);
        for (number, place) in places.iter().take(shown) {
            writeln!(text, "{number:>7}  {place}").expect("a string has room");
        }
    }
    text
}

fn highest(of: &[Ranked]) -> usize {
    of.first().map_or(0, |(number, _)| *number)
}
