//! Checks whether a change of the stock may begin, or was begun before. The functions are pure.

use tidegate_compare::text::counted;
use tidegate_orders::{
    VoucherId,
    records::manual_sql::set_initial_stock,
    scripts::{ChangeState, RecordedTransfer, StockChange, WholeChange},
};

use super::{ChangedStocks, Instead, StockChangeRequest, StockOutcome, StockRefusal, StockSide, described};
use crate::vouchers::MAX_STOCK;

/// The state of a change that is not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) outcome: StockOutcome,
    pub(super) whole: WholeChange,
    /// The index of the voucher that has no note of an open change.
    pub(super) lost: Option<usize>,
}

impl Found {
    pub(super) const fn refused() -> Self {
        Self { outcome: StockOutcome::Refused, whole: WholeChange { sides: Vec::new() }, lost: None }
    }
}

fn refused(reason: String) -> StockRefusal {
    StockRefusal { reason, instead: None }
}

/// Checks whether the change may begin, begun `by` this name, or finds its current state. `known` are the regions of
/// the campaign.
pub(super) fn check(
    request: &StockChangeRequest,
    sides: &[StockSide],
    known: &[String],
    by: &str,
) -> Result<Found, StockRefusal> {
    if let ChangedStocks::Between(it) = &request.stocks
        && it.from == it.to
    {
        return Err(refused(format!("region {} is named twice: name two different regions", it.from)));
    }
    let vouchers = vouchers(sides, known)?;
    let notes: Vec<_> = sides.iter().map(|side| request.noted(side)).collect();
    let found = |outcome, note: &StockChange| {
        let whole = WholeChange::of_note(note, &vouchers);
        Found { outcome, whole, lost: None }
    };
    if let Some(open) = notes.iter().flatten().find(|note| request.is_begun_by(note)) {
        // If both notes of the change exist, in any state, none is lost: another program may be ending the change.
        let lost = notes.iter().position(|note| note.is_none_or(|note| note.id != open.id));
        return Ok(Found { lost, ..found(StockOutcome::WouldComplete, open) });
    }
    // Only the region that gives units decides: later changes of the other region do not make this another change.
    let initial = sides[0].row.as_ref().and_then(|row| row.initial_stock);
    let done = notes[0].filter(|it| it.state == ChangeState::Done && Some(it.after()) == initial);
    if let Some(done) = done.filter(|done| request.initial_stock == Some(done.before)) {
        return Ok(found(StockOutcome::DoneBefore, done));
    }
    let initials = sides.iter().zip(&vouchers).map(|(side, voucher)| initial_of(side, *voucher));
    let initials = initials.collect::<Result<Vec<_>, _>>()?;
    request.check_initial_stock(&sides[0].name, initials[0], done)?;
    for (side, initial) in sides.iter().zip(&initials) {
        check_units(side, *initial, sides.len() == 1)?;
    }
    let moved = match (&request.stocks, &initials[..]) {
        (ChangedStocks::Between(transfer), [giver_before, taker_before]) => {
            Some(Box::new(RecordedTransfer {
                transfer: transfer.clone(),
                giver_before: *giver_before,
                taker_before: *taker_before,
            }))
        }
        _ => None,
    };
    let change = StockChange::new(sides[0].units, initials[0], by.to_owned());
    Ok(found(StockOutcome::WouldChange, &StockChange { moved, ..change }))
}

impl StockChangeRequest {
    /// Returns the last change of a voucher, if it is the requested kind of change.
    fn noted<'a>(&self, side: &'a StockSide) -> Option<&'a StockChange> {
        side.last.as_ref().filter(|note| {
            let is_same = match (&self.stocks, &note.moved) {
                (ChangedStocks::Of(_), None) => true,
                (ChangedStocks::Between(asked), Some(moved)) => moved.transfer == *asked,
                _ => false,
            };
            is_same && note.units == side.units
        })
    }

    /// Returns whether this note shows that the requested change has already begun.
    fn is_begun_by(&self, note: &StockChange) -> bool {
        let before = note.moved.as_ref().map_or(note.before, |moved| moved.giver_before);
        note.state == ChangeState::Open && self.initial_stock.is_none_or(|initial| initial == before)
    }

    /// Checks that the initial stock is the expected one, and that the last change was not the same, unless the request
    /// says that it is meant.
    fn check_initial_stock(
        &self,
        name: &str,
        initial: i64,
        done: Option<&StockChange>,
    ) -> Result<(), StockRefusal> {
        match (self.initial_stock, done) {
            (None, Some(last)) => Err(StockRefusal {
                reason: format!(
                    "this change of {name} was made before, in both stores ({})",
                    described(last)
                ),
                instead: Some(Instead::OnceMore(self.with_initial_stock(initial))),
            }),
            (Some(expected), _) if expected != initial => Err(refused(format!(
                "the initial stock of {name} in MySQL is {initial} and not {expected} as expected: another change was \
                 made since, or Redis has lost its note of this change. Compare the stocks in Redis and MySQL"
            ))),
            _ => Ok(()),
        }
    }
}

fn vouchers(sides: &[StockSide], known: &[String]) -> Result<Vec<VoucherId>, StockRefusal> {
    let voucher = |side: &StockSide| {
        side.voucher.ok_or_else(|| {
            let known = if known.is_empty() {
                "the campaign has no regions".to_owned()
            } else {
                format!("the regions are {}", known.join(", "))
            };
            refused(format!("the campaign has no region {}: {known}", side.name))
        })
    };
    sides.iter().map(voucher).collect()
}

/// Returns the initial stock of a voucher in MySQL, if a change may begin.
fn initial_of(side: &StockSide, voucher: VoucherId) -> Result<i64, StockRefusal> {
    let name = &side.name;
    let Some(row) = &side.row else {
        return Err(refused(format!("{name} is not on sale: MySQL has no row of {name}")));
    };
    let open = side.last.as_ref().filter(|last| last.state == ChangeState::Open);
    Err(match (row.initial_stock, open) {
        _ if row.delisted_ms.is_some() => {
            refused(format!("{name} is delisted: the sale has ended forever, see docs/delist.md"))
        }
        _ if side.is_moving => refused(format!("{name} is being moved to another partition")),
        _ if side.redis_stock.is_none() => refused(format!(
            "Redis has no stock of {name}: load {name}, or if Redis lost data, see docs/runbook/redis-lost-data.md"
        )),
        (_, Some(open)) => StockRefusal {
            reason: format!("another change of {name} is unfinished: {}", described(open)),
            instead: Some(Instead::First(StockChangeRequest::completing(voucher, open))),
        },
        (None, None) => refused(format!(
            "the initial stock of {name} is unknown (initial_stock is NULL); first run: {}",
            set_initial_stock(voucher)
        )),
        (Some(initial), None) => return Ok(initial),
    })
}

/// Checks that there are enough units to take, and that the admission script can count the units afterwards.
fn check_units(side: &StockSide, initial: i64, is_alone: bool) -> Result<(), StockRefusal> {
    let StockSide { name, units, .. } = side;
    for (store, left) in [("Redis", side.redis_stock), ("MySQL", side.mysql_stock)] {
        let left = left.unwrap_or_default();
        // A region may still have a negative stock after it gets units.
        if (*units < 0 || is_alone) && left.saturating_add(*units) < 0 {
            return Err(refused(format!("{store} has only {} left of {name}", counted(left, "unit"))));
        }
    }
    if initial.saturating_add(*units) > MAX_STOCK {
        return Err(refused(format!("{name} would have more than {}", counted(MAX_STOCK, "unit"))));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tidegate_orders::{records::vouchers::VoucherRow, scripts::StockTransfer};

    use super::*;

    fn voucher(id: i64) -> VoucherId {
        id.try_into().unwrap()
    }

    /// Creates a voucher with the same units left in both stores, and with this initial stock.
    fn side(name: &str, id: i64, units: i64, (stock, initial): (i64, i64)) -> StockSide {
        let row = VoucherRow {
            voucher: voucher(id),
            stock,
            initial_stock: Some(initial),
            begin_ms: None,
            end_ms: None,
            pay_within_s: None,
            delisted_ms: None,
        };
        StockSide {
            name: name.to_owned(),
            voucher: Some(voucher(id)),
            units,
            redis_stock: Some(stock),
            mysql_stock: Some(stock),
            row: Some(row),
            ..StockSide::default()
        }
    }

    fn adjusted(units: i64, initial_stock: Option<i64>) -> StockChangeRequest {
        StockChangeRequest { stocks: ChangedStocks::Of(voucher(7)), units, initial_stock }
    }

    fn with_side(
        units: i64,
        initial_stock: Option<i64>,
        change: impl FnOnce(&mut StockSide),
    ) -> Result<Found, StockRefusal> {
        let mut side = side("the voucher", 7, units, (100, 200));
        change(&mut side);
        check(&adjusted(units, initial_stock), &[side], &[], "alice")
    }

    fn transfer() -> StockTransfer {
        StockTransfer { campaign: 5.try_into().unwrap(), from: "north".into(), to: "south".into() }
    }

    fn moved(units: i64, initial_stock: Option<i64>) -> StockChangeRequest {
        StockChangeRequest { stocks: ChangedStocks::Between(transfer()), units, initial_stock }
    }

    fn sides() -> [StockSide; 2] {
        [side("north", 101, -20, (50, 60)), side("south", 102, 20, (5, 15))]
    }

    fn found(sides: &[StockSide; 2], initial_stock: Option<i64>) -> Result<Found, StockRefusal> {
        check(&moved(20, initial_stock), sides, &["north".into()], "alice")
    }

    /// Creates a transfer of 20 units that began with this stock in the north.
    fn begun_with(giver_before: i64) -> WholeChange {
        let moved = Some(Box::new(RecordedTransfer { transfer: transfer(), giver_before, taker_before: 15 }));
        let note = StockChange { moved, ..StockChange::new(20, 0, "alice".into()) };
        WholeChange::of_note(&note, &[voucher(101), voucher(102)])
    }

    /// Returns the initial stocks of a change that can begin.
    fn began(found: Result<Found, StockRefusal>) -> Vec<i64> {
        let found = found.unwrap();
        assert_eq!(found.outcome, StockOutcome::WouldChange);
        found.whole.sides.iter().map(|(_, change)| change.before).collect()
    }

    #[test]
    fn only_what_both_sides_have_is_changed() {
        assert_eq!(began(with_side(50, None, |_| {})), [200]);
        assert_eq!(began(with_side(-100, None, |_| {})), [200], "to the last unit");
        for (units, change, told) in [
            (
                -100,
                (|it| it.redis_stock = Some(99)) as fn(&mut StockSide),
                "Redis has only 99 units left of the voucher",
            ),
            (-101, |it| it.redis_stock = Some(110), "MySQL has only 100 units left of the voucher"),
            (1, |it| it.row = None, "MySQL has no row of the voucher"),
            (1, |it| it.row.as_mut().unwrap().delisted_ms = Some(1), "the voucher is delisted"),
            (1, |it| it.redis_stock = None, "Redis has no stock of the voucher"),
            (1, |it| it.row.as_mut().unwrap().initial_stock = None, "SET initial_stock = stock + "),
            (MAX_STOCK, |_| {}, "the voucher would have more than"),
        ] {
            let refused = with_side(units, None, change).unwrap_err();
            assert!(refused.reason.contains(told) && refused.instead.is_none(), "{told}: {refused:?}");
        }
    }

    #[test]
    fn the_same_is_not_done_twice_and_nothing_else_before_an_open_change() {
        let open = StockChange::new(50, 150, "alice".to_owned());
        let check = |units, initial_stock, last: &StockChange| {
            with_side(units, initial_stock, |it| it.last = Some(last.clone()))
        };
        for initial_stock in [None, Some(150)] {
            let whole = WholeChange { sides: vec![(voucher(7), open.clone())] };
            let begun = Found { outcome: StockOutcome::WouldComplete, whole, lost: None };
            assert_eq!(check(50, initial_stock, &open), Ok(begun));
        }
        let other = check(40, None, &open).unwrap_err();
        assert!(other.reason.starts_with("another change of the voucher is unfinished"), "{other:?}");
        assert_eq!(other.instead, Some(Instead::First(adjusted(50, Some(150)))));
        let done = open.with_state(ChangeState::Done);
        let refused = check(50, None, &done).unwrap_err();
        assert!(refused.reason.contains("by alice"), "{refused:?}");
        assert_eq!(refused.instead, Some(Instead::OnceMore(adjusted(50, Some(200)))));
        assert_eq!(check(50, Some(150), &done).unwrap().outcome, StockOutcome::DoneBefore);
        assert_eq!(began(check(50, Some(200), &done)), [200], "that is meant");
        assert_eq!(began(check(40, None, &done)), [200], "another change");
        let between = with_side(50, None, |it| {
            it.last = Some(done);
            it.row.as_mut().unwrap().initial_stock = Some(300);
        });
        assert_eq!(began(between), [300], "others came in between");
        assert_eq!(began(check(50, None, &open.with_state(ChangeState::Cancelled))), [200]);
    }

    #[test]
    fn a_note_that_redis_has_lost_does_not_make_the_same_change_twice() {
        let refused = with_side(50, Some(150), |_| {}).unwrap_err();
        assert!(refused.reason.contains("is 200 and not 150"), "{refused:?}");
        assert_eq!(began(with_side(50, Some(200), |_| {})), [200]);
    }

    #[test]
    fn only_what_both_sides_have_moves_between_two_regions_that_are_sold() {
        assert_eq!(began(found(&sides(), None)), [60, 15]);
        for (change, told) in [
            (
                (|[_, to]| to.voucher = None) as fn(&mut [StockSide; 2]),
                "the campaign has no region south: the regions are north",
            ),
            (|[from, _]| from.row = None, "MySQL has no row of north"),
            (|[_, to]| to.row.as_mut().unwrap().delisted_ms = Some(1), "south is delisted"),
            (|[_, to]| to.is_moving = true, "south is being moved to another partition"),
            (|[_, to]| to.redis_stock = None, "Redis has no stock of south"),
            (
                |[_, to]| to.row.as_mut().unwrap().initial_stock = None,
                "the initial stock of south is unknown",
            ),
            (|[from, _]| from.redis_stock = Some(19), "Redis has only 19 units left of north"),
            (|[from, _]| from.mysql_stock = Some(19), "MySQL has only 19 units left of north"),
            (
                |[_, to]| to.row.as_mut().unwrap().initial_stock = Some(MAX_STOCK),
                "south would have more than",
            ),
            (
                |[_, to]| to.last = Some(StockChange::new(5, 10, "alice".into())),
                "change of south is unfinished",
            ),
        ] {
            let mut sides = sides();
            change(&mut sides);
            let refused = found(&sides, None).unwrap_err();
            assert!(refused.reason.contains(told), "{told}: {refused:?}");
        }
        let same = ChangedStocks::Between(StockTransfer { to: "north".into(), ..transfer() });
        let refused = check(&StockChangeRequest { stocks: same, ..moved(20, None) }, &sides(), &[], "alice");
        assert!(refused.unwrap_err().reason.contains("region north is named twice"));
    }

    #[test]
    fn a_move_that_was_begun_is_completed_and_one_that_is_done_is_not_made_twice() {
        let (mut sides, whole) = (sides(), begun_with(80));
        let note = |sides: &mut [StockSide; 2], whole: &WholeChange| {
            for (side, (_, change)) in sides.iter_mut().zip(&whole.sides) {
                side.last = Some(change.clone());
            }
        };
        note(&mut sides, &whole);
        for initial_stock in [None, Some(80)] {
            let begun = Found { outcome: StockOutcome::WouldComplete, whole: whole.clone(), lost: None };
            assert_eq!(found(&sides, initial_stock), Ok(begun));
        }
        let [mut from, mut to] = sides.clone();
        (from.units, to.units) = (-21, 21);
        let other = check(&moved(21, None), &[from, to], &[], "alice").unwrap_err();
        assert_eq!(other.instead, Some(Instead::First(moved(20, Some(80)))), "{other:?}");
        let done = whole.with_state(ChangeState::Done);
        note(&mut sides, &done);
        // Later changes of the region that gets units make no difference.
        let later = StockChange::new(7, 15, "bob".into()).with_state(ChangeState::Done);
        for last in [sides[1].last.clone(), Some(later), None] {
            sides[1].last = last;
            let before = Found { outcome: StockOutcome::DoneBefore, whole: done.clone(), lost: None };
            assert_eq!(found(&sides, Some(80)), Ok(before));
            let same = found(&sides, None).unwrap_err();
            assert_eq!(same.instead, Some(Instead::OnceMore(moved(20, Some(60)))), "{same:?}");
            assert_eq!(began(found(&sides, Some(60))), [60, 15], "that is meant");
        }
        let refused = found(&sides, Some(99)).unwrap_err();
        assert!(refused.reason.contains("is 60 and not 99"), "{refused:?}");
    }

    #[test]
    fn one_note_of_a_move_tells_all_of_it() {
        let (mut sides, whole) = (sides(), begun_with(60));
        let begun = |lost| Ok(Found { outcome: StockOutcome::WouldComplete, whole: whole.clone(), lost });
        let [gives, gets] = [0, 1].map(|at| whole.sides[at].1.clone());
        sides[0].last = Some(gives.clone());
        assert_eq!(found(&sides, None), begun(Some(1)));
        sides[1].last = Some(StockChange::new(7, 15, "bob".into()));
        assert_eq!(found(&sides, None), begun(Some(1)), "another one stands there");
        (sides[0].last, sides[1].last) = (None, Some(gets.clone()));
        assert_eq!(found(&sides, None), begun(Some(0)));
        (sides[0].last, sides[1].last) = (Some(gives), Some(gets.with_state(ChangeState::Done)));
        assert_eq!(found(&sides, None), begun(None), "others are ending it");
    }
}
