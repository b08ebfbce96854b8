//! Tests of error texts: an error prints all its causes, and each text once.

use fred::error::{Error, ErrorKind};
use tidegate_orders::{order_id::OrderIdError, schema::MigrateError, scripts::ScriptError};
use tidegate_stream::Outage;

/// The text of an error, as the program prints it.
fn printed(error: impl std::error::Error + Send + Sync + 'static) -> String {
    format!("{:#}", anyhow::Error::new(error))
}

fn refused() -> Error {
    std::io::Error::from_raw_os_error(111).into()
}

fn closed() -> sqlx::Error {
    sqlx::Error::PoolClosed
}

#[test]
fn each_error_says_what_it_has_to_say_once() {
    let redis = [
        printed(ScriptError::from(refused())),
        printed(ScriptError::Refused(Error::new(ErrorKind::Unknown, "Connection refused"))),
        printed(OrderIdError::from(refused())),
        Outage::from(refused()).error,
    ];
    for text in redis {
        assert_eq!(text.matches("onnection refused").count(), 1, "{text}");
        assert!(!text.contains("Os {"), "{text}");
    }
    let said = closed().to_string();
    let text = printed(MigrateError::Sql { doing: "run 0001".to_owned(), error: closed() });
    assert_eq!(text.matches(&said).count(), 1, "{text}");
}
