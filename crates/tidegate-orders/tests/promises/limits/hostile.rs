//! Tests of hostile subjects: the script refuses them and writes nothing. A value that only looks like a reserved word
//! is a value like any other.

use anyhow::{Result, ensure};
use fred::{interfaces::HashesInterface, types::Value};
use tidegate_orders::{Subjects, limits::BadSubject};

use super::{
    BUYERS, COMMON_LIMITS, COMMON_USES, JOURNAL, LIMITED, LIMITS, Reply, STREAM, Sale, USES, VOUCHER, refused,
};

/// Bytes that are neither a valid name of a subject nor a valid value. Some are not UTF-8.
fn hostile() -> Vec<Vec<u8>> {
    let texts = [
        "",
        " ",
        "a b",
        "a\0",
        "\0",
        "a\n",
        "a\r\nSET x y",
        "\"",
        "'",
        "a\"b",
        "\\",
        "<voucher>",
        "<owner>",
        "#complete",
        "#limited",
        "*",
        "%s",
        "{0}",
        "a,b",
        "a;b",
        "ü",
        "\u{202e}a",
    ];
    let mut all: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    all.extend([vec![0xff], vec![b'a', 0xc3], vec![0xed, 0xa0, 0x80], vec![b'x'; 65], vec![b'x'; 64 << 10]]);
    all
}

async fn ask(sale: &Sale, order: &str, subjects: &[&[u8]]) -> Result<Value, String> {
    let keys = [LIMITED, BUYERS, VOUCHER, JOURNAL, STREAM, LIMITS, USES, COMMON_LIMITS, COMMON_USES];
    let keys = keys.iter().map(|key| sale.key(key).into()).collect();
    let mut args: Vec<Value> = [order, order, "7", "1", ""].map(Value::from).into();
    args.extend(subjects.iter().map(|bytes| Value::Bytes(bytes.to_vec().into())));
    sale.admit.call(&sale.fixture.pool, keys, args).await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn hostile_names_and_values_are_refused_by_the_script_and_leave_no_trace() -> Result<()> {
    let sale = Sale::open(
        "1 mine phone sale 0 2 -;2 fast phone rate 1000 9 -;3 all * sale 0 9 -;4 own user sale 0 9 -",
        "",
        "1",
    )
    .await?;
    let before = sale.fixture.everything().await?;
    for bytes in hostile() {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(70)]).into_owned();
        let as_value = ask(&sale, "1", &[b"phone", &bytes]).await;
        ensure!(as_value.as_ref().is_err_and(|error| error.contains("BADARG")), "{shown:?}: {as_value:?}");
        let as_name = ask(&sale, "1", &[&bytes, b"a"]).await;
        ensure!(as_name.as_ref().is_err_and(|error| error.contains("NOSUBJECT phone")), "{as_name:?}");
        let beside = ask(&sale, "1", &[b"phone", b"a", &bytes, b"a"]).await;
        ensure!(beside.as_ref().is_err_and(|error| error.contains("BADARG")), "{shown:?}: {beside:?}");
    }
    // The last name is given twice.
    for name in ["user", "U", "1a", "_a", "phone:", "phone"] {
        let beside = sale.admit("1", "1", "1", &["phone", "a", name, "a"]).await;
        ensure!(beside.as_ref().is_err_and(|error| error.contains("BADARG")), "{name}: {beside:?}");
    }
    ensure!(sale.fixture.everything().await? == before);
    Ok(())
}

/// Another program wrote a counter that the scripts cannot read: the error names it, and the script writes nothing.
#[tokio::test]
async fn a_counter_that_is_no_number_of_ours_is_named_and_refused() -> Result<()> {
    let sale = Sale::open("1 mine phone sale 0 2 -;2 fast phone rate 1000 9 -", "", "1").await?;
    for (field, word) in [("1:a", "word"), ("1:a", "0:1"), ("2:a", "word"), ("u:1", "word")]
        .into_iter()
        .chain(["-1", "1.5", "2147483648"].map(|word| ("u:1", word)))
    {
        sale.fixture.pool.hset::<(), _, _>(sale.key(USES), (field, word)).await?;
        let before = sale.fixture.everything().await?;
        let asked = ask(&sale, "1", &[b"phone", b"a"]).await;
        let told = format!("BADUSES {field}");
        ensure!(asked.as_ref().is_err_and(|error| error.contains(&told)), "{word}: {asked:?}");
        ensure!(sale.fixture.everything().await? == before, "{word}");
        sale.fixture.pool.hdel::<(), _, _>(sale.key(USES), field).await?;
    }
    ensure!(sale.admit("1", "1", "1", &["phone", "a"]).await == Ok(Reply::Code(0)));
    Ok(())
}

#[tokio::test]
async fn a_value_that_looks_like_a_word_of_ours_is_a_value_as_any_other() -> Result<()> {
    let sale = Sale::open("1 mine phone sale 0 1 -;2 user user sale 0 9 -", "", "1").await?;
    let words =
        ["u", "u:1", "user", "rules", "since", "1:1", "-", "0", "c5.1", "uses", "x".repeat(64).leak()];
    for (order, word) in (1..).zip(words) {
        let (id, next) = (order.to_string(), (order + 100).to_string());
        ensure!(sale.admit(&id, "1", "1", &["phone", word]).await == Ok(Reply::Code(0)), "{word}");
        let again = sale.admit(&next, "2", "1", &["phone", word]).await;
        ensure!(again == Ok(refused(&["9", "mine", "0", "", ""])), "{word}: {again:?}");
        ensure!(sale.hash(USES).await?[&format!("1:{word}")] == "0:1:1", "{word}");
        ensure!(sale.release(&id, "1", "1", "1").await == Ok(1));
        ensure!(!sale.hash(USES).await?.contains_key(&format!("1:{word}")), "{word} is released");
    }
    ensure!(sale.hash(USES).await?.is_empty());
    // A name that no limit counts by is harmless, whatever it means elsewhere.
    ensure!(sale.admit("900", "9", "1", &["phone", "a", "u", "b"]).await == Ok(Reply::Code(0)));
    ensure!(sale.hash(USES).await?.into_keys().collect::<Vec<_>>() == ["1:a", "2:9", "u:9"]);
    Ok(())
}

#[test]
fn hostile_names_and_values_are_refused_by_name_before_redis_is_asked() {
    for bytes in hostile() {
        // Bytes that are not UTF-8 are no text in Rust, so they never get here.
        let Ok(text) = std::str::from_utf8(&bytes) else { continue };
        let as_name = Subjects::none().with(text, "a");
        assert!(matches!(as_name, Err(BadSubject::Name(_))), "{as_name:?}");
        let as_value = Subjects::none().with("phone", text);
        let error = as_value.expect_err("no value");
        assert!(matches!(&error, BadSubject::Value(name) if name.as_str() == "phone"), "{error:?}");
        assert!(error.to_string().len() < 200, "an answer is no longer than it must be: {error}");
    }
    assert_eq!(Subjects::none().with("user", "1"), Err(BadSubject::User));
    let twice = Subjects::none().with("phone", "a").and_then(|all| all.with("phone", "b"));
    assert!(matches!(twice, Err(BadSubject::Twice(_))), "{twice:?}");
}
