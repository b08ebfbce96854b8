//! Tests of the image that `image.sh` built with buildah.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tidegate_lab::{Certificates, MysqlServer};

use super::{SERVICE_USER, assert_confined, in_root, output};
use crate::{
    fixture::{Fixture, durable_redis, until},
    program::closed_port,
};

const IMAGE: &str = "tidegate-test";
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";

/// A container of the image, mounted and not started, with the configuration of the image.
struct Image {
    container: String,
    root: PathBuf,
    config: serde_json::Value,
}

impl Image {
    fn open() -> Self {
        let inspected = buildah(&["inspect", "--type", "image", IMAGE]);
        let inspected: serde_json::Value = serde_json::from_str(&inspected).expect("JSON");
        let container = buildah(&["from", IMAGE]);
        let root = buildah(&["mount", &container]).into();
        Self { container, root, config: inspected["Docker"]["config"].clone() }
    }

    /// The words at a place of the configuration, such as `/Entrypoint`.
    fn words(&self, place: &str) -> Vec<&str> {
        let words = self.config.pointer(place).and_then(serde_json::Value::as_array);
        let words = words.unwrap_or_else(|| panic!("no {place}: {:#}", self.config));
        words.iter().map(|word| word.as_str().expect("a word")).collect()
    }

    /// A command that runs in a container of this image.
    fn command(&self, words: &[&str]) -> Vec<String> {
        in_root(&self.root, self.config["User"].as_str().expect("a user"), words)
    }

    /// The folders of programs, as the image names them.
    fn path(&self) -> &str {
        self.words("/Env").iter().find_map(|pair| pair.strip_prefix("PATH=")).expect("a PATH")
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        buildah(&["rm", &self.container]);
    }
}

fn buildah(args: &[&str]) -> String {
    output(Command::new("buildah").args(args))
}

/// The files below a folder, by their paths in it.
fn files(folder: &Path, below: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(below).expect("a folder").map(|entry| entry.expect("an entry")) {
        if entry.file_type().expect("a type").is_dir() {
            found.extend(files(folder, &entry.path()));
        } else {
            found.insert(entry.path().strip_prefix(folder).expect("below").display().to_string());
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the image: just image-test"]
async fn a_container_writes_orders_without_privileges_and_answers_the_health_check_of_its_image() {
    let (image, certificates) = (Image::open(), Certificates::make().expect("certificates"));
    let redis = durable_redis().tls(&certificates).start().expect("a Redis");
    let fixture = Fixture::on(redis, MysqlServer::shared().expect("a database")).await.migrated().await;
    fixture.open_sale().await;
    assert_eq!(image.config["User"], SERVICE_USER);
    // The program trusts the authorities of the image, and knows names that Docker and Kubernetes write into this file.
    fs::copy(certificates.authority(), image.root.join(AUTHORITIES)).expect("copied");
    fs::write(image.root.join("etc/hosts"), "127.0.0.1 localhost stores\n").expect("written");
    let (redis_url, mysql_url) = (fixture.redis.tls_url().expect("it speaks TLS"), fixture.mysql.url());
    let named = |url: String| url.replace("127.0.0.1", "stores").replace("localhost", "stores");
    let listen = format!("127.0.0.1:{}", closed_port());
    let plan = fixture.worker("w").set("ADMIN_LISTEN", &listen).variable("PATH", image.path());
    let plan = plan.set("REDIS_URL", redis_url).set("MYSQL_URL", named(mysql_url));
    let worker = plan.start_by(&image.command(&[image.words("/Entrypoint"), image.words("/Cmd")].concat()));

    let check = image.words("/Healthcheck/Test");
    assert_eq!(check[0], "CMD", "there is no shell");
    let check = image.command(&check[1..]);
    until("it is healthy", || async {
        let mut check_now = Command::new(&check[0]);
        check_now.args(&check[1..]).env_clear().env("PATH", image.path());
        check_now.env("TIDEGATE_ADMIN_LISTEN", &listen).output().expect("it runs").status.success()
    })
    .await;
    fixture.rush(1_000, 50).await;
    fixture.settled().await;
    fixture.invariants().await;
    assert_confined(&worker);
    assert_eq!(image.config["StopSignal"], "SIGTERM");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the image: just image-test"]
async fn the_image_has_time_zones_and_authorities_and_no_program_but_ours() {
    let (image, fixture) = (Image::open(), Fixture::open().await);
    let mut others = files(&image.root, &image.root);
    others.retain(|path| !path.starts_with("usr/share/zoneinfo/"));
    let libraries = others.extract_if(.., |path| path.starts_with("lib") && path.contains(".so"));
    assert!((3..10).contains(&libraries.count()));
    assert_eq!(others.into_iter().collect::<Vec<_>>(), ["etc/passwd", AUTHORITIES, "usr/local/bin/tidegate"]);
    let read = |path: &str| fs::read_to_string(image.root.join(path)).expect(path);
    assert_eq!(read(AUTHORITIES), fs::read_to_string(Path::new("/").join(AUTHORITIES)).expect("authorities"));
    assert!(
        read("etc/passwd").starts_with("tidegate:x:65532:65532:") && read("etc/passwd").lines().count() == 1
    );

    let load = "tidegate voucher load --voucher 9 --stock 1 --yes --begin";
    let load: Vec<&str> = load.split(' ').chain(["2030-01-01 10:00"]).collect();
    let load = image.command(&load);
    let mut command = Command::new(&load[0]);
    command.args(&load[1..]).env_clear().env("PATH", image.path()).env("TZ", "Asia/Shanghai");
    command.env("TIDEGATE_REDIS_URL", fixture.redis.url()).env("TIDEGATE_MYSQL_URL", fixture.mysql.url());
    output(&mut command);
    let begin = fixture.redis_says(&["HGET", "seckill:voucher:9", "begin_ms"]).await;
    // 02:00 in UTC.
    assert_eq!(begin.as_i64(), Some(1_893_463_200_000));
}
