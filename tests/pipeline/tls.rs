//! Tests of stores that are reached over TLS: real servers with certificates of an authority that the system does not
//! know.

use sqlx::Executor;
use tidegate_lab::{Certificates, MysqlServer, RedisServer};

use crate::{fixture::Fixture, program::Program};

struct Scene {
    fixture: Fixture,
    redis_url: String,
    mysql_url: String,
    certificates: Certificates,
}

/// MySQL's user may not connect without TLS, and Redis is reached on its port for TLS.
async fn open() -> Scene {
    let certificates = Certificates::make().expect("certificates");
    let redis = RedisServer::options().args(["--appendfsync", "always"]).tls(&certificates);
    let mysql = MysqlServer::options().tls(&certificates).start().expect("a MySQL");
    let fixture = Fixture::on(redis.start().expect("a Redis"), mysql).await;
    tidegate_orders::schema::migrate(&fixture.pool).await.expect("the schema is made");
    let user = "CREATE USER 'secret'@'%' IDENTIFIED BY 'word' REQUIRE SSL";
    fixture.pool.execute(user).await.expect("the user is made");
    let grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON tidegate.* TO 'secret'@'%'";
    fixture.pool.execute(grant).await.expect("the user may work");
    let redis_url = fixture.redis.tls_url().expect("it speaks TLS");
    let mysql_url = format!(
        "mysql://secret:word@localhost:{}/tidegate?ssl-mode=VERIFY_IDENTITY&ssl-ca={}",
        fixture.mysql.port(),
        certificates.authority().display()
    );
    Scene { fixture, redis_url, mysql_url, certificates }
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_are_written_when_both_stores_are_reached_over_tls() {
    let scene = open().await;
    let authority = scene.certificates.authority();
    scene.fixture.open_sale().await;
    let worker =
        scene.fixture.worker("w").set("REDIS_URL", &scene.redis_url).set("MYSQL_URL", &scene.mysql_url);
    let worker = worker.variable("SSL_CERT_FILE", authority.display()).start();
    scene.fixture.rush(1_000, 200).await;
    scene.fixture.settled().await;
    let program = Program::with_flags(&["--redis-url", &scene.redis_url, "--mysql-url", &scene.mysql_url]);
    let variables = [("SSL_CERT_FILE", authority.to_str().expect("a path"))];
    program.run_with(&["doctor"], &variables).expect(0);
    assert!(worker.stop().await.success());
    scene.fixture.invariants().await;
    // The audit reads both stores. Redis offers more units of the other voucher than MySQL has.
    program.run_with(&["audit", "--voucher", "1"], &variables).expect(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_nobody_vouches_for_is_no_store_and_the_error_says_so() {
    let scene = open().await;
    let mysql_url = scene.fixture.mysql.url();
    let unknown = Program::with_flags(&["--redis-url", &scene.redis_url, "--mysql-url", &mysql_url]);
    let run = unknown.run("status").expect(3);
    assert!(run.all().contains("UnknownIssuer"), "{run:#?}");
    assert!(run.all().contains("redis.url"), "{run:#?}");

    let elsewhere = Certificates::make().expect("certificates");
    let theirs = elsewhere.authority().display().to_string();
    let mysql_url = scene.mysql_url.replace(&scene.certificates.authority().display().to_string(), &theirs);
    let redis_url = scene.fixture.redis.url();
    let run = Program::with_flags(&["--redis-url", &redis_url, "--mysql-url", &mysql_url]).run("doctor");
    let run = run.expect(1);
    assert!(run.all().contains("certificate"), "{run:#?}");
    assert!(!run.all().contains("word"), "{run:#?}");
}
