//! The section `[mysql.shards]`: the partitions that have a MySQL server of their own.

use std::collections::BTreeMap;

use tidegate_operations::redacted::RedactedUrl;

use super::stores::mysql_url;
use crate::config::reader::SettingsReader;

const KEY: &str = "mysql.shards";

/// Reads the URL of each tag that is named.
pub(super) fn read(reader: &mut SettingsReader<'_>, tags: &[String]) -> BTreeMap<String, RedactedUrl> {
    let urls = reader.table(KEY);
    if !urls.is_empty() && tags.is_empty() {
        reader.wrong(KEY, "maps partitions to databases, and there are none: set stream.partitions");
        return BTreeMap::new();
    }
    for tag in urls.keys().filter(|tag| !tags.contains(tag)) {
        let all = tags.join(", ");
        reader.wrong(
            KEY,
            format!("names the tag {tag:?}, and stream.partitions has {all}: correct it, or take it out"),
        );
    }
    let read = |(tag, url): (String, String)| (tag, mysql_url(reader, KEY, url));
    urls.into_iter().map(read).collect()
}
