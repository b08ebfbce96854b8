//! One transaction for a batch, and what it is decided from.

use super::{
    Incoming, Ledger,
    fault::{self, Fault},
    knowledge::{self, Knowledge, Misfit},
    session::Session,
    sql::{self, Depth, Guard, Stocks},
    verdict::{self, Decided, Known, Verdict},
};

impl Ledger {
    /// Decides a batch, and writes what was decided, from as little knowledge as will do.
    pub(super) async fn attempt(&self, part: &[&Incoming]) -> Result<Vec<Verdict>, Fault> {
        let mut session = Session::open(&self.pool).await?;
        let outcome = self.attempt_in(&mut session, part).await;
        session.end(outcome).await
    }

    async fn attempt_in(&self, session: &mut Session, part: &[&Incoming]) -> Result<Vec<Verdict>, Fault> {
        let mut knowledge = self.first.max(self.caution.knowledge());
        loop {
            let mut known = match knowledge {
                Knowledge::Assumed => Known::assumed(part),
                Knowledge::Looked(depth) => look_up(session, part, depth).await?,
                Knowledge::Locked => sql::look_up(session, part, Stocks::Locked, Depth::Ids).await?,
            };
            self.note_refusals(&known);
            let decided = verdict::decide(part.iter().copied(), &mut known);
            match self.write(session, part, &decided, (knowledge, &known)).await? {
                Ok(()) => {
                    self.caution.needed(knowledge::needed(part, &decided, &known));
                    return Ok(decided.into_iter().map(|decided| decided.verdict).collect());
                }
                Err(misfit) => knowledge = knowledge.after(misfit),
            }
        }
    }

    /// Writes and commits what was decided. The inner error: it does not fit what is there, and nothing was written.
    async fn write(
        &self,
        session: &mut Session,
        part: &[&Incoming],
        decided: &[Decided],
        (knowledge, known): (Knowledge, &Known),
    ) -> Result<Result<(), Misfit>, Fault> {
        let changes = verdict::changes(part, decided);
        if changes.is_empty() {
            if knowledge == Knowledge::Locked {
                sql::run(session, sql::COMMIT.to_owned()).await?;
            }
            if decided.iter().any(rests_on_a_row) {
                // A row that was only read may be visible a moment before it is durable.
                sql::run(session, sql::BARRIER.to_owned()).await?;
            }
            return Ok(Ok(()));
        }
        let guard = match knowledge {
            Knowledge::Locked => Guard::Locked,
            _ if changes.splits_a_stock() => return Ok(Err(Misfit::SplitStock)),
            _ if !self.has_refusals(part) => Guard::Unrefused,
            Knowledge::Looked(Depth::Users | Depth::Ids) => {
                let refused_of =
                    changes.stocks.iter().filter_map(|(voucher, _)| known.refused_of.get(voucher));
                Guard::NotSince(refused_of.sum())
            }
            _ => Guard::NotThese,
        };
        let mut packet = sql::write(&changes, guard);
        let commits_apart = self.commits_apart();
        if !commits_apart {
            packet.commit();
        }
        match packet.run(session).await {
            Ok(()) => {}
            Err(error) => match fault::misfit(&error).filter(|_| guard != Guard::Locked) {
                Some(misfit) => {
                    sql::run(session, sql::ROLLBACK.to_owned()).await?;
                    return Ok(Err(misfit));
                }
                None => return Err(error.into()),
            },
        }
        if commits_apart {
            sql::run(session, sql::COMMIT.to_owned()).await?;
        }
        Ok(Ok(()))
    }
}

/// Looks up as much as is needed, and all that there is of orders whose vouchers are not there: nothing is written for
/// these, so no write would check what was not looked up.
async fn look_up(session: &mut Session, part: &[&Incoming], depth: Depth) -> Result<Known, Fault> {
    let mut known = sql::look_up(session, part, Stocks::AsTheyAre, depth).await?;
    let is_unknown = |incoming: &&&Incoming| !known.stocks.contains_key(&incoming.order.voucher);
    let unknown: Vec<&Incoming> = part.iter().filter(is_unknown).copied().collect();
    if depth < Depth::Ids && !unknown.is_empty() {
        known.add(sql::look_up(session, &unknown, Stocks::AsTheyAre, Depth::Ids).await?);
    }
    Ok(known)
}

/// Nothing was written for it because something is there.
fn rests_on_a_row(decided: &Decided) -> bool {
    !decided.is_new && matches!(decided.verdict, Verdict::AlreadyThere | Verdict::Refused(_))
}
