//! Tests of the count of results that were deleted before a webhook had sent them.

use std::{ops::RangeInclusive, time::Duration};

use anyhow::Result;
use tidegate_orders::{ResultsPruner, webhook_notes};

use crate::fixture::Fixture;

const RESULTS: &str = "results";
/// Redis deletes whole nodes of this many entries.
const NODE: usize = 100;

impl Fixture {
    /// Adds results that were published long ago.
    async fn add_results(&self, ids: RangeInclusive<usize>) -> Result<()> {
        for id in ids {
            self.typed(&format!("XADD {RESULTS} {id}-0 n {id}")).await?;
        }
        Ok(())
    }

    async fn prune_by_age(&self) -> Result<u64> {
        let keep = (Some(Duration::from_secs(1)), None);
        Ok(ResultsPruner::new(&self.store, RESULTS, keep).run_once().await?)
    }

    async fn lost(&self, webhook: &str) -> Result<u64> {
        Ok(webhook_notes::read(&self.store, webhook).await?.lost)
    }
}

#[tokio::test]
async fn of_the_deleted_results_those_count_that_a_webhook_had_not_read_or_not_sent() -> Result<()> {
    let fixture = Fixture::new().await?;
    fixture.add_results(1..=3 * NODE).await?;
    for (group, read) in [("webhook:none", 0), ("webhook:half", 150), ("webhook:all", 300), ("shop", 0)] {
        fixture.typed(&format!("XGROUP CREATE {RESULTS} {group} 0")).await?;
        if read > 0 {
            let command = format!("XREADGROUP GROUP {group} c COUNT {read} STREAMS {RESULTS} >");
            fixture.typed(&command).await?;
        }
    }
    // Of what they have read, the first two are pending.
    for (group, from) in [("webhook:half", 3), ("webhook:all", 3)] {
        let ids: Vec<String> = (from..=300).map(|id| format!("{id}-0")).collect();
        fixture.typed(&format!("XACK {RESULTS} {group} {}", ids.join(" "))).await?;
    }
    assert_eq!(fixture.prune_by_age().await?, 300);
    assert_eq!(fixture.lost("none").await?, 300);
    assert_eq!(fixture.lost("half").await?, 150 + 2);
    assert_eq!(fixture.lost("all").await?, 2);
    let notes = webhook_notes::read_all(&fixture.store).await?;
    assert_eq!(notes.len(), 3, "no other group is counted");

    fixture.add_results(301..=400).await?;
    assert_eq!(fixture.prune_by_age().await?, 100);
    assert_eq!((fixture.lost("none").await?, fixture.lost("half").await?), (400, 252));
    assert_eq!(fixture.lost("all").await?, 102, "what was added later was not read");
    Ok(())
}

#[tokio::test]
async fn a_webhook_that_keeps_up_loses_nothing_by_age_or_by_size() -> Result<()> {
    let fixture = Fixture::new().await?;
    fixture.typed(&format!("XGROUP CREATE {RESULTS} webhook:shop $ MKSTREAM")).await?;
    fixture.add_results(1..=1000).await?;
    fixture.typed(&format!("XREADGROUP GROUP webhook:shop c NOACK STREAMS {RESULTS} >")).await?;
    let by_size = ResultsPruner::new(&fixture.store, RESULTS, (None, Some(10_000)));
    // Servers need different memory for the same results.
    assert!(by_size.run_once().await? > 300);
    fixture.prune_by_age().await?;
    assert_eq!(fixture.lost("shop").await?, 0);
    Ok(())
}
