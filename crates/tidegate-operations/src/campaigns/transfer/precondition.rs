//! Whether a move of units from one region to another may begin, or was begun before. Pure.

use serde::{Serialize, Serializer};
use tidegate_orders::{
    VoucherId,
    gate::{ChangeState, RegionMove, StockChange, Transfer},
    vouchers::VoucherRow,
};

use crate::{
    text::counted,
    vouchers::{MAX_STOCK, restock::described},
};

/// What was read of a region.
#[derive(Clone, Debug, Default)]
pub(super) struct Side {
    pub(super) region: String,
    /// None: there is no such region.
    pub(super) voucher: Option<VoucherId>,
    pub(super) redis_stock: Option<i64>,
    /// It is on its way to another partition.
    pub(super) is_moving: bool,
    pub(super) row: Option<VoucherRow>,
    pub(super) last: Option<StockChange>,
}

/// What was found of a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It can begin, with these initial stocks.
    New([(VoucherId, i64); 2]),
    /// It was begun before.
    Begun(Transfer),
    /// Both sides have it.
    Done(Transfer),
}

impl Serialize for TransferRefusal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Why a move must not begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransferRefusal {
    /// The same region twice.
    #[error("{0} is named twice: units move from one region to another")]
    SameRegion(String),
    /// The campaign has no such region.
    #[error("the campaign has no region {region}{}", known_text(known))]
    UnknownRegion {
        /// Its name.
        region: String,
        /// Those that it has.
        known: Vec<String>,
    },
    /// MySQL does not know its voucher.
    #[error("MySQL has no row of {0}: it is not on sale")]
    NoRow(String),
    /// Its sale is over for good.
    #[error("{0} is delisted: its sale is over for good, see docs/delist.md")]
    Delisted(String),
    /// It is on its way to another partition.
    #[error("{0} is on its way to another partition")]
    Moving(String),
    /// Redis does not sell it.
    #[error(
        "Redis has no stock of {0}: it is not on sale, or Redis lost data (see docs/runbook/redis-lost-data.md)"
    )]
    NoStock(String),
    /// Another change of its stock is not complete.
    #[error("another change of the stock of {region} is unfinished ({})", described(open))]
    AnotherIsOpen {
        /// The region.
        region: String,
        /// Its voucher.
        voucher: VoucherId,
        /// That change.
        open: Box<StockChange>,
    },
    /// MySQL does not say with how many units its sale began.
    #[error("nobody knows what {region} began with (initial_stock of voucher {voucher} is NULL)")]
    NoInitialStock {
        /// The region.
        region: String,
        /// Its voucher.
        voucher: VoucherId,
    },
    /// The same was done just before, and nobody said that it is meant twice.
    #[error("the last change of {region} was the same, and both sides have it ({})", described(last))]
    SameAsLast {
        /// The region that gives.
        region: String,
        /// That change.
        last: Box<StockChange>,
        /// What its initial stock is now.
        initial: i64,
    },
    /// The initial stock is not the one that was asked for.
    #[error(
        "the initial stock of {region} in MySQL is {initial} and not {expected}, so somebody has changed it since: compare the stocks"
    )]
    OtherInitialStock {
        /// The region that gives.
        region: String,
        /// What it is.
        initial: i64,
        /// What it had to be.
        expected: i64,
    },
    /// More are to be moved than are left.
    #[error("{side} has only {} left of {region}", counted(*left, "unit"))]
    TooFewLeft {
        /// `Redis` or `MySQL`.
        side: &'static str,
        /// The region that gives.
        region: String,
        /// Units left there.
        left: i64,
    },
    /// The sum would be more than the gate can count.
    #[error("{region} would have more than {}", counted(MAX_STOCK, "unit"))]
    TooMany {
        /// The region that gets.
        region: String,
    },
}

fn known_text(known: &[String]) -> String {
    if known.is_empty() {
        ": no voucher is in it".to_owned()
    } else {
        format!(": it has {}", known.join(", "))
    }
}

/// Whether it may begin. `initial_stock`: what that of the region that gives has to be.
pub(super) fn check(
    (moved, units, initial_stock): (&RegionMove, i64, Option<i64>),
    (from, to): (&Side, &Side),
    regions: &[(String, VoucherId)],
) -> Result<Found, TransferRefusal> {
    if from.region == to.region {
        return Err(TransferRefusal::SameRegion(from.region.clone()));
    }
    let voucher = |side: &Side| {
        let known = || regions.iter().map(|(region, _)| region.clone()).collect();
        side.voucher
            .ok_or_else(|| TransferRefusal::UnknownRegion { region: side.region.clone(), known: known() })
    };
    let vouchers = [voucher(from)?, voucher(to)?];
    let last = transfer_of((moved, units), vouchers, (from, to));
    let is_asked = |it: &Transfer| initial_stock.is_none_or(|initial| initial == it.giver.1.before);
    if let Some(begun) = last.clone().filter(|it| it.giver.1.state == ChangeState::Open && is_asked(it)) {
        return Ok(Found::Begun(begun));
    }
    let initials = [initial_of(from, vouchers[0])?, initial_of(to, vouchers[1])?];
    let done = last.filter(|it| it.giver.1.state == ChangeState::Done && it.giver.1.after() == initials[0]);
    match (done, initial_stock) {
        (Some(done), Some(initial)) if initial == done.giver.1.before => return Ok(Found::Done(done)),
        (Some(done), None) => {
            let (region, last, initial) = (from.region.clone(), Box::new(done.giver.1), initials[0]);
            return Err(TransferRefusal::SameAsLast { region, last, initial });
        }
        (_, Some(expected)) if expected != initials[0] => {
            let (region, initial) = (from.region.clone(), initials[0]);
            return Err(TransferRefusal::OtherInitialStock { region, initial, expected });
        }
        _ => {}
    }
    let in_mysql = from.row.as_ref().map_or(0, |row| row.stock);
    for (side, left) in [("Redis", from.redis_stock.unwrap_or(0)), ("MySQL", in_mysql)] {
        if left < units {
            return Err(TransferRefusal::TooFewLeft { side, region: from.region.clone(), left });
        }
    }
    if initials[1].saturating_add(units) > MAX_STOCK {
        return Err(TransferRefusal::TooMany { region: to.region.clone() });
    }
    Ok(Found::New([(vouchers[0], initials[0]), (vouchers[1], initials[1])]))
}

/// The last change of both, if it is this very move.
fn transfer_of(
    (moved, units): (&RegionMove, i64),
    [giver, taker]: [VoucherId; 2],
    (from, to): (&Side, &Side),
) -> Option<Transfer> {
    let (gives, gets) = (from.last.clone()?, to.last.clone()?);
    let is_its = gives.moved.as_deref() == Some(moved) && gives.units == -units && gives.id == gets.id;
    (is_its && gives.state == gets.state).then_some(Transfer { giver: (giver, gives), taker: (taker, gets) })
}

fn initial_of(side: &Side, voucher: VoucherId) -> Result<i64, TransferRefusal> {
    let region = || side.region.clone();
    let row = side.row.as_ref().ok_or_else(|| TransferRefusal::NoRow(region()))?;
    match () {
        () if row.delisted_ms.is_some() => return Err(TransferRefusal::Delisted(region())),
        () if side.is_moving => return Err(TransferRefusal::Moving(region())),
        () if side.redis_stock.is_none() => return Err(TransferRefusal::NoStock(region())),
        () => {}
    }
    if let Some(open) = side.last.clone().filter(|last| last.state == ChangeState::Open) {
        return Err(TransferRefusal::AnotherIsOpen { region: region(), voucher, open: Box::new(open) });
    }
    row.initial_stock.ok_or_else(|| TransferRefusal::NoInitialStock { region: region(), voucher })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(region: &str, voucher: i64, stock: i64) -> Side {
        let voucher = VoucherId::try_from(voucher).unwrap();
        let row = VoucherRow {
            voucher,
            stock,
            initial_stock: Some(stock + 10),
            begin_ms: None,
            end_ms: None,
            pay_within_s: None,
            delisted_ms: None,
        };
        let region = region.to_owned();
        Side { region, voucher: Some(voucher), redis_stock: Some(stock), row: Some(row), ..Side::default() }
    }

    fn moved() -> RegionMove {
        RegionMove { campaign: 5.try_into().unwrap(), from: "north".into(), to: "south".into() }
    }

    fn with(change: impl FnOnce(&mut Side, &mut Side)) -> Result<Found, TransferRefusal> {
        let (mut from, mut to) = (side("north", 101, 50), side("south", 102, 5));
        change(&mut from, &mut to);
        let known = [("north".to_owned(), from.voucher.unwrap())];
        check((&moved(), 20, None), (&from, &to), &known)
    }

    #[test]
    fn only_what_both_sides_have_moves_between_two_regions_that_are_sold() {
        let vouchers = [101, 102].map(|id| VoucherId::try_from(id).unwrap());
        assert_eq!(with(|_, _| {}), Ok(Found::New([(vouchers[0], 60), (vouchers[1], 15)])));
        let refused = |change: fn(&mut Side, &mut Side)| with(change).unwrap_err().to_string();
        for (change, told) in [
            ((|_, to| to.region = "north".into()) as fn(&mut Side, &mut Side), "north is named twice"),
            (|_, to| to.voucher = None, "the campaign has no region south: it has north"),
            (|from, _| from.row = None, "MySQL has no row of north"),
            (|_, to| to.row.as_mut().unwrap().delisted_ms = Some(1), "south is delisted"),
            (|_, to| to.is_moving = true, "south is on its way to another partition"),
            (|_, to| to.redis_stock = None, "Redis has no stock of south"),
            (|_, to| to.row.as_mut().unwrap().initial_stock = None, "nobody knows what south began with"),
            (|from, _| from.redis_stock = Some(19), "Redis has only 19 units left of north"),
            (|from, _| from.row.as_mut().unwrap().stock = 19, "MySQL has only 19 units left of north"),
            (|_, to| to.row.as_mut().unwrap().initial_stock = Some(MAX_STOCK), "south would have more than"),
            (|_, to| to.last = Some(StockChange::new(5, 10, "alice".into())), "stock of south is unfinished"),
        ] {
            assert!(refused(change).contains(told), "{told}: {}", refused(change));
        }
    }

    #[test]
    fn a_move_that_was_begun_is_completed_and_one_that_is_done_is_not_made_twice() {
        let (mut from, mut to) = (side("north", 101, 50), side("south", 102, 5));
        let vouchers = [from.voucher.unwrap(), to.voucher.unwrap()];
        let moved = moved();
        let transfer = Transfer::new(20, (vouchers[0], 80), (vouchers[1], 15), (&moved, "alice"));
        (from.last, to.last) = (Some(transfer.giver.1.clone()), Some(transfer.taker.1.clone()));
        let asked = |from: &Side, to: &Side, initial| check((&moved, 20, initial), (from, to), &[]);
        for initial in [None, Some(80)] {
            assert_eq!(asked(&from, &to, initial), Ok(Found::Begun(transfer.clone())));
        }
        let other = check((&moved, 21, None), (&from, &to), &[]).unwrap_err();
        assert!(matches!(other, TransferRefusal::AnotherIsOpen { .. }), "{other}");
        let done = transfer.with_state(ChangeState::Done);
        (from.last, to.last) = (Some(done.giver.1.clone()), Some(done.taker.1.clone()));
        assert_eq!(asked(&from, &to, Some(80)), Ok(Found::Done(done)));
        let same = asked(&from, &to, None).unwrap_err();
        assert!(matches!(same, TransferRefusal::SameAsLast { initial: 60, .. }), "{same}");
        assert!(matches!(asked(&from, &to, Some(60)), Ok(Found::New(_))), "that is meant");
        assert!(matches!(asked(&from, &to, Some(99)), Err(TransferRefusal::OtherInitialStock { .. })));
    }
}
