//! Checks of the URLs of the stores, beyond those of their client libraries. These ignore unknown parameters: with
//! `?db=5`, they would silently use another database.

use tidegate_stream::cluster::is_cluster_url;

use super::suggest::did_you_mean;

const SENTINEL_PARAMETERS: [&str; 4] =
    ["node", "sentinelServiceName", "sentinelUsername", "sentinelPassword"];
const CLUSTER_PARAMETERS: [&str; 1] = ["node"];
const MYSQL_PARAMETERS: [&str; 12] = [
    "ssl-mode",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "socket",
    "charset",
    "collation",
    "statement-cache-capacity",
    // Other spellings of the first ones.
    "sslmode",
    "sslca",
    "sslcert",
    "sslkey",
];
const MYSQL_TOLD: usize = 8;

/// The text about a mistake in the query of a Redis URL. It never shows a value, because a value may be a secret.
pub fn wrong_redis_query(url: &str) -> Option<String> {
    let sentinel = url.split_once("://").is_some_and(|(scheme, _)| scheme.ends_with("-sentinel"));
    let known: &[&str] = match sentinel {
        true => &SENTINEL_PARAMETERS,
        false if is_cluster_url(url) => &CLUSTER_PARAMETERS,
        false => &[],
    };
    wrong_query(url, known, known, |name| match name {
        "db" | "database" if url.starts_with("redis+unix") => {
            Some("a socket always uses database 0; for another database use redis://host:port/NUMBER")
        }
        "db" | "database" => Some("write the database as the path: redis://host:6379/NUMBER"),
        "ssl" | "tls" => Some("for TLS, use the scheme rediss: rediss://host:6379/0"),
        "password" | "username" => Some("write both before the host: redis://user:password@host:6379/0"),
        _ => None,
    })
}

/// The text about a mistake in the query of a MySQL URL. It never shows a value, because a value may be a secret.
pub fn wrong_mysql_query(url: &str) -> Option<String> {
    wrong_query(url, &MYSQL_PARAMETERS, &MYSQL_PARAMETERS[..MYSQL_TOLD], |name| match name {
        "timezone" | "time-zone" | "serverTimezone" => Some("set mysql.time_zone instead"),
        "useSSL" | "sslMode" | "tls" => Some("for TLS, use ssl-mode=VERIFY_IDENTITY"),
        "user" | "password" => Some("write both before the host: mysql://user:password@host:3306/database"),
        _ => None,
    })
}

fn wrong_query(
    url: &str,
    known: &[&str],
    suggested: &[&str],
    advice: impl Fn(&str) -> Option<&'static str>,
) -> Option<String> {
    let (_, query) = url.split_once('?')?;
    let query = query.split_once('#').map_or(query, |(query, _)| query);
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        // Without a value, it may be the rest of a password.
        let Some((name, _)) = parameter.split_once('=') else {
            return Some("has a parameter without a value after its `?`".to_owned());
        };
        if known.contains(&name) {
            continue;
        }
        let rest = match (advice(name), suggested) {
            (Some(advice), _) => format!("; {advice}"),
            (None, []) => String::new(),
            (None, suggested) => {
                format!(
                    "{}; known parameters: {}",
                    did_you_mean(name, suggested.iter().copied()),
                    suggested.join(", ")
                )
            }
        };
        return Some(format!("has the unknown parameter {name:?}{rest}"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_url_cannot_say_is_refused_with_what_says_it() {
        for (url, told) in [
            ("redis://h:6379?db=5", "redis://host:6379/NUMBER"),
            ("redis+unix:///run/redis.sock?db=5", "database 0"),
            ("rediss://h/0?ssl=true", "rediss://"),
            ("redis://h?node=b:1", "\"node\""),
            ("redis-sentinel://h/0?sentinelServicename=m", "did you mean sentinelServiceName?"),
            ("redis://h?hunter2", "without a value"),
        ] {
            let wrong = wrong_redis_query(url).unwrap_or_else(|| panic!("{url} is refused"));
            assert!(wrong.contains(told) && !wrong.contains("hunter2"), "{wrong}");
        }
        for (url, told) in [
            ("mysql://h/db?useSSL=false&serverTimezone=UTC", "ssl-mode"),
            ("mysql://h/db?ssl-mode=REQUIRED&timezone=Asia/Shanghai", "mysql.time_zone"),
            ("mysql://h/db?ssl_mode=REQUIRED", "did you mean ssl-mode?"),
            ("mysql://h/db?connectTimeout=3", "known parameters: ssl-mode, ssl-ca"),
        ] {
            let wrong = wrong_mysql_query(url).unwrap_or_else(|| panic!("{url} is refused"));
            assert!(wrong.contains(told), "{wrong}");
        }
        for url in ["mysql://h/db", "mysql://h/db?", "mysql://h/db?ssl-mode=REQUIRED&socket=/s"] {
            assert_eq!(wrong_mysql_query(url), None, "{url}");
        }
    }
}
