//! What Redis knows of the orders: streams, pending list, journals, stocks.

use std::collections::{HashMap, HashSet};

use fred::{
    clients::Pool,
    interfaces::ClientLike,
    types::{ClusterHash, CustomCommand, Key, Value},
};
use tidegate_stream::{
    Entry, EntryId, History, PageSize, StreamError, StreamInspector, letter as dead, server_time_ms,
};

use super::{
    admission::Movement,
    admissions::OrderKey,
    input::{AuditInput, AuditLetter},
};
use tidegate_orders::{
    Gate, JournalField, JournalNote, JournalSum, Keys, OrderId, Sum, VoucherId,
    gate::SumCheck,
    keys::naming,
    sale,
    wire::{FieldNames, Glimpse, Message},
};

/// Entries a page, at most: some milliseconds of the one thread that also admits.
const PAGE: u16 = 2_000;
/// Fields a page of a journal, and ids a lookup.
const JOURNAL_PAGE: i64 = 1_000;
const LOOKUP: usize = 500;
/// Who gives back the second order of a user; see [`tidegate_orders::handler`].
const SECOND_ORDER: &str = "worker:user_has_order";

/// Reads Redis, and remembers how far it has read.
pub(super) struct RedisReader<'a> {
    pool: &'a Pool,
    gate: Gate,
    inspector: StreamInspector,
    keys: &'a Keys,
    only: Option<VoucherId>,
    read_to: EntryId,
    dead_read_to: EntryId,
    /// What the group had still to do before anything else was read.
    open_before: OpenEntries,
}

/// What the group has still to do: all after `delivered`, and its pending list.
#[derive(Default)]
struct OpenEntries {
    delivered: EntryId,
    pending: HashSet<EntryId>,
}

impl OpenEntries {
    fn has(&self, entry: EntryId) -> bool {
        entry > self.delivered || self.pending.contains(&entry)
    }
}

/// How far a stream was read.
struct At {
    after: EntryId,
    size: PageSize,
}

impl At {
    fn after(after: EntryId) -> Self {
        Self { after, size: PageSize::new(PAGE) }
    }
}

impl<'a> RedisReader<'a> {
    pub(super) fn new(
        pool: &'a Pool,
        inspector: StreamInspector,
        keys: &'a Keys,
        only: Option<VoucherId>,
    ) -> Self {
        let gate = Gate::new(pool.clone(), keys.clone(), inspector.names().stream.as_str());
        let (read_to, dead_read_to, open_before) = (EntryId::MIN, EntryId::MIN, OpenEntries::default());
        Self { pool, gate, inspector, keys, only, read_to, dead_read_to, open_before }
    }

    /// What the group has still to do before anything else is read: an event that is done by now has done all that it does, in
    /// both stores.
    pub(super) async fn read_open_before(&mut self) -> Result<(), StreamError> {
        self.open_before = self.open_entries().await?;
        Ok(())
    }

    /// Where the stream ends, then what Redis offers of the vouchers that MySQL has: in this order, and at once, since
    /// whatever is admitted between the two hides as much of a surplus.
    pub(super) async fn read_redis_stocks(&self, input: &mut AuditInput) -> Result<(), StreamError> {
        let end = self.inspector.last_id(&self.inspector.names().stream).await?;
        let vouchers = input.measured();
        let stocks = sale::read_stocks(self.pool, self.keys, &vouchers).await?;
        input.set_redis_stocks(end, vouchers.into_iter().zip(stocks));
        Ok(())
    }

    /// All entries that the stream holds now.
    pub(super) async fn read_stream(&mut self, input: &mut AuditInput) -> Result<(), StreamError> {
        let stream = self.inspector.names().stream.clone();
        let length = self.inspector.length(&stream).await?;
        input.reserve(usize::try_from(length).unwrap_or(0));
        let at_ms = server_time_ms(self.pool).await?;
        let last = self.inspector.last_id(&stream).await?;
        let mut at = At::after(EntryId::MIN);
        while let Some(page) = self.next_page(&stream, &mut at, last).await? {
            for entry in page {
                match self.keys.fields().decode_message(&entry) {
                    Ok(Message::Order(order)) if self.is_wanted(order.voucher) => {
                        input.add_entry(entry.id, &order);
                    }
                    Ok(Message::Event(event)) if self.is_wanted(event.voucher) => {
                        input.add_event((event.voucher, event.order), self.open_before.has(entry.id));
                    }
                    Ok(_) => {}
                    Err(error) => {
                        if error.has_other_names() {
                            input.add_misnamed(&error);
                        }
                        let could_be_order = could_be_order(&entry, self.keys.fields());
                        input.add_unreadable(entry.id, &followed(&entry), could_be_order);
                    }
                }
            }
        }
        self.read_to = last;
        input.set_read_to(last, at_ms);
        input.sort();
        Ok(())
    }

    /// Where the group stands.
    pub(super) async fn read_in_flight(&self, input: &mut AuditInput) -> Result<(), StreamError> {
        let OpenEntries { delivered, pending } = self.open_entries().await?;
        input.set_in_flight(delivered, &pending);
        Ok(())
    }

    /// The boundary comes first: an entry that is delivered after this is beyond the boundary, whatever becomes of it.
    async fn open_entries(&self) -> Result<OpenEntries, StreamError> {
        let delivered = self.inspector.last_delivered().await?.unwrap_or(EntryId::MIN);
        let mut pending = HashSet::new();
        let mut after = EntryId::MIN;
        loop {
            let page = self.inspector.pending(after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = *last;
            pending.extend(page);
        }
        Ok(OpenEntries { delivered, pending })
    }

    /// All letters that the dead stream holds now.
    pub(super) async fn read_dead(&mut self, input: &mut AuditInput) -> Result<(), StreamError> {
        let letters = self.new_letters().await?;
        input.add_letters(&letters);
        Ok(())
    }

    /// The vouchers that have a journal, or the one that is wanted: MySQL may have lost its row, and the stream its
    /// entries.
    pub(super) async fn vouchers(&self) -> Result<Vec<VoucherId>, StreamError> {
        match self.only {
            Some(voucher) => Ok(vec![voucher]),
            None => Ok(sale::find_journaled(self.pool, self.keys, |_| {}).await?),
        }
    }

    /// The journals and stocks of all vouchers that were named so far, the stock first: what is given back after it was
    /// read is told by the journal. A key that holds something else than it should is a finding about its voucher, and keeps
    /// no other from being read.
    pub(super) async fn read_journals(&self, input: &mut AuditInput) -> Result<(), StreamError> {
        for voucher in input.vouchers() {
            let mut key = self.keys.stock(voucher);
            let mut stock = self.call("GET", &key, Vec::new()).await;
            if stock.as_ref().is_ok_and(Value::is_null) {
                key = self.keys.limited(voucher);
                stock = self.call("GET", &key, Vec::new()).await;
            }
            let stock = input.keep(voucher, stock)?.filter(|stock| !stock.is_null());
            if let Some(text) = stock.as_ref().filter(|stock| stock.as_i64().is_none()) {
                let text = text.as_str_lossy().unwrap_or_default();
                let what = format!("{} holds {text:?}, which is no number", key.as_str_lossy());
                input.add_wrong_stock(voucher, what);
            }
            input.set_redis_stock(voucher, stock.and_then(|stock| stock.as_i64()));
            // A key of another type is told by the commands that read it alone.
            let moment = self.gate.moment(voucher).await.ok().filter(|moment| moment.is_complete);
            let mut sum = moment.map(JournalSum::new);
            let mut cursor = Value::from("0");
            loop {
                let args = vec![cursor, "COUNT".into(), JOURNAL_PAGE.into()];
                let page = self.call("HSCAN", &self.keys.journal(voucher), args).await;
                let Some(page) = input.keep(voucher, page)? else { break };
                let (next, fields): (Value, Vec<Value>) = page.convert()?;
                add_up(&mut sum, &fields);
                input.add_journal(voucher, movements(&fields));
                cursor = next;
                if cursor.as_bytes() == Some(b"0") {
                    input.set_journal_sum(voucher, self.sum(voucher, sum).await);
                    break;
                }
            }
        }
        input.sort();
        Ok(())
    }

    /// What the journal says of the stock; looks again where the first look could not tell.
    async fn sum(&self, voucher: VoucherId, sum: Option<JournalSum>) -> Option<Sum> {
        let sum = sum?.finish(&self.gate.moment(voucher).await.ok()?);
        match sum {
            Sum::Unsure => match self.gate.check_sum(voucher, u64::MAX).await.ok()? {
                SumCheck::Checked(_, sum) => Some(sum),
                SumCheck::NotComplete | SumCheck::TooLarge(_) => None,
            },
            sum => Some(sum),
        }
    }

    /// Looks for orders that were nowhere: they may have arrived, been given back or been buried since.
    pub(super) async fn look_again(
        &mut self,
        input: &mut AuditInput,
        unresolved: &[OrderKey],
    ) -> Result<(), StreamError> {
        let (stream, mut at) = (self.inspector.names().stream.clone(), At::after(self.read_to));
        let last = self.inspector.last_id(&stream).await?;
        while let Some(page) = self.next_page(&stream, &mut at, last).await? {
            for entry in page {
                match self.keys.fields().decode_message(&entry) {
                    Ok(Message::Order(order)) => input.add_late_entry(order.voucher, order.id),
                    Ok(Message::Event(event)) if self.is_wanted(event.voucher) => {
                        input.add_late_event((event.voucher, event.order));
                    }
                    Ok(Message::Event(_)) => {}
                    Err(_) => input.add_late_unreadable(&followed(&entry)),
                }
            }
        }
        let letters = self.new_letters().await?;
        input.add_late_letters(&letters);
        let mut by_voucher: HashMap<VoucherId, Vec<OrderId>> = HashMap::new();
        for (voucher, order) in unresolved {
            by_voucher.entry(*voucher).or_default().push(*order);
        }
        for (voucher, orders) in by_voucher {
            for orders in orders.chunks(LOOKUP) {
                let ids = orders.iter().map(|order| order.to_string().into()).collect();
                let values = self.call("HMGET", &self.keys.journal(voucher), ids).await;
                let Some(values) = input.keep(voucher, values)? else { continue };
                let values: Vec<Value> = values.convert()?;
                let known =
                    orders.iter().zip(&values).filter_map(|(order, value)| Some((*order, movement(value)?)));
                input.add_journal(voucher, known.collect());
            }
        }
        Ok(())
    }

    /// Letters that came since the last look.
    async fn new_letters(&mut self) -> Result<Vec<AuditLetter>, StreamError> {
        let dead = self.inspector.names().dead.clone();
        let last = self.inspector.last_id(&dead).await?;
        let mut letters = Vec::new();
        let mut at = At::after(self.dead_read_to);
        while let Some(page) = self.next_page(&dead, &mut at, last).await? {
            letters.extend(page.into_iter().filter_map(|entry| letter(self.keys.fields(), entry)));
        }
        self.dead_read_to = last;
        let is_wanted =
            |letter: &AuditLetter| letter.order.as_ref().is_none_or(|order| self.is_wanted(order.voucher));
        letters.retain(is_wanted);
        Ok(letters)
    }

    async fn next_page(
        &self,
        key: &str,
        at: &mut At,
        last: EntryId,
    ) -> Result<Option<Vec<Entry>>, StreamError> {
        let page = self.inspector.page(key, (at.after, last), at.size.count(u64::MAX)).await?;
        at.size.learn(page.iter().map(|entry| &entry.fields));
        Ok(page.last().map(|entry| entry.id).map(|id| {
            at.after = id;
            page
        }))
    }

    fn is_wanted(&self, voucher: VoucherId) -> bool {
        self.only.is_none_or(|only| only == voucher)
    }

    async fn call(&self, command: &'static str, key: &Key, args: Vec<Value>) -> Result<Value, StreamError> {
        let command = CustomCommand::new_static(command, ClusterHash::FirstKey, false);
        let args: Vec<Value> = std::iter::once(key.clone().into()).chain(args).collect();
        Ok(self.pool.next().custom(command, args).await.map_err(|error| naming(key, error))?)
    }
}

/// An order has a user, a voucher and an id, whatever its producer calls them. What has fewer fields, and none of an order's,
/// is no order that somebody wrote wrongly: tutorials make the stream by `XADD stream.orders * init 1`.
fn could_be_order(entry: &Entry, names: &FieldNames) -> bool {
    let Glimpse { id, user, voucher } = names.glimpse(entry);
    entry.fields.len() >= 3 || id.is_some() || user.is_some() || voucher.is_some()
}

/// The entries that went before this one, which was put back out of the dead letters.
fn followed(entry: &Entry) -> Vec<EntryId> {
    History::of(entry).burials.iter().map(|burial| burial.entry).collect()
}

/// Reads a letter. One that does not say which entry it was is none of ours.
fn letter(fields: &FieldNames, entry: Entry) -> Option<AuditLetter> {
    let letter = dead::Letter::parse(entry);
    let entry = letter.burial.as_ref()?.entry;
    let followed = letter.history.burials.iter().map(|burial| burial.entry).collect();
    Some(AuditLetter { entry, followed, order: fields.decode(&letter.entry()).ok() })
}

fn narrow(units: u64) -> u16 {
    u16::try_from(units).unwrap_or(0)
}

fn add_up(sum: &mut Option<JournalSum>, fields: &[Value]) {
    let Some(sum) = sum else { return };
    for pair in fields.chunks_exact(2) {
        let note = pair[1].as_bytes().and_then(JournalNote::parse).unwrap_or_default();
        sum.add(JournalField::parse(&pair[0].as_str().unwrap_or_default()), &note);
    }
}

fn movements(fields: &[Value]) -> Vec<(OrderId, Movement)> {
    let pairs = fields.chunks_exact(2);
    pairs.filter_map(|pair| Some((OrderId::parse(pair[0].as_bytes()?).ok()?, movement(&pair[1])?))).collect()
}

/// A note that cannot be read still says that the order was admitted.
fn movement(value: &Value) -> Option<Movement> {
    let unreadable = Movement::Admit { user: None, quantity: 0, at_ms: 0 };
    let Some(entry) = JournalNote::parse(value.as_bytes()?) else { return Some(unreadable) };
    let units = narrow(entry.change.map_or(0, i64::unsigned_abs));
    if entry.is_release() {
        let is_second_order = entry.by.as_deref() == Some(SECOND_ORDER);
        return Some(Movement::Release { second_order_units: if is_second_order { units } else { 0 } });
    }
    Some(Movement::Admit {
        user: entry.by.and_then(|user| user.parse().ok()),
        quantity: units,
        at_ms: entry.at_ms.and_then(|at_ms| u64::try_from(at_ms).ok()).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_of_the_scripts_is_read() {
        let admit = r#"{"action":"admit","from":5,"to":3,"change":-2,"by":"77","timestamp":1}"#;
        let user = 77.try_into().ok();
        assert_eq!(movement(&admit.into()), Some(Movement::Admit { user, quantity: 2, at_ms: 1 }));
        let release =
            r#"{"action":"release","from":null,"to":null,"change":0,"by":"worker:x","timestamp":1}"#;
        assert_eq!(movement(&release.into()), Some(Movement::Release { second_order_units: 0 }));
        let second =
            r#"{"action":"release","from":1,"to":3,"change":2,"by":"worker:user_has_order","timestamp":1}"#;
        assert_eq!(movement(&second.into()), Some(Movement::Release { second_order_units: 2 }));
        assert_eq!(movement(&"{".into()), Some(Movement::Admit { user: None, quantity: 0, at_ms: 0 }));
        assert_eq!(movement(&Value::Null), None);
    }
}
