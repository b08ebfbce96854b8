//! What to type to complete a change of a stock that is open, or to make it.

use tidegate_operations::{campaigns::transfer::TransferRequest, vouchers::restock::RestockRequest};
use tidegate_orders::{VoucherId, gate::StockChange};

use crate::command_line::CommandLine;

/// What completes a change of this voucher.
pub fn complete(voucher: VoucherId, open: &StockChange) -> CommandLine {
    let (units, initial_stock) = (open.units, Some(open.before));
    match &open.moved {
        // The initial stock that is asked for is that of the side that gives, which both sides' notes have.
        Some(moved) => transfer(&TransferRequest {
            campaign: moved.campaign,
            from: moved.from.clone(),
            to: moved.to.clone(),
            units: units.abs(),
            initial_stock: Some(moved.giver_before),
        }),
        None => restock(&RestockRequest { voucher, units, initial_stock }),
    }
}

/// `tidegate voucher add` or `tidegate voucher take`.
pub fn restock(request: &RestockRequest) -> CommandLine {
    let name = if request.units > 0 { "voucher add" } else { "voucher take" };
    let command = CommandLine::new(name).flag("--voucher", Some(request.voucher));
    command.flag("--units", Some(request.units.abs())).flag("--initial-stock", request.initial_stock)
}

/// `tidegate voucher transfer`.
pub fn transfer(request: &TransferRequest) -> CommandLine {
    let command = CommandLine::new("voucher transfer").flag("--campaign", Some(request.campaign));
    let command = command.flag("--from", Some(&request.from)).flag("--to", Some(&request.to));
    command.flag("--units", Some(request.units)).flag("--initial-stock", request.initial_stock)
}

#[cfg(test)]
mod tests {
    use tidegate_orders::gate::RegionMove;

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
        let (from, to) = ("north".to_owned(), "south".to_owned());
        let campaign = 5.try_into().unwrap();
        let moved = RegionMove { campaign, from, to, giver_before: 60, taker_before: 15 };
        let change = |units| {
            let change = StockChange::new(units, 60, "alice".to_owned());
            StockChange { moved: Some(Box::new(moved.clone())), ..change }
        };
        for units in [-20, 20] {
            let line = "tidegate voucher transfer --campaign 5 --from north --to south --units 20 --initial-stock 60";
            assert_eq!(complete(voucher, &change(units)).to_string(), line);
        }
    }
}
