//! Tests of error texts of operations: an error prints all its causes, and each text once.

use fred::error::Error;

use tidegate_compare::CompareError;
use tidegate_orders::RecordsError;
use tidegate_stream::StreamError;

#[test]
fn each_error_of_an_audit_says_what_it_has_to_say_once() {
    let printed = |error: CompareError| format!("{:#}", anyhow::Error::new(error));
    let refused: Error = std::io::Error::from_raw_os_error(111).into();
    let redis = printed(StreamError::from(refused).into());
    assert_eq!(redis.matches("onnection refused").count(), 1, "{redis}");
    assert!(!redis.contains("Os {"), "{redis}");
    let mysql = printed(RecordsError::from(sqlx::Error::PoolClosed).into());
    assert_eq!(mysql.matches(&sqlx::Error::PoolClosed.to_string()).count(), 1, "{mysql}");
}
