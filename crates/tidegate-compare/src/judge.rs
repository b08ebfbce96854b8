//! The decision whether the facts about one order or one user show a difference. Pure.

use crate::{
    difference::{DifferenceCause, RepairMethod},
    reconciled::DifferenceKind,
    redis_side::{DeadOrder, Entered},
};
use tidegate_orders::{
    JournalNote, OrderFacts, OrderStatus, RowState, UserId,
    order_status::{EntryFact, JournalFact, LetterFact, RowFact},
    records::{EventSum, OrderRow, RefusalRow},
};
use tidegate_stream::EntryId;

/// The facts about an order whose own entry is not in flight. MySQL is read first, then the journal. So if the journal
/// lacks an order that has a row, it already lacked it when the row was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evidence {
    /// Whether the journal of its voucher holds every movement.
    pub(crate) is_complete: bool,
    /// The time since when the journal is complete, in Unix milliseconds; 0: it has everything before as well.
    pub(crate) complete_since_ms: i64,
    /// The time before which the journal no longer holds final orders; None: it holds all.
    pub(crate) compacted_before_ms: Option<i64>,
    pub(crate) note: Option<JournalNote>,
    pub(crate) row: Option<OrderRow>,
    pub(crate) refusal: Option<RefusalRow>,
    pub(crate) dead: Option<DeadOrder>,
    pub(crate) events: Option<EventSum>,
    /// The acknowledged entries of an order that is in no complete journal, one for each user.
    pub(crate) entries: Vec<Entered>,
    /// The user in the first event of the order that was acknowledged and not recorded.
    pub(crate) lost_event_of: Option<i64>,
}

/// A difference about an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OrderFinding {
    pub(crate) kind: DifferenceKind,
    pub(crate) user: Option<i64>,
    pub(crate) units: i64,
    pub(crate) cause: DifferenceCause,
    pub(crate) repair: RepairMethod,
    /// The status of the order; None: the difference does not depend on it.
    pub(crate) status: Option<OrderStatus>,
    /// The entry of the order, if the stream holds it.
    pub(crate) entry: Option<EntryId>,
}

impl Evidence {
    /// The user and the units of the order, from its admission in the journal or from its entry.
    fn admitted(&self) -> Option<(Option<i64>, i64)> {
        let by_journal = self.note.as_ref().and_then(|note| match &note.admitted {
            Some(admitted) => Some((admitted.user.map(UserId::get), admitted.change.saturating_neg())),
            None if note.is_admission() => {
                let user = note.buyer().map(UserId::get);
                Some((user, note.change.unwrap_or(0).saturating_neg()))
            }
            None => None,
        });
        by_journal.or_else(|| self.entry().map(|entry| (Some(entry.user), entry.quantity)))
    }

    /// The entry of the row's owner if there are several entries, or otherwise the latest one.
    fn entry(&self) -> Option<Entered> {
        let is_owners = |it: &&Entered| self.row.as_ref().is_some_and(|row| row.user == it.user);
        let own = self.entries.iter().find(is_owners);
        own.or_else(|| self.entries.iter().max_by_key(|it| it.entry)).copied()
    }

    /// Finds an entry of another user under the order's id, which must be among the dead letters.
    pub(crate) fn stranger(&self, is_buried: impl Fn(i64) -> bool) -> Option<OrderFinding> {
        let by_note = self.note.as_ref().and_then(JournalNote::buyer).map(UserId::get);
        let owner = by_note.or_else(|| self.row.as_ref().map(|row| row.user));
        // If no order has the id, the letter of one entry shows nothing about the others.
        let owned = owner.or_else(|| self.entry().map(|it| it.user));
        let it = self.entries.iter().find(|it| Some(it.user) != owned && !is_buried(it.user))?;
        let kind = if owner.is_some() { DifferenceKind::Mismatched } else { DifferenceKind::LostOrder };
        Some(OrderFinding {
            kind,
            user: Some(it.user),
            units: it.quantity,
            cause: DifferenceCause::Unknown,
            repair: RepairMethod::ByHand,
            status: None,
            entry: Some(it.entry),
        })
    }

    /// The facts for the function that decides the status of an order.
    fn facts(&self, voucher: i64) -> OrderFacts {
        let admitted = self.admitted();
        let is_of = |user: i64| admitted.is_none_or(|(its, _)| its.is_none_or(|its| its == user));
        let row = self.row.as_ref().map_or(RowFact::None, |row| {
            // An order that was cancelled before it came has no units, because they were not known then.
            let has_quantity = !holds(row) || admitted.is_none_or(|(_, units)| units == row.quantity);
            let is_own = row.voucher == voucher && is_of(row.user) && has_quantity;
            if is_own { RowFact::Own(row.state()) } else { RowFact::Other }
        });
        let is_refused = self.refusal.as_ref().is_some_and(|it| it.voucher == voucher && is_of(it.user));
        let journal = match &self.note {
            Some(note) if note.is_release() => JournalFact::Released,
            Some(_) => JournalFact::Admitted,
            None => JournalFact::Nothing,
        };
        let letter = match &self.dead {
            Some(dead) if is_of(dead.user) => dead.fact,
            _ => LetterFact::None,
        };
        let entry =
            if self.entry().is_some() || self.is_complete { EntryFact::Settled } else { EntryFact::None };
        OrderFacts { row, is_refused, journal, entry, letter, ..OrderFacts::NOTHING }
    }

    /// Finds all differences of the order. If events of it are lost but the order is not, only the events are
    /// reported: one side may have applied them and the other not. Further differences are reported when the events
    /// are recorded.
    pub(crate) fn findings(&self, voucher: i64) -> [Option<OrderFinding>; 3] {
        let of_order = self.finding(voucher);
        let runs_again = of_order
            .is_some_and(|it| matches!(it.repair, RepairMethod::RunAgain | RepairMethod::WriteCancelledRow));
        match self.lost_event() {
            Some(lost) if !runs_again => [Some(lost), self.doubled(), None],
            _ => [of_order, self.doubled(), self.status_by_others()],
        }
    }

    /// Finds events of the order that are lost.
    fn lost_event(&self) -> Option<OrderFinding> {
        let its = self.lost_event_of?;
        let user = self.by_mysql().0.or_else(|| self.admitted()?.0).unwrap_or(its);
        let is_known = self.row.is_some() || self.refusal.is_some() || self.dead.is_some();
        Some(OrderFinding {
            kind: DifferenceKind::LostEvent,
            user: Some(user),
            units: 0,
            cause: DifferenceCause::AcknowledgedAndNotWritten,
            repair: if is_known { RepairMethod::RecordEvents } else { RepairMethod::RunAgain },
            status: None,
            entry: None,
        })
    }

    /// Finds the difference of the order that concerns its units.
    pub(crate) fn finding(&self, voucher: i64) -> Option<OrderFinding> {
        let facts = self.facts(voucher);
        let (user, units) = self.admitted().unwrap_or_else(|| self.by_mysql());
        let (status, entry) = (Some(facts.status()), self.entry().map(|entered| entered.entry));
        let finding =
            |kind, cause, repair| Some(OrderFinding { kind, user, units, cause, repair, status, entry });
        let is_admitted = facts.journal == JournalFact::Admitted;
        match facts.status() {
            OrderStatus::Written if self.is_complete => self.finding_of_live(facts.journal),
            OrderStatus::Cancelled | OrderStatus::Refused if self.is_complete && is_admitted => {
                let is_half = facts.letter != LetterFact::None || facts.status() == OrderStatus::Refused;
                let cause = if is_half { DifferenceCause::LeftHalfDone } else { DifferenceCause::Unknown };
                finding(DifferenceKind::NotReleased, cause, RepairMethod::Release)
            }
            OrderStatus::Released if self.is_complete => finding(
                DifferenceKind::ReleaseUnknownToMysql,
                DifferenceCause::Unknown,
                RepairMethod::WriteCancelledRow,
            ),
            OrderStatus::Mismatched => {
                finding(DifferenceKind::Mismatched, DifferenceCause::Unknown, RepairMethod::ByHand)
            }
            // `Verify` looks up whether the stream still holds a lost order. Here the row existed and changed, and only
            // the row is gone: a repeated run would not apply its events again.
            OrderStatus::Lost if self.events.is_some_and(|events| events.status.is_some()) => {
                finding(DifferenceKind::LostOrder, DifferenceCause::ChangedByHand, RepairMethod::ByHand)
            }
            OrderStatus::Lost if is_admitted || self.entry().is_some() => finding(
                DifferenceKind::LostOrder,
                DifferenceCause::AcknowledgedAndNotWritten,
                RepairMethod::RunAgain,
            ),
            _ => None,
        }
    }

    fn finding_of_live(&self, journal: JournalFact) -> Option<OrderFinding> {
        let row = self.row.as_ref()?;
        let finding = |kind, cause, repair| {
            let (user, units) = (Some(row.user), row.quantity);
            Some(OrderFinding {
                kind,
                user,
                units,
                cause,
                repair,
                status: Some(OrderStatus::Written),
                entry: None,
            })
        };
        match journal {
            JournalFact::Released => {
                finding(DifferenceKind::ReleasedAndLive, DifferenceCause::Unknown, RepairMethod::Admit)
            }
            JournalFact::Nothing if self.is_since_complete(row) && !self.is_compacted(row) => {
                let is_ours = row.entry.is_some();
                let cause =
                    if is_ours { DifferenceCause::NoAdmission } else { DifferenceCause::ChangedByHand };
                finding(DifferenceKind::NotAdmitted, cause, RepairMethod::Admit)
            }
            _ => None,
        }
    }

    /// Whether the journal should have the order.
    fn is_since_complete(&self, row: &OrderRow) -> bool {
        is_since(row, self.complete_since_ms)
    }

    fn is_compacted(&self, row: &OrderRow) -> bool {
        let end = |before_ms| FinalOrder::of(row, self.events.as_ref(), before_ms);
        self.compacted_before_ms.and_then(end) == Some(FinalOrder::Used)
    }

    fn by_mysql(&self) -> (Option<i64>, i64) {
        let row = self.row.as_ref().map(|row| (Some(row.user), row.quantity));
        row.or_else(|| self.refusal.as_ref().map(|it| (Some(it.user), it.quantity))).unwrap_or((None, 0))
    }

    /// Finds units that were returned more than once, by MySQL's records.
    pub(crate) fn doubled(&self) -> Option<OrderFinding> {
        let (row, events) = (self.row.as_ref()?, self.events?);
        (events.releases > 1).then_some(OrderFinding {
            kind: DifferenceKind::ReleasedTwice,
            user: Some(row.user),
            units: events.released - row.quantity,
            cause: DifferenceCause::Unknown,
            repair: RepairMethod::ByHand,
            status: None,
            entry: None,
        })
    }

    /// Finds a status that no event of Tidegate led to.
    pub(crate) fn status_by_others(&self) -> Option<OrderFinding> {
        let row = self.row.as_ref()?;
        is_set_by_others(row, self.events.as_ref()).then_some(OrderFinding {
            kind: DifferenceKind::StatusSetByOthers,
            user: Some(row.user),
            units: row.quantity,
            cause: DifferenceCause::ChangedByHand,
            repair: RepairMethod::ByHand,
            status: None,
            entry: None,
        })
    }
}

/// Whether a row belongs to the time that a complete journal covers. The entry of the row decides; if another program
/// wrote the row, its creation time does. A row with neither should be in the journal.
pub(crate) fn is_since(row: &OrderRow, complete_since_ms: i64) -> bool {
    let at_ms = match row.entry {
        Some(entry) => i64::try_from(entry.ms).ok(),
        None => row.created_ms,
    };
    at_ms.is_none_or(|at_ms| at_ms >= complete_since_ms)
}

/// Whether the status of a row that came through a stream is not the one that its events lead to. A row is cancelled
/// without an event if its order was cancelled before it was written.
pub(crate) fn is_set_by_others(row: &OrderRow, events: Option<&EventSum>) -> bool {
    let led_to = events.and_then(|events| events.status);
    let cancelled = 4;
    row.entry.is_some()
        && match led_to {
            Some(status) => status != row.status,
            None => row.status != 1 && (row.status != cancelled || row.slot.is_some()),
        }
}

/// The last status of an order that can no longer change, so that its units never move again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinalOrder {
    /// The order was used, by an event of Tidegate. Its units stay sold, and its user stays a buyer.
    Used,
    /// The order has ended, and takes no units any more.
    Ended,
}

impl FinalOrder {
    /// Decides from the row of an order whether the order can no longer change. None: the order may still change, the
    /// row or an event is too young, or the order did not come through a stream. An order that another program marked
    /// as used may still change.
    pub fn of(row: &OrderRow, events: Option<&EventSum>, before_ms: i64) -> Option<Self> {
        let last_ms = events.map_or(0, |events| events.last_ms);
        if !is_before(row.entry, before_ms) || last_ms >= before_ms {
            return None;
        }
        let led_to = events.and_then(|events| events.status);
        match row.state() {
            RowState::Live if row.status == OrderRow::USED && led_to == Some(OrderRow::USED) => {
                Some(Self::Used)
            }
            RowState::Cancelled => Some(Self::Ended),
            RowState::Live | RowState::Contradictory => None,
        }
    }
}

/// Whether a stream entry is older than the given time. False if there is no entry.
pub fn is_before(entry: Option<EntryId>, before_ms: i64) -> bool {
    entry.is_some_and(|entry| i64::try_from(entry.ms).is_ok_and(|ms| ms < before_ms))
}

/// The facts about a user that is not in flight, for a voucher with a complete journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UserEvidence {
    pub(crate) is_buyer: bool,
    /// The id of a live order in MySQL.
    pub(crate) live: Option<i64>,
    /// The id of an order among the dead letters.
    pub(crate) dead: Option<i64>,
    /// Whether an order of the user is a difference itself, whose repair also bars or frees the user.
    pub(crate) is_told: bool,
}

impl UserEvidence {
    /// The order that bars the user.
    pub(crate) fn order(&self) -> Option<i64> {
        self.live.or(self.dead)
    }

    pub(crate) fn finding(&self, user: i64) -> Option<OrderFinding> {
        let finding = |kind, cause, repair| {
            Some(OrderFinding { kind, user: Some(user), units: 0, cause, repair, status: None, entry: None })
        };
        match (self.is_buyer, self.order().is_some()) {
            _ if self.is_told => None,
            (true, false) => {
                finding(DifferenceKind::BarredWithoutOrder, DifferenceCause::Unknown, RepairMethod::Unbar)
            }
            (false, true) => finding(DifferenceKind::NotBarred, DifferenceCause::Unknown, RepairMethod::Bar),
            _ => None,
        }
    }
}

/// Whether a row still holds units.
pub(crate) fn holds(row: &OrderRow) -> bool {
    row.state() != RowState::Cancelled
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOUCHER: i64 = 10;

    fn admit(user: i64, units: i64) -> Option<JournalNote> {
        let note = format!(r#"{{"action":"admit","change":-{units},"by":"{user}","timestamp":5}}"#);
        JournalNote::parse(note.as_bytes())
    }

    fn release(user: i64, units: i64) -> Option<JournalNote> {
        let note = format!(
            r#"{{"action":"release","change":{units},"by":"worker:x","timestamp":9,"admitted":{{"user":"{user}","change":-{units},"timestamp":5}}}}"#
        );
        JournalNote::parse(note.as_bytes())
    }

    fn row(user: i64, quantity: i64, status: i64) -> Option<OrderRow> {
        let slot = (![4, 6].contains(&status)).then_some(1);
        let entry = Some(EntryId { ms: 5, seq: 0 });
        let order = 1.try_into().unwrap();
        Some(OrderRow { order, user, voucher: VOUCHER, quantity, slot, status, entry, created_ms: None })
    }

    fn refusal(user: i64) -> Option<RefusalRow> {
        let (order, reason) = (1.try_into().unwrap(), "out_of_stock".to_owned());
        Some(RefusalRow { order, user, voucher: VOUCHER, quantity: 2, reason, entry: None, at_ms: None })
    }

    fn dead(user: i64) -> Option<DeadOrder> {
        let (fact, entry) = (LetterFact::Order, EntryId { ms: 5, seq: 0 });
        Some(DeadOrder { place: 0, order: 1, user, quantity: 2, fact, entry })
    }

    #[test]
    fn each_combination_of_a_complete_journal_and_mysql_is_one_difference_or_none() {
        use DifferenceKind::*;
        let complete = Evidence { is_complete: true, ..Evidence::default() };
        let with = |note, row| Evidence { note, row, ..complete.clone() };
        let refused = |note| Evidence { note, refusal: refusal(7), ..complete.clone() };
        let buried = |note, row| Evidence { note, row, dead: dead(7), ..complete.clone() };
        let (admit, release) = (admit(7, 2), release(7, 2));
        let cases = [
            (with(admit.clone(), None), Some((LostOrder, RepairMethod::RunAgain))),
            (with(admit.clone(), row(7, 2, 1)), None),
            (with(admit.clone(), row(8, 2, 1)), Some((Mismatched, RepairMethod::ByHand))),
            (with(admit.clone(), row(7, 3, 1)), Some((Mismatched, RepairMethod::ByHand))),
            (with(admit.clone(), row(7, 2, 4)), Some((NotReleased, RepairMethod::Release))),
            (with(admit.clone(), row(7, 1, 4)), Some((NotReleased, RepairMethod::Release))),
            (with(admit.clone(), row(8, 2, 4)), Some((Mismatched, RepairMethod::ByHand))),
            (with(admit.clone(), row(7, 2, 6)), Some((NotReleased, RepairMethod::Release))),
            (refused(admit.clone()), Some((NotReleased, RepairMethod::Release))),
            (refused(release.clone()), None),
            (refused(None), None),
            (buried(admit.clone(), None), None),
            (buried(admit, row(7, 2, 4)), Some((NotReleased, RepairMethod::Release))),
            (buried(None, None), None),
            (with(release.clone(), None), Some((ReleaseUnknownToMysql, RepairMethod::WriteCancelledRow))),
            (with(release.clone(), row(7, 2, 4)), None),
            (with(release, row(7, 2, 2)), Some((ReleasedAndLive, RepairMethod::Admit))),
            (with(None, row(7, 2, 1)), Some((NotAdmitted, RepairMethod::Admit))),
            (with(None, row(7, 2, 4)), None),
            (with(None, None), None),
        ];
        for (evidence, expected) in cases {
            let found = evidence.finding(VOUCHER);
            assert_eq!(found.map(|it| (it.kind, it.repair)), expected, "{evidence:?}");
            let is_of_user = found.is_none_or(|it| it.user.is_some() && it.units > 0);
            assert!(is_of_user, "{evidence:?}");
        }
    }

    #[test]
    fn a_row_of_before_the_journal_was_complete_need_not_be_known_to_it() {
        let is_told = |entry_ms: Option<u64>, created_ms, complete_since_ms| {
            let entry = entry_ms.map(|ms| EntryId { ms, seq: 0 });
            let row = row(7, 2, 1).map(|row| OrderRow { entry, created_ms, ..row });
            let evidence = Evidence { is_complete: true, complete_since_ms, row, ..Evidence::default() };
            evidence.finding(VOUCHER).is_some()
        };
        assert!(is_told(Some(1_000), None, 1_000) && !is_told(Some(999), None, 1_000));
        assert!(is_told(None, Some(1_000), 1_000) && !is_told(None, Some(999), 1_000));
        assert!(is_told(None, None, 1_000) && is_told(None, Some(5), 0));
        // A zero date, as old servers store it.
        assert!(!is_told(None, Some(0), 1_000));
    }

    #[test]
    fn of_an_order_with_lost_events_only_these_are_told_unless_it_is_lost_itself() {
        use DifferenceKind::*;
        let lost = Evidence { is_complete: true, lost_event_of: Some(7), ..Evidence::default() };
        let told = |note, row, refusal| {
            let evidence = Evidence { note, row, refusal, ..lost.clone() };
            let found = evidence.findings(VOUCHER).into_iter().flatten();
            found.map(|it| (it.kind, it.repair)).collect::<Vec<_>>()
        };
        assert_eq!(told(admit(7, 2), row(7, 2, 1), None), [(LostEvent, RepairMethod::RecordEvents)]);
        // Redis has already applied the event.
        assert_eq!(told(release(7, 2), row(7, 2, 1), None), [(LostEvent, RepairMethod::RecordEvents)]);
        assert_eq!(told(admit(7, 2), row(7, 2, 4), None), [(LostEvent, RepairMethod::RecordEvents)]);
        assert_eq!(told(release(7, 2), None, refusal(7)), [(LostEvent, RepairMethod::RecordEvents)]);
        assert_eq!(told(admit(7, 2), None, None), [(LostOrder, RepairMethod::RunAgain)]);
        assert_eq!(
            told(release(7, 2), None, None),
            [(ReleaseUnknownToMysql, RepairMethod::WriteCancelledRow)]
        );
        assert_eq!(told(None, None, None), [(LostEvent, RepairMethod::RunAgain)]);
    }

    #[test]
    fn without_a_complete_journal_only_what_was_acknowledged_and_is_nowhere_is_different() {
        let entries = vec![Entered { entry: EntryId { ms: 5, seq: 0 }, user: 7, quantity: 2 }];
        let with = |note, row| Evidence { entries: entries.clone(), note, row, ..Evidence::default() };
        let kind = |evidence: Evidence| evidence.finding(VOUCHER).map(|it| it.kind);
        assert_eq!(kind(with(None, None)), Some(DifferenceKind::LostOrder));
        assert_eq!(kind(with(admit(7, 2), None)), Some(DifferenceKind::LostOrder));
        assert_eq!(kind(with(None, row(8, 2, 1))), Some(DifferenceKind::Mismatched));
        assert_eq!(kind(with(admit(7, 2), row(7, 2, 4))), None, "a service may cancel by itself");
        assert_eq!(kind(with(release(7, 2), None)), None);
        assert_eq!(kind(Evidence { row: row(7, 2, 1), ..Evidence::default() }), None);
        assert_eq!(kind(Evidence { note: admit(7, 2), ..with(None, row(7, 2, 1)) }), None);
    }

    #[test]
    fn an_entry_of_another_user_under_the_orders_id_must_be_buried() {
        let entered = |ms, user| Entered { entry: EntryId { ms, seq: 0 }, user, quantity: 2 };
        for (note, row) in [(admit(7, 2), None), (None, row(7, 2, 1)), (admit(7, 2), row(7, 2, 1))] {
            for entries in [[entered(5, 7), entered(6, 8)], [entered(5, 8), entered(6, 7)]] {
                let (note, row, entries) = (note.clone(), row.clone(), entries.to_vec());
                let evidence = Evidence { is_complete: true, note, row, entries, ..Evidence::default() };
                let stranger = evidence.stranger(|_| false).map(|it| (it.kind, it.user));
                assert_eq!(stranger, Some((DifferenceKind::Mismatched, Some(8))), "{evidence:?}");
                assert_eq!(evidence.stranger(|user| user == 8), None);
                let told = evidence.finding(VOUCHER);
                assert!(told.is_none_or(|it| it.kind != DifferenceKind::Mismatched), "{evidence:?}");
            }
        }
        let alone = Evidence { entries: vec![entered(5, 8)], ..Evidence::default() };
        assert_eq!(alone.stranger(|_| false), None, "nobody else has the id");
    }

    #[test]
    fn a_status_is_set_by_others_where_no_event_leads_to_it() {
        let events = |status| EventSum { releases: 0, released: 0, status, last_ms: 5 };
        let by_others =
            |status, events: Option<EventSum>| is_set_by_others(&row(7, 2, status).unwrap(), events.as_ref());
        assert!(!by_others(1, None) && !by_others(4, None) && by_others(2, None) && by_others(6, None));
        assert!(!by_others(2, Some(events(Some(2)))) && by_others(3, Some(events(Some(2)))));
        assert!(by_others(2, Some(events(None))) && !by_others(1, Some(events(None))));
    }

    #[test]
    fn of_what_is_older_than_the_cut_off_only_used_orders_may_be_missing_in_the_journal() {
        let events =
            |status, last_ms| Some(EventSum { releases: 0, released: 0, status: Some(status), last_ms });
        let missing = |row, events| Evidence {
            is_complete: true,
            compacted_before_ms: Some(9),
            row,
            events,
            ..Evidence::default()
        };
        let kind = |evidence: &Evidence| evidence.finding(VOUCHER).map(|it| it.kind);
        let lacking = Some(DifferenceKind::NotAdmitted);
        assert_eq!(kind(&missing(row(7, 2, 3), events(3, 8))), None);
        for (evidence, why) in [
            (missing(row(7, 2, 2), events(2, 8)), "it is live and may be refunded"),
            (missing(row(7, 2, 3), events(3, 9)), "it was used since"),
            (missing(row(7, 2, 3), events(2, 8)), "somebody else set its status"),
            (
                Evidence { compacted_before_ms: Some(5), ..missing(row(7, 2, 3), events(3, 4)) },
                "it came since",
            ),
            (
                Evidence { compacted_before_ms: None, ..missing(row(7, 2, 3), events(3, 8)) },
                "nothing was compacted",
            ),
        ] {
            assert_eq!(kind(&evidence), lacking, "{why}");
        }
        let by_hand = |row: &mut Option<OrderRow>| row.as_mut().unwrap().entry = None;
        let mut unknown = missing(row(7, 2, 3), events(3, 8));
        by_hand(&mut unknown.row);
        assert_eq!(kind(&unknown), lacking, "nobody knows when it came");
    }

    #[test]
    fn a_user_is_barred_who_has_an_order_and_no_other() {
        let user = |is_buyer, live, dead, is_told| UserEvidence { is_buyer, live, dead, is_told };
        let kind = |user: UserEvidence| user.finding(7).map(|it| it.kind);
        assert_eq!(kind(user(true, None, None, false)), Some(DifferenceKind::BarredWithoutOrder));
        assert_eq!(kind(user(true, None, None, true)), None);
        assert_eq!(kind(user(true, Some(1), None, false)), None);
        assert_eq!(kind(user(true, None, Some(1), false)), None);
        assert_eq!(kind(user(false, Some(1), None, false)), Some(DifferenceKind::NotBarred));
        assert_eq!(kind(user(false, None, None, false)), None);
    }
}
