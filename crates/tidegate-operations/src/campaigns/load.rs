//! Puts the regions of a campaign on sale. Each region has its own voucher, and all are sold under the limits of the
//! campaign.

use std::collections::HashSet;

use anyhow::Context;
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};
use tidegate_compare::{Job, text::counted};
use tidegate_orders::{CampaignId, Partition, VoucherId, limit_rows, scripts::JournalUse};

use crate::{
    change::{End, Ending, InvalidInput, Next, Plan, Report},
    vouchers::{
        MAX_STOCK, VoucherStores,
        load::{self, LoadOutcome, LoadRefusal, LoadRequest},
    },
};

const MOST_NAME_BYTES: usize = 32;

/// A region of a campaign, with its voucher and its stock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Region {
    /// The name of the region: 1 to 32 characters of `A-Z a-z 0-9 _ . -`.
    pub region: String,
    /// The voucher that the region sells.
    pub voucher: VoucherId,
    /// The number of units that the region sells.
    pub stock: i64,
}

/// Parses a file with one line `region,voucher,stock` for each region. Empty lines, lines that begin with `#`, and the
/// header `region,voucher,stock` are skipped.
///
/// # Errors
/// Names every line that cannot be read, and every region or voucher that the file has twice.
pub fn parse_regions(text: &str) -> Result<Vec<Region>, InvalidInput> {
    let (mut regions, mut faults) = (Vec::new(), Vec::new());
    let (mut names, mut vouchers) = (HashSet::new(), HashSet::new());
    for (at, line) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') || line.replace(' ', "") == "region,voucher,stock" {
            continue;
        }
        match parse_region(line) {
            Ok(region) if !names.insert(region.region.clone()) => {
                faults.push(format!("line {at}: the region {} is in the file twice", region.region));
            }
            Ok(region) if !vouchers.insert(region.voucher) => {
                faults.push(format!("line {at}: voucher {} is in the file twice", region.voucher));
            }
            Ok(region) => regions.push(region),
            Err(fault) => faults.push(format!("line {at}: {fault}")),
        }
    }
    if regions.is_empty() && faults.is_empty() {
        faults.push(
            "the file has no region; write lines such as north,101,5000: region, voucher, units".to_owned(),
        );
    }
    if faults.is_empty() { Ok(regions) } else { Err(InvalidInput(faults.join("\n"))) }
}

fn parse_region(line: &str) -> Result<Region, String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [region, voucher, stock] = fields[..] else {
        return Err("a line must have region, voucher and units, such as north,101,5000".to_owned());
    };
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if region.is_empty() || region.len() > MOST_NAME_BYTES || !region.bytes().all(is_letter) {
        return Err(format!(
            "{region:?} is not a valid region name; use 1 to 32 characters of A-Z a-z 0-9 _ . -"
        ));
    }
    let voucher = voucher.parse().map_err(|_| format!("{voucher:?} is not a voucher id"))?;
    let stock = stock.parse().ok().filter(|stock| (1..=MAX_STOCK).contains(stock));
    let stock =
        stock.ok_or_else(|| format!("{:?} is not a number of units from 1 to {MAX_STOCK}", fields[2]))?;
    Ok(Region { region: region.to_owned(), voucher, stock })
}

/// The request to put a campaign on sale.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CampaignLoad {
    /// The id of the campaign to put on sale.
    pub campaign: CampaignId,
    /// The regions of a new campaign, or the regions to add to an existing campaign.
    pub regions: Vec<Region>,
    /// The time when the sale begins; None: the sale begins now.
    pub begin: Option<Timestamp>,
    /// The time when the sale ends; None: the sale never ends.
    pub end: Option<Timestamp>,
    /// The time limit for the payment of an order, in seconds. 0: orders never expire. None: the time limit of the
    /// configuration applies.
    pub pay_within_s: Option<i64>,
}

impl CampaignLoad {
    /// Checks the request: the end of the sale must be in the future, and the partition tags must put all vouchers into
    /// one partition.
    ///
    /// # Errors
    /// If the campaign cannot be sold; the error names ids that are in one partition.
    pub fn check(&self, now: Timestamp, tags: &[String]) -> Result<(), InvalidInput> {
        let Some(first) = self.regions.first() else { return Ok(()) };
        self.request(first).check(now)?;
        let (own, many) = (|voucher| Partition::index_of(voucher, tags.len()), tags.len().max(1) as i64);
        let Some(mismatch) =
            self.regions.iter().find(|it| tags.len() > 1 && own(it.voucher) != own(first.voucher))
        else {
            return Ok(());
        };
        let ids: Vec<String> = (0..self.regions.len() as i64)
            .filter_map(|nth| first.voucher.get().checked_add(nth.checked_mul(many)?))
            .map(|id| id.to_string())
            .collect();
        Err(InvalidInput(format!(
            "vouchers {} and {} are in different partitions, but a campaign must be in one partition; use ids such as {}",
            first.voucher,
            mismatch.voucher,
            ids.join(", ")
        )))
    }

    fn request(&self, region: &Region) -> LoadRequest {
        LoadRequest {
            voucher: region.voucher,
            stock: region.stock,
            begin: self.begin,
            end: self.end,
            pay_within_s: self.pay_within_s,
            journal: JournalUse::Complete,
        }
    }
}

/// The reason why a region of a campaign is not put on sale.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegionRefusal {
    /// The campaign has this region with another voucher.
    #[error("the campaign already has this region, with voucher {0}")]
    OtherVoucher(VoucherId),
    /// The voucher is sold under the limits of another campaign.
    #[error("the voucher of the region is in campaign {0}")]
    OtherCampaign(CampaignId),
    /// The voucher of the region cannot be loaded.
    #[error("{0}")]
    Load(LoadRefusal),
}

impl Serialize for RegionRefusal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The planned or actual result of putting a region on sale.
#[derive(Clone, Debug, Serialize)]
pub struct RegionOutcome {
    /// The region of the request.
    #[serde(flatten)]
    pub region: Region,
    /// The result of loading the region.
    pub outcome: LoadOutcome,
    /// The reason why the region is refused; None: the region is not refused.
    #[serde(rename = "reason")]
    pub refusal: Option<RegionRefusal>,
}

/// The plan or the report of loading a campaign.
#[derive(Clone, Debug, Serialize)]
pub struct CampaignLoadState {
    /// The campaign that is put on sale.
    pub campaign: CampaignId,
    /// The result for each region of the request.
    pub regions: Vec<RegionOutcome>,
    /// The data in the stores that the load would overwrite. The command asks the operator before it overwrites this
    /// data.
    pub overwrites: Vec<String>,
    #[serde(skip)]
    request: CampaignLoad,
}

impl CampaignLoadState {
    /// Returns whether any region is refused.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.regions.iter().any(|region| region.refusal.is_some())
    }

    /// Returns a copy of the plan as a report in which no region is loaded yet.
    #[must_use]
    pub fn begun(&self) -> Self {
        Self { regions: Vec::new(), ..self.clone() }
    }
}

impl Plan for CampaignLoadState {
    fn next(&self) -> Next {
        let is_done = |region: &RegionOutcome| region.outcome == LoadOutcome::LoadedBefore;
        match () {
            () if self.is_refused() => Next::Refused,
            () if self.regions.iter().all(is_done) => Next::NothingToDo,
            () if self.overwrites.is_empty() => Next::Go,
            () => Next::Ask(format!("Load campaign {} anyway?", self.campaign)),
        }
    }
}

impl Report for CampaignLoadState {
    fn counts(&self) -> Json {
        let loaded: Vec<_> = self.regions.iter().filter(|region| region.refusal.is_none()).collect();
        json!({ "regions": loaded.len(), "units": loaded.iter().map(|it| it.region.stock).sum::<i64>() })
    }

    fn ending(&self) -> Ending {
        if self.is_refused() { Ending::Partly } else { Ending::Done }
    }
}

/// Reads the campaign in Redis and MySQL, plans the load, and changes nothing.
///
/// # Errors
/// If a store does not answer.
pub async fn plan(stores: &VoucherStores, request: CampaignLoad) -> anyhow::Result<CampaignLoadState> {
    const FAILED: &str = "Failed to read the campaign in MySQL";
    let known = limit_rows::regions(stores.mysql(), request.campaign).await.context(FAILED)?;
    let (mut regions, mut overwrites) = (Vec::new(), Vec::new());
    for region in &request.regions {
        let known = known.iter().find(|(name, _)| *name == region.region).map(|(_, voucher)| *voucher);
        let campaign = limit_rows::campaign_of(stores.mysql(), region.voucher).await.context(FAILED)?;
        let other = match (known, campaign) {
            (Some(voucher), _) if voucher != region.voucher => Some(RegionRefusal::OtherVoucher(voucher)),
            (_, Some(other)) if other != request.campaign => Some(RegionRefusal::OtherCampaign(other)),
            // The voucher is in this campaign, but for another region.
            (None, Some(own)) => Some(RegionRefusal::OtherCampaign(own)),
            _ => None,
        };
        let planned = load::plan(stores, request.request(region)).await?;
        let (outcome, refusal) = match other {
            Some(refusal) => (LoadOutcome::Refused, Some(refusal)),
            None => (planned.outcome, planned.refusal.map(RegionRefusal::Load)),
        };
        let (outcome, refusal) = as_loaded_before(known.is_some(), outcome, refusal);
        if outcome != LoadOutcome::LoadedBefore {
            overwrites.extend(planned.overwrites.map(|what| format!("region {}: {what}", region.region)));
        }
        // A voucher that is on sale may still be missing from the campaign.
        let outcome = match outcome {
            LoadOutcome::LoadedBefore if known.is_none() => LoadOutcome::WouldLoad,
            outcome => outcome,
        };
        regions.push(RegionOutcome { region: region.clone(), outcome, refusal });
    }
    Ok(CampaignLoadState { campaign: request.campaign, regions, overwrites, request })
}

/// Treats a region of this campaign that is on sale as loaded before: a command that was killed half-way loaded it, or
/// it was loaded before other regions were added.
fn as_loaded_before(
    is_known: bool,
    outcome: LoadOutcome,
    refusal: Option<RegionRefusal>,
) -> (LoadOutcome, Option<RegionRefusal>) {
    match refusal {
        Some(RegionRefusal::Load(LoadRefusal::OnSale { .. })) if is_known => {
            (LoadOutcome::LoadedBefore, None)
        }
        refusal => (outcome, refusal),
    }
}

/// Writes the campaign to MySQL, loads the regions one by one, and fills `report`. If the call fails, call it again to
/// complete the load.
///
/// # Errors
/// If a store does not answer, or another program has used a region or voucher since the plan was made.
pub async fn run(
    stores: &VoucherStores,
    plan: CampaignLoadState,
    report: &mut CampaignLoadState,
    job: &Job,
) -> anyhow::Result<End> {
    let request = plan.request;
    job.progress.expect(request.regions.len() as u64, "regions");
    let rows: Vec<_> = request.regions.iter().map(|it| (it.region.as_str(), it.voucher)).collect();
    let written = limit_rows::add_regions(stores.mysql(), request.campaign, &rows).await;
    written.context("Failed to write the campaign to MySQL")?;
    for region in &request.regions {
        if job.is_stopped() {
            return Ok(End::Stopped);
        }
        let planned = load::plan(stores, request.request(region)).await?;
        // Only a region of this campaign can be on sale here: any other one is refused before the first write.
        let sells = matches!(planned.refusal, Some(LoadRefusal::OnSale { .. }));
        let (outcome, refusal) = match planned.outcome {
            outcome if outcome == LoadOutcome::LoadedBefore || sells => {
                crate::vouchers::limits::show_all(stores, region.voucher, "campaign_load").await?.map_or_else(
                    |error| (LoadOutcome::Refused, Some(LoadRefusal::LimitsNotShown(error))),
                    |()| (LoadOutcome::Loaded, None),
                )
            }
            LoadOutcome::Refused => (LoadOutcome::Refused, planned.refusal),
            _ => {
                let loaded = load::run(stores, planned).await?;
                (loaded.outcome, loaded.refusal)
            }
        };
        let refusal = refusal.map(RegionRefusal::Load);
        report.regions.push(RegionOutcome { region: region.clone(), outcome, refusal });
        job.progress.add(1);
    }
    Ok(End::Whole)
}

/// Formats the number of regions and the sum of their units, such as `3 regions, 600 units`.
#[must_use]
pub fn summed(regions: &[RegionOutcome]) -> String {
    let units: i64 = regions.iter().map(|it| it.region.stock).sum();
    format!("{}, {}", counted(regions.len() as u64, "region"), counted(units, "unit"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_regions_is_read_and_every_fault_is_named() {
        let text = "\u{feff}region,voucher,stock\r\n\n# the north\nnorth, 101 ,500\r\nsouth,113,7\n";
        let regions = parse_regions(text).unwrap();
        let found: Vec<_> =
            regions.iter().map(|it| (it.region.as_str(), it.voucher.get(), it.stock)).collect();
        assert_eq!(found, [("north", 101, 500), ("south", 113, 7)]);
        let faults = parse_regions("a,1,1\na,2,1\nb,1,1\nc,0,1\nd,3,0\ne,4\nf g,5,1").unwrap_err().0;
        for (fault, line) in [
            ("line 2: the region a is in the file twice", 0),
            ("line 3: voucher 1 is in the file twice", 1),
            ("line 4: \"0\" is not a voucher id", 2),
            ("line 5: \"0\" is not a number of units", 3),
            ("line 6: a line must have", 4),
            ("line 7: \"f g\" is not a valid region name", 5),
        ] {
            assert!(faults.lines().nth(line).is_some_and(|found| found.starts_with(fault)), "{faults}");
        }
        assert!(parse_regions("# nothing\n").unwrap_err().0.contains("no region"));
    }

    #[test]
    fn regions_in_two_partitions_are_refused_with_ids_that_share_one() {
        let load = |text: &str| CampaignLoad {
            campaign: 5.try_into().unwrap(),
            regions: parse_regions(text).unwrap(),
            begin: None,
            end: None,
            pay_within_s: None,
        };
        let tags: Vec<String> = ["a", "b", "c"].map(str::to_owned).to_vec();
        let now = Timestamp::UNIX_EPOCH;
        let refused = load("n,10,1\ns,11,1\nw,12,1").check(now, &tags).unwrap_err().0;
        assert!(refused.ends_with("use ids such as 10, 13, 16"), "{refused}");
        assert_eq!(load("n,10,1\ns,13,1").check(now, &tags), Ok(()));
        assert_eq!(load("n,10,1\ns,11,1").check(now, &[]), Ok(()));
    }
}
