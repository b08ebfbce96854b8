//! The list `[[webhooks]]`: the URLs to which workers send the results of orders.

use std::path::PathBuf;

use tidegate_http::webhooks::Target;
use tidegate_operations::{WebhookSettings, WebhookUrl};
use tidegate_orders::{Published, ResultFilter};
use toml::{Table, Value};

use crate::config::{list_entry::ListEntry, reader::SettingsReader};

/// Reads the list of webhooks. `published` says which results workers publish.
pub(super) fn read(reader: &mut SettingsReader<'_>, published: Published) -> Vec<WebhookSettings> {
    reader.entries("webhooks", of_text, |entry| webhook(entry, published))
}

fn webhook(entry: &mut ListEntry, published: Published) -> Option<WebhookSettings> {
    let name = entry.name();
    let allow_http = entry.flag("allow_http").unwrap_or(false);
    let url = match entry.text("url") {
        Some(url) => match Target::parse(&url, allow_http) {
            Ok(_) => Some(WebhookUrl::new(url)),
            Err(why) => entry.wrong("url", why),
        },
        None => entry.missing("url"),
    };
    let secret_file = match entry.text("secret_file") {
        Some(path) if !path.is_empty() => Some(PathBuf::from(path)),
        Some(_) => entry.wrong("secret_file", "must not be empty"),
        None => entry.missing("secret_file"),
    };
    let words = entry.words("kinds").unwrap_or_default();
    let kinds = match published {
        Published::None => Err("selects nothing, because results.publish is none: set results.publish to \
                                \"exceptions\", or remove the webhook"
            .to_owned()),
        published => ResultFilter::parse(&words, published),
    };
    let kinds = kinds.or_else(|why| entry.wrong("kinds", why).ok_or(()));
    Some(WebhookSettings {
        name: name?,
        url: url?,
        secret_file: secret_file?,
        kinds: kinds.ok()?,
        allow_http,
    })
}

/// Converts a webhook from a variable or a flag, such as `shop:/run/secrets/shop:https://shop.example/hooks`.
fn of_text(text: &str) -> Result<Table, &'static str> {
    let [name, secret_file, url] = text.splitn(3, ':').collect::<Vec<_>>()[..] else {
        return Err(
            "must be NAME:SECRET_FILE:URL, such as shop:/run/secrets/shop:https://shop.example/hooks",
        );
    };
    let members = [("name", name), ("secret_file", secret_file), ("url", url)];
    Ok(members.into_iter().map(|(member, value)| (member.to_owned(), Value::from(value))).collect())
}
