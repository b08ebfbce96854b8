//! Do producers name the fields of an order as the configuration says?

use tidegate_compare::text::counted;
use tidegate_orders::RedisStore;
use tidegate_stream::EntryId;

use crate::{SystemSettings, finding::Findings};

/// The newest entries, which show what producers write now.
const LOOKED_AT: u16 = 20;

/// Looks at the newest entries of the stream.
pub(super) async fn check(settings: &SystemSettings, findings: &mut Findings, redis: &RedisStore) {
    let inspector = redis.inspector();
    let newest = inspector.page_back(&settings.stream.name, (EntryId::MIN, EntryId::MAX), LOOKED_AT).await;
    // Whoever may not read the stream is told so with its length.
    let Ok(newest) = newest else { return };
    let errors = newest.iter().filter_map(|entry| settings.keys.fields.decode(entry).err());
    let misread: Vec<_> = errors.filter(|error| error.has_other_names()).collect();
    if let Some(error) = misread.first() {
        findings.warning(
            format!(
                "of the newest {}, {} no order as [fields] has it: {error}",
                counted(newest.len() as u64, "entry"),
                if misread.len() == 1 { "1 is".to_owned() } else { format!("{} are", misread.len()) },
            ),
            "set these names and restart the workers; what was buried: tidegate dead requeue --reason missing_field",
        );
    }
}
