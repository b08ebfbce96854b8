//! Pausing all workers.

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_orders::Keys;

use crate::{
    config::Settings,
    connect,
    exit::Exit,
    fleet_pause::{self, FleetPause, Wanted},
    operator::{Change, ChangeArgs, Ending, Job, Next, Plan, Report},
};

/// What was found and, then, what was done.
#[derive(Debug, Serialize)]
struct Answer {
    /// `paused`, `paused_before` or `refused`; of a dry run `would_pause`.
    outcome: &'static str,
    /// The pause that is there, or was before.
    before: Option<FleetPause>,
    /// When the new one ends by itself; None: when somebody resumes the workers.
    ends_in_s: Option<f64>,
    #[serde(skip)]
    wanted: Wanted,
}

impl Answer {
    fn length(&self) -> String {
        self.ends_in_s
            .map_or_else(|| "until they are resumed".to_owned(), |ends_in_s| format!("for {ends_in_s} s"))
    }
}

impl Plan for Answer {
    fn text(&self) -> String {
        let before = self.before.as_ref();
        let before = before.map(|before| format!("they are paused {}; {}", before.origin(), before.end()));
        match (self.outcome, before) {
            ("would_pause", None) => format!("all workers would stop reading, {}", self.length()),
            ("would_pause", Some(before)) => {
                format!("{before}\nthis would be replaced: they would be paused {}", self.length())
            }
            (_, before) => before.unwrap_or_default(),
        }
    }

    fn next(&self) -> Next {
        match (self.outcome, &self.before) {
            ("would_pause", None) => Next::Ask("Pause all workers?".to_owned()),
            ("would_pause", Some(_)) => Next::Ask("Replace the pause of all workers?".to_owned()),
            _ => Next::Nothing(Exit::Ok),
        }
    }
}

impl Report for Answer {
    fn text(&self) -> String {
        match self.outcome {
            "paused" => format!("all workers stop reading within 2 s, {}", self.length()),
            _ => "somebody else has paused them meanwhile: look at tidegate status".to_owned(),
        }
    }

    fn counts(&self) -> Json {
        json!({ "paused": u8::from(self.outcome == "paused") })
    }

    fn ending(&self) -> Ending {
        if self.outcome == "paused" { Ending::Done } else { Ending::Refused }
    }
}

/// Pauses them.
pub async fn pause(settings: &Settings, wanted: Wanted, args: &ChangeArgs) -> anyhow::Result<Exit> {
    let (redis, keys) = (connect::redis(settings).await?, Keys::new(settings.keys.clone()));
    let before = FleetPause::read(&redis, &keys).await.context("Failed to look whether they are paused")?;
    // The same again changes nothing; another end or another reason does.
    let is_same =
        |before: &FleetPause| before.ends_in_s.is_none() && wanted.span.is_none() && wanted.reason.is_none();
    let outcome = if before.as_ref().is_some_and(is_same) { "paused_before" } else { "would_pause" };
    let ends_in_s = wanted.span.map(|span| span.as_secs_f64());
    let plan = Answer { outcome, before, ends_in_s, wanted };
    let work = async |plan: Answer, _job: &Job| {
        let set = fleet_pause::set(&redis, &keys, &plan.wanted, plan.before.as_ref()).await;
        let outcome = if set.context("Failed to pause the workers")? { "paused" } else { "refused" };
        Ok(Answer { outcome, ..plan })
    };
    Change::new(settings, args).run(plan, work).await
}
