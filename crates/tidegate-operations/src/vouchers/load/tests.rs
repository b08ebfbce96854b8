//! Tests which vouchers may be put on sale, and which loads ask a question.

use tidegate_orders::scripts::Pause;

use super::*;

fn sale(stock: Option<i64>, buyers: u64, end_ms: Option<i64>) -> VoucherState {
    let end = end_ms.map(|ms| Timestamp::from_millisecond(ms).unwrap());
    let window = SaleWindow { begin: None, end };
    VoucherState { stock, buyers, window, pause: Pause::Running, journaled: 0, delisted_ms: None }
}

fn row(stock: i64, initial_stock: Option<i64>) -> VoucherRow {
    let voucher = VoucherId::try_from(7).unwrap();
    VoucherRow {
        voucher,
        stock,
        initial_stock,
        begin_ms: None,
        end_ms: None,
        pay_within_s: None,
        delisted_ms: None,
    }
}

fn is_refused(sale: VoucherState, row: Option<&VoucherRow>, orders: i64) -> bool {
    refusal(&sale, row, orders, 100, Timestamp::from_millisecond(1_000).unwrap()).is_some()
}

#[test]
fn a_voucher_that_is_or_was_on_sale_on_either_side_is_refused() {
    assert!(is_refused(sale(Some(100), 0, None), None, 0), "on sale in Redis");
    assert!(is_refused(sale(Some(0), 0, Some(2_000)), None, 0), "sold out is on sale");
    assert!(is_refused(sale(None, 3, None), None, 0), "buyers are left of it");
    assert!(is_refused(sale(None, 0, None), Some(&row(100, None)), 1), "it has orders");
    assert!(is_refused(sale(None, 0, None), Some(&row(99, None)), 0), "another stock");
    assert!(is_refused(sale(None, 0, None), Some(&row(100, Some(200))), 0), "a stock that was sold from");
}

#[test]
fn what_a_load_left_is_known_by_its_stocks_and_its_window() {
    let end = Some(Timestamp::from_millisecond(2_000).unwrap());
    let request = LoadRequest {
        journal: tidegate_orders::scripts::JournalUse::Complete,
        voucher: VoucherId::try_from(7).unwrap(),
        stock: 100,
        begin: None,
        end,
        pay_within_s: None,
    };
    let left =
        |stock, end_ms, row: Option<&VoucherRow>| is_loaded(&sale(Some(stock), 0, end_ms), row, &request);
    let ours = row(100, Some(100));
    assert!(left(100, Some(2_000), Some(&ours)));
    assert!(!left(99, Some(2_000), Some(&ours)) && !left(100, None, Some(&ours)));
    assert!(!left(100, Some(2_000), None) && !left(100, Some(2_000), Some(&row(100, None))));
}

#[test]
fn only_what_would_be_lost_is_asked_about() {
    let moment = |ms| Timestamp::from_millisecond(ms).unwrap();
    let over = |sale: &VoucherState, row: Option<&VoucherRow>, window: SaleWindow| {
        overwrites(sale, row, window, moment(5_000)).is_some()
    };
    let (nothing, open) = (sale(None, 0, None), SaleWindow::default());
    assert!(!over(&nothing, None, open), "a new voucher");
    assert!(over(&sale(Some(5), 0, Some(1_000)), None, open), "the rest of an ended sale");
    let mut begun = row(100, Some(100));
    begun.begin_ms = Some(4_000);
    assert!(!over(&nothing, Some(&begun), open), "a load that died half-way");
    let window = SaleWindow { begin: Some(moment(4_000)), end: Some(moment(9_500)) };
    assert!(over(&nothing, Some(&begun), window), "it ends otherwise");
    begun.end_ms = Some(9_000);
    assert!(!over(&nothing, Some(&begun), window), "MySQL keeps whole seconds");
    assert!(over(&nothing, Some(&begun), open), "its end would be lost");
    begun.begin_ms = Some(6_000);
    assert!(over(&nothing, Some(&begun), window), "it begins otherwise");
}

#[test]
fn a_new_voucher_and_one_whose_load_died_half_way_are_not() {
    assert!(!is_refused(sale(None, 0, None), None, 0));
    assert!(!is_refused(sale(None, 0, None), Some(&row(100, Some(100))), 0));
    assert!(!is_refused(sale(None, 0, None), Some(&row(100, None)), 0), "a row of the tutorial's");
    assert!(!is_refused(sale(Some(5), 0, Some(1_000)), None, 0), "its sale is over, nobody bought");
}
