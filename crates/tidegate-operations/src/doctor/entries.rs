//! Checks whether producers name the fields of an order as the configuration does.

use tidegate_compare::text::counted;
use tidegate_orders::RedisStore;
use tidegate_stream::EntryId;

use crate::{SystemSettings, finding::Findings};

/// The number of the newest entries that are read; they show what producers write now.
const LOOKED_AT: u16 = 20;

/// Checks the field names in the newest entries of the stream.
pub(super) async fn check(settings: &SystemSettings, findings: &mut Findings, redis: &RedisStore) {
    let inspector = redis.inspector();
    let newest = inspector.page_back(&settings.stream.name, (EntryId::MIN, EntryId::MAX), LOOKED_AT).await;
    // The check of the stream's length reports that the stream cannot be read.
    let Ok(newest) = newest else { return };
    let errors = newest.iter().filter_map(|entry| settings.keys.fields.decode(entry).err());
    let misread: Vec<_> = errors.filter(|error| error.has_other_names()).collect();
    if let Some(error) = misread.first() {
        findings.warning(
            format!(
                "of the newest {} of the stream, {} field names that differ from [fields] in the configuration: {error}",
                counted(newest.len() as u64, "entry"),
                if misread.len() == 1 { "1 has".to_owned() } else { format!("{} have", misread.len()) },
            ),
            "set the names in [fields], restart the workers, and run tidegate dead requeue --reason missing_field",
        );
    }
}
