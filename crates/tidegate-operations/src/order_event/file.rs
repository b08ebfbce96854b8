//! A file of orders: one id a line; or an id, a comma and a `ref`; or, for refunds, these two and the payment that is
//! refunded.

use std::{collections::HashMap, fs, path::Path};

use anyhow::Context;
use tidegate_orders::event::EventText;

use super::NamedOrder;
use crate::change::InvalidInput;

/// Reads all lines, but returns only those from `from_line` on. Empty lines are skipped.
///
/// # Errors
/// If the file cannot be read, a line is malformed, or no line is left.
pub(super) fn read(path: &Path, from_line: u64) -> anyhow::Result<Vec<NamedOrder>> {
    let shown = path.display();
    let text = fs::read(path).with_context(|| format!("Failed to read {shown}"))?;
    let text =
        String::from_utf8(text).map_err(|_| InvalidInput(format!("{shown} is not a text file in UTF-8")))?;
    let orders = parse(&text, from_line).map_err(|wrong| InvalidInput(format!("{shown}, {wrong}")))?;
    if orders.is_empty() {
        return Err(InvalidInput(format!("{shown} has no orders from line {from_line} on")).into());
    }
    Ok(orders)
}

fn parse(text: &str, from_line: u64) -> Result<Vec<NamedOrder>, String> {
    let mut orders = Vec::new();
    let mut seen = HashMap::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.trim();
        if text.is_empty() {
            continue;
        }
        let named = parse_line(line, text).map_err(|wrong| format!("line {line}: {wrong}"))?;
        let again = seen.insert((named.order, named.reference.clone(), named.payment.clone()), line);
        if let Some(first) = again {
            return Err(format!("line {line}: this repeats line {first}"));
        }
        if line >= from_line {
            orders.push(named);
        }
    }
    Ok(orders)
}

fn parse_line(line: u64, text: &str) -> Result<NamedOrder, String> {
    let mut parts = text.splitn(3, ',').map(str::trim);
    let id = parts.next().unwrap_or_default();
    let order = id
        .parse()
        .map_err(|_| format!("{id:?} is not an order id; write ORDER or ORDER,REF in each line"))?;
    let (reference, payment) = (parts.next(), parts.next());
    // A refund may have no id of its own.
    let reference = reference.filter(|text| payment.is_none() || !text.is_empty());
    let reference = parsed("the ref", reference)?;
    Ok(NamedOrder { line: Some(line), order, reference, payment: parsed("the payment", payment)? })
}

fn parsed(name: &str, text: Option<&str>) -> Result<Option<EventText>, String> {
    text.map(|text| text.parse().map_err(|wrong| format!("{name} {wrong}"))).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(text: &str, from_line: u64) -> Result<Vec<(u64, i64, Option<String>)>, String> {
        let orders = parse(text, from_line)?.into_iter();
        let plain =
            |it: NamedOrder| (it.line.unwrap(), it.order.get(), it.reference.map(|text| text.to_string()));
        Ok(orders.map(plain).collect())
    }

    #[test]
    fn a_line_is_an_order_with_or_without_a_ref() {
        let text = "5\r\n\n 6 , pay-6\n5,again\n";
        let expected = vec![(1, 5, None), (3, 6, Some("pay-6".to_owned())), (4, 5, Some("again".to_owned()))];
        assert_eq!(orders(text, 1).unwrap(), expected);
        assert_eq!(orders(text, 4).unwrap(), expected[2..]);
        assert_eq!(orders("\n", 1).unwrap(), []);
    }

    #[test]
    fn a_line_of_a_refund_names_the_payment_with_or_without_a_ref_of_its_own() {
        let orders = parse("5,,pay-5\n5, r-5 , pay-6\n", 1).unwrap();
        let text = |text: &Option<EventText>| text.as_ref().map(ToString::to_string);
        let texts: Vec<_> =
            orders.iter().map(|named| (text(&named.reference), text(&named.payment))).collect();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(texts, [(None, some("pay-5")), (some("r-5"), some("pay-6"))]);
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said_with_its_number_even_before_the_first_that_counts() {
        for (text, wrong) in [
            ("5\nx\n6", "line 2: \"x\" is not an order id"),
            ("0", "line 1: \"0\" is not an order id"),
            ("5,", "line 1: the ref is empty"),
            ("5,r,", "line 1: the payment is empty"),
            ("5,a\n5,b\n5,a", "line 3: this repeats line 1"),
        ] {
            let error = orders(text, 3).unwrap_err();
            assert!(error.starts_with(wrong), "{error}");
        }
    }
}
