//! What to type to complete a change of a stock that is open, or to make it.

use tidegate_operations::vouchers::restock::RestockRequest;
use tidegate_orders::{
    VoucherId,
    gate::{RegionMove, StockChange},
};

use crate::command_line::CommandLine;

/// What completes a change of this voucher.
pub fn complete(voucher: VoucherId, open: &StockChange) -> CommandLine {
    let (units, initial_stock) = (open.units, Some(open.before));
    match &open.moved {
        // Both sides know it; the initial stock that is asked for is that of the side that gives.
        Some(moved) => transfer(moved, units.abs(), initial_stock.filter(|_| units < 0)),
        None => restock(&RestockRequest { voucher, units, initial_stock }),
    }
}

/// `tidegate voucher add` or `tidegate voucher take`.
pub fn restock(request: &RestockRequest) -> CommandLine {
    let name = if request.units > 0 { "voucher add" } else { "voucher take" };
    let command = CommandLine::new(name).flag("--voucher", Some(request.voucher));
    command.flag("--units", Some(request.units.abs())).flag("--initial-stock", request.initial_stock)
}

/// `tidegate campaign move`.
pub fn transfer(moved: &RegionMove, units: i64, initial_stock: Option<i64>) -> CommandLine {
    let command = CommandLine::new("campaign move").flag("--campaign", Some(moved.campaign));
    let command = command.flag("--from", Some(&moved.from)).flag("--to", Some(&moved.to));
    command.flag("--units", Some(units)).flag("--initial-stock", initial_stock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_type_is_made_from_the_request_or_the_note() {
        let voucher = VoucherId::try_from(7).unwrap();
        for (units, initial_stock, line) in [
            (50, Some(150), "tidegate voucher add --voucher 7 --units 50 --initial-stock 150"),
            (-50, None, "tidegate voucher take --voucher 7 --units 50"),
        ] {
            let request = RestockRequest { voucher, units, initial_stock };
            assert_eq!(restock(&request).to_string(), line);
        }
        let moved =
            RegionMove { campaign: 5.try_into().unwrap(), from: "north".to_owned(), to: "south".to_owned() };
        let change = |units| {
            let change = StockChange::new(units, 60, "alice".to_owned());
            StockChange { moved: Some(Box::new(moved.clone())), ..change }
        };
        let line = "tidegate campaign move --campaign 5 --from north --to south --units 20";
        assert_eq!(complete(voucher, &change(-20)).to_string(), format!("{line} --initial-stock 60"));
        assert_eq!(complete(voucher, &change(20)).to_string(), line);
    }
}
