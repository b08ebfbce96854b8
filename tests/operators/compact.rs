//! Tests of compaction by workers: final notes leave the journals, and every command that reads a journal accepts the
//! rest.

use crate::{
    browser::until_page,
    fixture::{Fixture, until},
    sale::program,
};

const VOUCHER: i64 = 10;

async fn fields(fixture: &Fixture) -> Vec<String> {
    let fields = fixture.redis_says(&["HKEYS", "seckill:journal:10"]).await;
    let mut fields: Vec<String> = fields.convert().expect("the names of fields");
    fields.sort_unstable();
    fields
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_compact_what_is_final_and_audit_doctor_reconcile_and_rebuild_agree_with_what_is_left() {
    let fixture = Fixture::open().await;
    let program = program(&fixture);
    program.run("voucher load --voucher 10 --stock 100").expect(0);
    let plan = fixture.worker("w").set("RECONCILE_EVERY_S", 1).set("RECONCILE_COMPACT_AFTER_S", 1);
    let worker = plan.start();
    for order in 1..=6 {
        fixture.admit(order, order, VOUCHER, 1).await;
    }
    fixture.settled().await;
    for event in ["cancelled 1", "cancelled 2", "paid 3", "paid 4", "used 3"] {
        program.run(&format!("order event {event} --yes")).expect(0);
    }
    fixture.settled().await;
    fixture.redis_says(&["XTRIM", "stream.orders", "MAXLEN", "0"]).await;
    let left = ["#complete", "#load", "#purged", "4", "5", "6"];
    until("what is final is compacted", || async { fields(&fixture).await == left }).await;
    until("it is logged", || async { worker.log().contains("removed the notes of final orders") }).await;

    until_page(&worker, "/metrics", 200, r#"tidegate_voucher_memory_bytes{voucher="10"} "#).await;
    fixture.judge().await;
    program.run("reconcile").expect(0);
    let audit = program.run("audit").expect(0).stdout;
    assert!(audit.contains("It holds"), "{audit}");
    let doctor = program.run("doctor").all();
    assert!(!doctor.contains("journal"), "{doctor}");
    let shown = program.run("order show 1").all();
    assert!(shown.contains("cancelled"), "{shown}");

    program.run("order event refunded 4 --yes").expect(0);
    fixture.settled().await;
    assert_eq!(fixture.redis_says(&["GET", "seckill:stock:10"]).await.as_i64(), Some(97));
    // A rebuild writes all orders into the journal again, and the final ones are compacted again.
    program.run("rebuild --all --yes").expect(0);
    program.run("reconcile").expect(0);
    fixture.redis_says(&["XTRIM", "stream.orders", "MAXLEN", "0"]).await;
    let left = ["#complete", "#load", "#purged", "5", "6"];
    until("it is compacted again", || async { fields(&fixture).await == left }).await;
    program.run("reconcile").expect(0);
    program.run("audit").expect(0);
    fixture.judge().await;
    assert_eq!(fixture.redis_says(&["GET", "seckill:stock:10"]).await.as_i64(), Some(97));
    assert!(worker.stop().await.success());
}
