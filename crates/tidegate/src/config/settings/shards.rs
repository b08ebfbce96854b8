//! The section `[mysql.shards]`: the partitions that have a MySQL server of their own.

use std::collections::BTreeMap;

use tidegate_operations::redacted::RedactedUrl;

use super::stores::mysql_url;
use crate::config::reader::SettingsReader;

const KEY: &str = "mysql.shards";

/// Reads the MySQL URL of each partition tag that the section names.
pub(super) fn read(reader: &mut SettingsReader<'_>, tags: &[String]) -> BTreeMap<String, RedactedUrl> {
    let urls = reader.table(KEY);
    if !urls.is_empty() && tags.is_empty() {
        reader.wrong(KEY, "maps partitions to databases, but there are no partitions: set stream.partitions");
        return BTreeMap::new();
    }
    for tag in urls.keys().filter(|tag| !tags.contains(tag)) {
        let all = tags.join(", ");
        reader.wrong(
            KEY,
            format!("names the tag {tag:?}, but stream.partitions has {all}: correct or remove the tag"),
        );
    }
    let read = |(tag, url): (String, String)| (tag, mysql_url(reader, KEY, url));
    urls.into_iter().map(read).collect()
}
