//! The common start of many tests: the program on the servers of a fixture, a sale, and buyers.

use sqlx::AssertSqlSafe;
use tidegate_lab::Endpoint;
use tidegate_orders::{
    RedisStore,
    scripts::{Admission, AdmitReply},
};

use crate::{fixture::Fixture, program::Program};

/// The program on the servers of a fixture.
pub fn program<M: Endpoint>(fixture: &Fixture<M>) -> Program {
    Program::with_flags(&["--redis-url", &fixture.redis.url(), "--mysql-url", &fixture.mysql.url()])
}

/// A fixture with 100 units of voucher 7 on sale.
pub async fn open() -> (Fixture, Program, RedisStore) {
    let fixture = Fixture::open().await;
    let (program, store) = (program(&fixture), fixture.store().await);
    program.run("voucher load --voucher 7 --stock 100").expect(0);
    (fixture, program, store)
}

/// A request for this many units of voucher 7.
pub fn admission(id: i64, user: i64, quantity: i64) -> Admission {
    Admission {
        order: id.try_into().unwrap(),
        user: user.try_into().unwrap(),
        voucher: 7.try_into().unwrap(),
        quantity: quantity.try_into().unwrap(),
        subjects: tidegate_orders::Subjects::none(),
        traceparent: None,
    }
}

/// Buys this many units of voucher 7.
pub async fn ask(store: &RedisStore, id: i64, user: i64, quantity: i64) -> AdmitReply {
    store.admissions().admit(&admission(id, user, quantity)).await.expect("the store answers")
}

/// Runs a statement as another program.
pub async fn sql(fixture: &Fixture, statement: impl Into<String>) {
    sqlx::raw_sql(AssertSqlSafe(statement.into())).execute(&fixture.pool).await.expect("MySQL does it");
}
