//! The users of the stores, with the rights that `config/` gives them.

use sqlx::{AssertSqlSafe, Executor};

use tidegate_lab::Endpoint;

use super::Site;

const REDIS_USERS: &str = include_str!("../../config/redis-users.acl");
const MYSQL_USERS: &str = include_str!("../../config/mysql-users.sql");

/// The users of Redis but `default`: a test itself connects as that one.
fn redis_users() -> impl Iterator<Item = &'static str> {
    let users = REDIS_USERS.lines().filter_map(|line| line.strip_prefix("user "));
    users.filter(|user| !user.starts_with("default "))
}

/// The users of Redis, as the server takes them at its start: they outlive a restart.
pub fn redis_options() -> Vec<String> {
    redis_users()
        .flat_map(|user| std::iter::once("--user").chain(user.split(' ')).map(str::to_owned))
        .collect()
}

impl<M: Endpoint> Site<M> {
    /// Makes the users on both servers.
    pub async fn add_users(&self) {
        for user in redis_users() {
            self.call(&format!("ACL SETUSER {user}")).await;
        }
        let url = self.mysql.url();
        let database = url.rsplit('/').next().and_then(|rest| rest.split('?').next()).expect("a database");
        for statement in statements(MYSQL_USERS) {
            let statement = statement.replace("hmdp.", &format!("{database}."));
            self.pool.execute(AssertSqlSafe(statement)).await.expect("the user is made");
        }
    }

    /// Where this user of Redis logs in.
    pub fn redis_url_of(&self, user: &str) -> String {
        // With its database, as in the defaults.
        format!("{}/0", url_of(&self.redis.url(), user))
    }

    /// Where this user of MySQL logs in.
    pub fn mysql_url_of(&self, user: &str) -> String {
        url_of(&self.mysql.url(), user)
    }
}

fn statements(sql: &str) -> Vec<String> {
    let lines: Vec<&str> = sql.lines().filter(|line| !line.starts_with("--")).collect();
    let all = lines.join("\n");
    all.split(';').map(|one| one.trim().to_owned()).filter(|one| !one.is_empty()).collect()
}

fn url_of(url: &str, user: &str) -> String {
    let (scheme, rest) = url.split_once("://").expect("a URL");
    let host = rest.rsplit('@').next().expect("a host");
    format!("{scheme}://{user}:CHANGE-ME@{host}")
}
