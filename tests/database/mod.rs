//! A migrated database for tests that do not change its schema.

use std::sync::OnceLock;

use sqlx::MySqlPool;
use tidegate_lab::MysqlServer;
use tokio::sync::OnceCell;

/// The URL of a migrated database that the tests of one binary share. Each test uses voucher ids of its own.
pub async fn migrated_mysql() -> &'static str {
    static SERVER: OnceLock<MysqlServer> = OnceLock::new();
    static URL: OnceCell<String> = OnceCell::const_new();
    let url = URL.get_or_init(|| async {
        let url = SERVER.get_or_init(|| MysqlServer::shared().expect("a database")).url();
        let pool = mysql(&url).await;
        tidegate_orders::schema::migrate(&pool).await.expect("migrates");
        pool.close().await;
        url
    });
    url.await
}

/// A pool for one test.
pub async fn mysql(url: &str) -> MySqlPool {
    MySqlPool::connect(url).await.expect("MySQL answers")
}
