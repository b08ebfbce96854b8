//! The words of the picture.

use super::wording;

#[test]
fn numbers_are_short_and_true() {
    let counts = [0_i64, 999, 1_000, 999_999_999, 1_000_000_000, 12_345_678_901, -1_234].map(wording::count);
    assert_eq!(counts, ["0", "999", "1,000", "999,999,999", "1.00G", "12.35G", "-1,234"]);
    assert_eq!(
        [0.0, 9.94, 9.96, 1_234.6, 2_500_000.0].map(wording::rate),
        ["0.0", "9.9", "10", "1,235", "2.50M"]
    );
    let ages = [0.04, 59.94, 59.96, 3_599.0, 3_600.0, 180_000.0].map(wording::age);
    assert_eq!(ages, ["0.0 s", "59.9 s", "59.9 s", "59 min", "1.0 h", "2 d"]);
}
