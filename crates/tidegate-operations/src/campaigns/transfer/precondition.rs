//! Whether a move of units from one region to another may begin, or was begun before. Pure.

use serde::{Serialize, Serializer};
use tidegate_compare::text::counted;
use tidegate_orders::{
    VoucherId,
    gate::{ChangeState, StockChange, Transfer},
    records::vouchers::VoucherRow,
    transfer::Kept,
};

use super::TransferRequest;
use crate::vouchers::{MAX_STOCK, restock::described};

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
    New([i64; 2]),
    /// It was begun before.
    Begun(Transfer),
    /// It was begun before, and Redis has lost the note of one side.
    Half {
        /// The move.
        transfer: Transfer,
        /// Which note is there.
        kept: Kept,
    },
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

/// Whether it may begin, and if not, what is there of it.
pub(super) fn check(
    request: &TransferRequest,
    (from, to): (&Side, &Side),
    regions: &[(String, VoucherId)],
) -> Result<Found, TransferRefusal> {
    let (units, region) = (request.units, || from.region.clone());
    if from.region == to.region {
        return Err(TransferRefusal::SameRegion(region()));
    }
    let voucher = |side: &Side| {
        let known = || regions.iter().map(|(region, _)| region.clone()).collect();
        side.voucher
            .ok_or_else(|| TransferRefusal::UnknownRegion { region: side.region.clone(), known: known() })
    };
    let vouchers = [voucher(from)?, voucher(to)?];
    let notes = [noted(request, from, -units), noted(request, to, units)];
    if let Some(begun) = begun(request.initial_stock, notes, vouchers) {
        return Ok(begun);
    }
    let initials = [initial_of(from, vouchers[0])?, initial_of(to, vouchers[1])?];
    // By the side that gives alone: what has become of the other since makes it no other move.
    let done = notes[0].filter(|it| it.state == ChangeState::Done && it.after() == initials[0]);
    match (done, request.initial_stock) {
        (Some(done), Some(initial)) if initial == done.before => {
            return Ok(Transfer::of_note(done, vouchers).map_or_else(|| Found::New(initials), Found::Done));
        }
        (Some(done), None) => {
            let (last, initial) = (Box::new(done.clone()), initials[0]);
            return Err(TransferRefusal::SameAsLast { region: region(), last, initial });
        }
        (_, Some(expected)) if expected != initials[0] => {
            return Err(TransferRefusal::OtherInitialStock {
                region: region(),
                initial: initials[0],
                expected,
            });
        }
        _ => {}
    }
    let in_mysql = from.row.as_ref().map_or(0, |row| row.stock);
    for (side, left) in [("Redis", from.redis_stock.unwrap_or(0)), ("MySQL", in_mysql)] {
        if left < units {
            return Err(TransferRefusal::TooFewLeft { side, region: region(), left });
        }
    }
    if initials[1].saturating_add(units) > MAX_STOCK {
        return Err(TransferRefusal::TooMany { region: to.region.clone() });
    }
    Ok(Found::New(initials))
}

/// The last change of a side, if it is its side of such a move.
fn noted<'a>(request: &TransferRequest, side: &'a Side, units: i64) -> Option<&'a StockChange> {
    side.last.as_ref().filter(|note| note.units == units && request.is_of(note))
}

/// A move that is open, by the notes of both sides or by one.
fn begun(
    initial_stock: Option<i64>,
    notes: [Option<&StockChange>; 2],
    vouchers: [VoucherId; 2],
) -> Option<Found> {
    let open = notes.map(|note| {
        let note = note.filter(|note| note.state == ChangeState::Open)?;
        let transfer = Transfer::of_note(note, vouchers)?;
        initial_stock.is_none_or(|initial| initial == transfer.giver.1.before).then_some(transfer)
    });
    // Of one move, in whatever states: others are ending it at this very moment.
    let is_whole = notes[0].zip(notes[1]).is_some_and(|(gives, gets)| gives.id == gets.id);
    match open {
        [Some(transfer), _] | [None, Some(transfer)] if is_whole => Some(Found::Begun(transfer)),
        [Some(transfer), _] => Some(Found::Half { transfer, kept: Kept::Giver }),
        [None, Some(transfer)] => Some(Found::Half { transfer, kept: Kept::Taker }),
        [None, None] => None,
    }
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
    use tidegate_orders::gate::RegionMove;

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

    fn asked(initial_stock: Option<i64>) -> TransferRequest {
        let campaign = 5.try_into().unwrap();
        TransferRequest { campaign, from: "north".into(), to: "south".into(), units: 20, initial_stock }
    }

    fn with(change: impl FnOnce(&mut Side, &mut Side)) -> Result<Found, TransferRefusal> {
        let (mut from, mut to) = (side("north", 101, 50), side("south", 102, 5));
        change(&mut from, &mut to);
        let known = [("north".to_owned(), from.voucher.unwrap())];
        check(&asked(None), (&from, &to), &known)
    }

    #[test]
    fn only_what_both_sides_have_moves_between_two_regions_that_are_sold() {
        assert_eq!(with(|_, _| {}), Ok(Found::New([60, 15])));
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
        let transfer = begun_with(80);
        (from.last, to.last) = (Some(transfer.giver.1.clone()), Some(transfer.taker.1.clone()));
        let found = |from: &Side, to: &Side, initial| check(&asked(initial), (from, to), &[]);
        for initial in [None, Some(80)] {
            assert_eq!(found(&from, &to, initial), Ok(Found::Begun(transfer.clone())));
        }
        let other = check(&TransferRequest { units: 21, ..asked(None) }, (&from, &to), &[]).unwrap_err();
        assert!(matches!(other, TransferRefusal::AnotherIsOpen { .. }), "{other}");
        let done = transfer.with_state(ChangeState::Done);
        (from.last, to.last) = (Some(done.giver.1.clone()), Some(done.taker.1.clone()));
        // Whatever has become of the taker since.
        let later = StockChange::new(7, 15, "bob".into()).with_state(ChangeState::Done);
        for last in [to.last.clone(), Some(later), None] {
            to.last = last;
            assert_eq!(found(&from, &to, Some(80)), Ok(Found::Done(done.clone())));
            let same = found(&from, &to, None).unwrap_err();
            assert!(matches!(same, TransferRefusal::SameAsLast { initial: 60, .. }), "{same}");
            assert!(matches!(found(&from, &to, Some(60)), Ok(Found::New(_))), "that is meant");
        }
        assert!(matches!(found(&from, &to, Some(99)), Err(TransferRefusal::OtherInitialStock { .. })));
    }

    fn begun_with(giver_before: i64) -> Transfer {
        let (from, to) = ("north".to_owned(), "south".to_owned());
        let moved = RegionMove { campaign: 5.try_into().unwrap(), from, to, giver_before, taker_before: 15 };
        Transfer::new(20, [101, 102].map(|id| VoucherId::try_from(id).unwrap()), moved, "alice")
    }

    #[test]
    fn one_note_of_a_move_tells_all_of_it() {
        let (mut from, mut to) = (side("north", 101, 50), side("south", 102, 5));
        let transfer = begun_with(60);
        let found = |from: &Side, to: &Side| check(&asked(None), (from, to), &[]);
        let half = |kept| Ok(Found::Half { transfer: transfer.clone(), kept });
        from.last = Some(transfer.giver.1.clone());
        assert_eq!(found(&from, &to), half(Kept::Giver));
        to.last = Some(StockChange::new(7, 15, "bob".into()));
        assert_eq!(found(&from, &to), half(Kept::Giver), "another one stands there");
        (from.last, to.last) = (None, Some(transfer.taker.1.clone()));
        assert_eq!(found(&from, &to), half(Kept::Taker));
        let done = transfer.with_state(ChangeState::Done);
        (from.last, to.last) = (Some(transfer.giver.1.clone()), Some(done.taker.1));
        assert_eq!(found(&from, &to), Ok(Found::Begun(transfer.clone())), "others are ending it");
    }
}
