//! Tests of the gate over TLS: the clients that may connect, and the refusal of all others.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use anyhow::Context;
use futures_util::future::join_all;
use hyper::Method;
use nix::sys::signal::Signal;
use tidegate_lab::Certificates;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
        sign::{CertifiedKey, SingleCertAndKey},
    },
};

use super::{Answer, ask, ask_on};
use crate::{
    fixture::{Fixture, Worker, WorkerPlan, until},
    order_event::operator,
};

const GOOD: &str = r#"{"voucherId":"7","userId":"1"}"#;
const JSON: [(&str, &str); 1] = [("Content-Type", "application/json")];

/// A client that trusts an authority, and presents a certificate if it has one.
fn client(trusts: &Certificates, shows: Option<&Certificates>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(trusts.authority()).expect("a certificate"))
        .expect("an authority");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder =
        builder.with_safe_default_protocol_versions().expect("versions").with_root_certificates(roots);
    let configuration = match shows {
        None => builder.with_no_client_auth(),
        Some(of) => {
            let certificate = CertificateDer::from_pem_file(of.client()).expect("a certificate");
            let key = PrivateKeyDer::from_pem_file(of.client_key()).expect("a key");
            builder.with_client_auth_cert(vec![certificate], key).expect("they belong together")
        }
    };
    TlsConnector::from(Arc::new(configuration))
}

/// A client that presents a certificate of any kind.
fn showing(
    trusts: &Certificates,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(trusts.authority()).expect("a certificate"))
        .expect("an authority");
    let key = ring::default_provider().key_provider.load_private_key(key).expect("a key");
    let shown = Arc::new(CertifiedKey::new(vec![certificate], key));
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder =
        builder.with_safe_default_protocol_versions().expect("versions").with_root_certificates(roots);
    TlsConnector::from(Arc::new(builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(shown)))))
}

async fn ask_tls(client: &TlsConnector, gate: SocketAddr, path: &str) -> anyhow::Result<Answer> {
    let stream = TcpStream::connect(gate).await.context("the gate listens")?;
    let stream = client.connect(ServerName::from(gate.ip()), stream).await?;
    let (method, body) = if path == "/orders" { (Method::POST, GOOD) } else { (Method::GET, "") };
    Ok(ask_on(stream, method, path, &JSON, body).await?)
}

fn plan(fixture: &Fixture, shown: &Certificates) -> WorkerPlan {
    let plan = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0");
    plan.set("GATE_TLS_CERT", shown.server().display()).set("GATE_TLS_KEY", shown.server_key().display())
}

async fn ready(gate: &Worker, client: &TlsConnector) -> SocketAddr {
    let address = gate.gate_address().await;
    until("it has reached Redis", || async {
        ask_tls(client, address, "/readyz").await.is_ok_and(|answer| answer.status == 200)
    })
    .await;
    address
}

async fn sale() -> Fixture {
    let fixture = Fixture::open().await;
    operator(&fixture).run("voucher load --voucher 7 --stock 1000").expect(0);
    fixture
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_trusts_the_gates_authority_is_answered_over_tls_and_plain_http_is_told_so() {
    let (fixture, own, foreign) =
        (sale().await, Certificates::make().unwrap(), Certificates::make().unwrap());
    let gate = plan(&fixture, &own).start_as("gate");
    let trusting = client(&own, None);
    let address = ready(&gate, &trusting).await;
    let admitted = ask_tls(&trusting, address, "/orders").await.expect("an answer");
    assert_eq!(admitted.status, 202, "{:#}", admitted.body);
    assert!(ask_tls(&client(&foreign, None), address, "/orders").await.is_err(), "it is another gate to it");
    assert_eq!(ask(address, Method::POST, "/orders", &JSON, GOOD).await.status, 400, "without TLS");
    let mut plain = TcpStream::connect(address).await.expect("the gate listens");
    plain.write_all(b"GET /livez HTTP/1.1\r\nHost: gate\r\n\r\n").await.expect("it is read");
    let mut told = String::new();
    plain.read_to_string(&mut told).await.expect("an answer");
    assert!(told.ends_with("The gate requires TLS: use https.\r\n"), "{told}");
    assert!(gate.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn with_authorities_of_clients_only_their_certificates_are_let_in() {
    let (fixture, own, foreign) =
        (sale().await, Certificates::make().unwrap(), Certificates::make().unwrap());
    let gate = plan(&fixture, &own).set("GATE_TLS_CLIENT_CA", own.authority().display()).start_as("gate");
    let known = client(&own, Some(&own));
    let address = ready(&gate, &known).await;
    for (who, stranger) in [("without", client(&own, None)), ("foreign", client(&own, Some(&foreign)))] {
        for path in ["/orders", "/livez", "/openapi.json"] {
            assert!(ask_tls(&stranger, address, path).await.is_err(), "{who} {path}");
        }
    }
    assert_eq!(fixture.redis_stock(7).await, Some(1000), "nobody has bought");
    assert_eq!(ask_tls(&known, address, "/orders").await.expect("an answer").status, 202);
    assert!(gate.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_slow_handshakes_hold_up_nobody_and_are_let_go_of_in_time_and_at_a_stop() {
    let (fixture, own) = (sale().await, Certificates::make().unwrap());
    let gate = plan(&fixture, &own).set("GATE_READ_MS", 1500).start_as("gate");
    let trusting = client(&own, None);
    let address = ready(&gate, &trusting).await;
    let slow = async |nth: usize| {
        let mut stream = TcpStream::connect(address).await.expect("the gate listens");
        // The client sends nothing, the first byte of a handshake, or the head of a record that never comes.
        stream.write_all(&[22, 3, 1, 1, 0][..[0, 1, 5][nth % 3]]).await.expect("it is read");
        stream
    };
    let mut waiting = join_all((0..300).map(slow)).await;
    let others = join_all((0..20).map(async |_| ask_tls(&trusting, address, "/livez").await)).await;
    assert!(others.iter().all(|answer| answer.as_ref().is_ok_and(|answer| answer.status == 200)));
    let ends = join_all(waiting.iter_mut().map(async |stream| {
        timeout(Duration::from_secs(20), stream.read_to_end(&mut Vec::new())).await.is_ok()
    }));
    assert!(ends.await.iter().all(|ended| *ended), "the gate lets go of them");

    let _waiting = join_all((0..100).map(slow)).await;
    gate.signal(Signal::SIGTERM);
    let mut gate = gate;
    assert!(gate.ended().await.success());
    assert!(!gate.log().contains("had no answer"), "nobody was on the way:\n{}", gate.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_read_anew_on_sighup_and_stay_where_the_new_ones_cannot_be_used() {
    let (fixture, own, new) = (sale().await, Certificates::make().unwrap(), Certificates::make().unwrap());
    let gate = plan(&fixture, &own).start_as("gate");
    let (of_old, of_new) = (client(&own, None), client(&new, None));
    let address = ready(&gate, &of_old).await;
    assert!(ask_tls(&of_new, address, "/livez").await.is_err());
    fs::copy(new.server(), own.server()).expect("a new certificate");
    gate.signal(Signal::SIGHUP);
    gate.says("could not read its certificates and keeps the previous certificates").await;
    assert!(gate.log().contains("gate.tls_key"), "it is not the key of the new one:\n{}", gate.log());
    assert_eq!(ask_tls(&of_old, address, "/livez").await.expect("an answer").status, 200);
    fs::copy(new.server_key(), own.server_key()).expect("its key");
    gate.signal(Signal::SIGHUP);
    gate.says("has read its certificates again").await;
    assert_eq!(ask_tls(&of_new, address, "/orders").await.expect("an answer").status, 202);
    assert!(ask_tls(&of_old, address, "/livez").await.is_err());
    assert!(gate.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_used_is_told_at_the_start_with_its_setting_and_shows_nothing_of_it() {
    let (fixture, own) = (Fixture::bare().await, Certificates::make().unwrap());
    let broken = fixture.file("broken.pem", "-----BEGIN PRIVATE KEY-----\nc2VjcmV0hunter2\n");
    let missing = Path::new("/does/not/exist.pem");
    let (server, key, client_key) = (own.server(), own.server_key(), own.client_key());
    for (certificate, key, authorities, setting) in [
        (missing, &*key, None, "gate.tls_cert = /does/not/exist.pem"),
        (&*key, &*key, None, "gate.tls_cert"),
        (&*server, missing, None, "gate.tls_key = /does/not/exist.pem"),
        (&*server, &*server, None, "gate.tls_key"),
        (&*server, &*broken, None, "gate.tls_key"),
        (&*server, &*client_key, None, "set gate.tls_key to the key of this certificate"),
        (&*server, &*key, Some(missing), "gate.tls_client_ca = /does/not/exist.pem"),
        (&*server, &*key, Some(&*key), "gate.tls_client_ca"),
    ] {
        let set = |name: &str, path: &Path| format!("gate.{name}={}", path.display());
        let mut args = vec!["gate".to_owned(), "--set".to_owned(), "gate.listen=127.0.0.1:0".to_owned()];
        args.extend([
            "--set".to_owned(),
            set("tls_cert", certificate),
            "--set".to_owned(),
            set("tls_key", key),
        ]);
        args.extend(authorities.iter().flat_map(|path| ["--set".to_owned(), set("tls_client_ca", path)]));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let run = operator(&fixture).run_with(&args, &[]).expect(3);
        assert!(run.all().contains(setting), "{setting}: {run:#?}");
        assert!(!run.all().contains("hunter2") && !run.all().contains("c2Vj"), "{run:#?}");
    }
}

/// Runs openssl with these words and files: each `FILE` is the next file.
pub fn openssl(line: &str, files: &[&Path]) {
    let mut files = files.iter();
    let words = line.split(' ').map(|word| match word {
        "FILE" => files.next().expect("a file").as_os_str().to_owned(),
        word => word.into(),
    });
    let run = Command::new("openssl").args(words).output().expect("openssl is there");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

/// A certificate of version 1, which names neither a use nor a server. `openssl` creates it without extensions.
fn of_version_1(folder: &Path) -> (PathBuf, PathBuf) {
    let [key, request, certificate] = ["v1.key", "v1.csr", "v1.pem"].map(|name| folder.join(name));
    openssl("ecparam -name prime256v1 -genkey -noout -out FILE", &[&key]);
    openssl("req -new -key FILE -subj /CN=localhost -out FILE", &[&key, &request]);
    openssl("x509 -req -in FILE -key FILE -days 2 -out FILE", &[&request, &key, &certificate]);
    // Some versions of openssl write the key in a form of their own.
    openssl("pkcs8 -topk8 -nocrypt -in FILE -out FILE", &[&key, &request]);
    (certificate, request)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_version_1_is_refused_and_the_log_says_why() {
    let (fixture, own) = (sale().await, Certificates::make().unwrap());
    let folder = tempfile::tempdir().expect("a folder");
    let (certificate, key) = of_version_1(folder.path());
    let gate = plan(&fixture, &own).set("GATE_TLS_CLIENT_CA", own.authority().display()).start_as("gate");
    let known = client(&own, Some(&own));
    let address = ready(&gate, &known).await;
    let shown = CertificateDer::from_pem_file(&certificate).expect("a certificate");
    let secret = PrivateKeyDer::from_pem_file(&key).expect("a key");
    let old = showing(&own, shown, secret);
    for _ in 0..20 {
        assert!(ask_tls(&old, address, "/livez").await.is_err());
    }
    gate.says("the gate refused a client certificate").await;
    let log = gate.log();
    let lines = log
        .lines()
        .filter(|line| line.contains("WARN") && line.contains("the gate refused a client certificate"));
    let lines: Vec<&str> = lines.collect();
    assert!(lines.len() <= 3 && lines[0].contains("version 1"), "{lines:#?}");
    assert_eq!(ask_tls(&known, address, "/orders").await.expect("an answer").status, 202);
    assert!(gate.stop().await.success());

    let set = |name: &str, path: &Path| format!("gate.{name}={}", path.display());
    let (certificate, key) = (set("tls_cert", &certificate), set("tls_key", &key));
    let args = ["gate", "--set", "gate.listen=127.0.0.1:0", "--set", &certificate, "--set", &key];
    let run = operator(&fixture).run_with(&args, &[]).expect(3);
    assert!(run.all().contains("gate.tls_cert") && run.all().contains("version 1"), "{run:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metrics_show_when_the_first_certificate_of_the_file_expires() {
    const DAY: f64 = 86_400.0;
    let (fixture, own) = (Fixture::bare().await, Certificates::make().unwrap());
    let folder = tempfile::tempdir().expect("a folder");
    let [soon, key] = ["soon.pem", "soon.key"].map(|name| folder.path().join(name));
    let line = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=a -days 10 -out FILE -keyout FILE";
    openssl(line, &[&soon, &key]);
    // The certificate of the gate is valid for thousands of years, and the intermediate certificate for ten days.
    let [late, soon] = [own.server(), soon].map(|path| fs::read_to_string(path).expect("a certificate"));
    fs::write(own.server(), format!("{late}{soon}")).expect("written");
    let gate = plan(&fixture, &own).start_as("gate");
    let trusting = client(&own, None);
    let address = ready(&gate, &trusting).await;
    let days = async || {
        let page = ask_tls(&trusting, address, "/metrics").await.expect("an answer").text;
        let mut values = page.lines().filter_map(|line| {
            line.strip_prefix("tidegate_gate_certificate_not_after_timestamp_seconds ")?.parse::<f64>().ok()
        });
        let seconds = values.next().expect("a value");
        (seconds - UNIX_EPOCH.elapsed().expect("a time").as_secs_f64()) / DAY
    };
    assert!((9.9..=10.0).contains(&days().await), "{}", days().await);
    fs::write(own.server(), late).expect("written");
    gate.signal(Signal::SIGHUP);
    gate.says("has read its certificates again").await;
    assert!(days().await > 365.0 * 1000.0, "{}", days().await);
    assert!(gate.stop().await.success());
}
