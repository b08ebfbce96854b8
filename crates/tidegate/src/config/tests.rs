//! Tests of how the configuration is merged, checked and shown.

mod secret_files;

use tempfile::TempDir;
use tidegate_http::{DigestSource, TokenScope};

use std::{collections::BTreeSet, ffi::OsString, fs, path::Path};

use super::*;

const DEFAULTS: &str = include_str!("../../../../config/default.toml");

fn load(args: &ConfigArgs, variables: &[(&str, &str)]) -> Result<Config, InvalidConfig> {
    Config::load(args, variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))))
}

fn sets(pairs: &[&str]) -> ConfigArgs {
    ConfigArgs { set: pairs.iter().map(|pair| SecretArg::from(*pair)).collect(), ..ConfigArgs::default() }
}

fn problems(result: Result<Config, InvalidConfig>) -> Vec<String> {
    let InvalidConfig(problems) = result.expect_err("a mistake was made");
    problems.into_iter().map(|problem| format!("{}: {}", problem.place, problem.what)).collect()
}

fn config_file(text: &str) -> (tempfile::NamedTempFile, ConfigArgs) {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    let args = ConfigArgs { config: Some(file.path().to_owned()), ..ConfigArgs::default() };
    (file, args)
}

#[test]
fn the_defaults_are_valid_and_every_one_of_them_is_read() {
    let layers = Layers::defaults();
    let mut reader = SettingsReader::new(&layers);
    let settings = Settings::read(&mut reader);
    let keys: BTreeSet<&str> = layers.settings().iter().map(|setting| setting.key.as_str()).collect();
    assert_eq!(&keys, reader.keys_read());
    assert_eq!(reader.into_problems(), []);
    assert_eq!(settings.system.common().mysql.connections, 5, "one for each lane and one more");
    let minute = std::time::Duration::from_secs(60);
    assert_eq!((settings.worker.prune_every, settings.worker.retire_idle), (minute, 60 * minute));
    assert!(!settings.worker.name.is_empty(), "the host name stands in");
    assert_eq!(settings.system.common().keys.fields, tidegate_orders::wire::FieldNames::default());
    assert_eq!(settings.system.common().keys, tidegate_orders::KeyTemplates::default());
}

#[test]
fn every_setting_has_a_comment_above_it_that_names_its_unit() {
    let lines: Vec<&str> = DEFAULTS.lines().collect();
    for pair in lines.windows(2) {
        let Some((key, _)) = pair[1].split_once(" = ").filter(|_| !pair[1].starts_with('#')) else {
            continue;
        };
        assert!(pair[0].starts_with('#'), "{key} has no comment");
    }
    for (suffix, unit) in [("_ms = ", "illiseconds"), ("_s = ", "Seconds")] {
        for (index, _) in lines.iter().enumerate().filter(|(_, line)| line.contains(suffix)) {
            let comment = lines[..index].iter().rev().take_while(|line| line.starts_with('#'));
            assert!(comment.into_iter().any(|line| line.contains(unit)), "{} without unit", lines[index]);
        }
    }
}

#[test]
fn every_setting_has_a_variable_of_its_own() {
    let layers = Layers::defaults();
    let keys = layers.keys();
    let variables: BTreeSet<String> = keys.iter().map(|key| layers::variable(key)).collect();
    assert_eq!((variables.len(), keys.len()), (keys.len(), layers.settings().len() + 5));
    for name in ["TIDEGATE_REDIS_URL", "TIDEGATE_REDIS_URL_FILE", "TIDEGATE_WORKER_BATCH"] {
        assert!(variables.contains(name), "{name}");
    }
}

#[test]
fn flags_win_over_variables_over_the_file_over_the_defaults() {
    let (_file, mut args) = config_file("[worker]\nlanes = 3\nbatch = 30\nblock_ms = 300\n");
    args.set = vec!["worker.lanes=5".into()];
    let variables = [("TIDEGATE_WORKER_LANES", "4"), ("TIDEGATE_WORKER_BATCH", "40")];
    let worker = load(&args, &variables).unwrap().settings.worker;
    assert_eq!((worker.lanes, worker.lane.batch, worker.lane.block.as_millis()), (5, 40, 300));
    assert_eq!(worker.lane.retry.first.as_millis(), 100);
}

#[test]
fn lanes_work_by_default_as_their_library_has_it() {
    let worker = load(&ConfigArgs::default(), &[]).unwrap().settings.worker;
    assert_eq!(format!("{:?}", worker.lane), format!("{:?}", tidegate_stream::LaneSettings::default()));
}

#[test]
fn the_file_may_be_named_by_a_variable() {
    let (file, _) = config_file("[stream]\ngroup = \"g2\"\n");
    let path = file.path().to_str().unwrap();
    let config = load(&ConfigArgs::default(), &[("TIDEGATE_CONFIG", path)]).unwrap();
    assert_eq!(config.settings.system.common().stream.group, "g2");
}

#[test]
fn all_mistakes_are_reported_together_with_the_place_of_each() {
    let text =
        "[worker]\nbatch = \"many\"\nbach = 3\nlanes = 0\n[stram]\nname = \"x\"\n[log]\nformat = \"xml\"\n";
    let (file, mut args) = config_file(text);
    args.set = vec!["worker.lock_lease_ms=60000".into(), "log.level=infoo".into(), "nonsense".into()];
    let variables = [
        ("TIDEGATE_MYSQL_ULR", "x"),
        ("TIDEGATE_KEYS_LOCK", "lock:<user>:<voucher>"),
        ("TIDEGATE_KEYS_STOCK", "stock"),
        ("TIDEGATE_GATE_CONNECTIONS", "ten"),
    ];
    let found = problems(load(&args, &variables));
    let file = format!("file {}", file.path().display());
    let expected = [
        format!("{file}: worker.batch must be a whole number, but is \"many\""),
        format!("{file}: worker.bach is no setting; did you mean worker.batch?"),
        format!("{file}: [stram] is no section; did you mean stream?"),
        format!("{file}: worker.lanes = 0 must be within 1 ..= 64"),
        format!("{file}: log.format = \"xml\" must be one of auto, text, json"),
        "variable TIDEGATE_MYSQL_ULR: is no setting; did you mean TIDEGATE_MYSQL_URL?".to_owned(),
        "variable TIDEGATE_GATE_CONNECTIONS: gate.connections must be a whole number, but is \"ten\""
            .to_owned(),
        "variable TIDEGATE_KEYS_STOCK: keys.stock = \"stock\" must hold <voucher> exactly once".to_owned(),
        "flag --set: needs KEY=VALUE, such as worker.batch=200".to_owned(),
    ];
    for expected in &expected {
        assert!(found.contains(expected), "{expected}\nis missing in {found:#?}");
    }
    for begin in [
        "variable TIDEGATE_KEYS_LOCK: keys.lock = \"lock:<user>:<voucher>\" holds <voucher>",
        "default: worker.claim_idle_ms = 60000 must be above worker.lock_lease_ms",
        "flag --set: log.level = \"infoo\" must be one of off,",
    ] {
        assert!(found.iter().any(|found| found.starts_with(begin)), "{begin}\nis missing in {found:#?}");
    }
    assert_eq!(found.len(), 12, "{found:#?}");
}

#[test]
fn a_file_that_is_missing_or_no_toml_is_reported_with_the_rest() {
    let args = ConfigArgs { config: Some("/does/not/exist.toml".into()), ..sets(&["worker.lanes=0"]) };
    let found = problems(load(&args, &[]));
    assert!(found[0].starts_with("file /does/not/exist.toml: cannot be read"), "{found:#?}");
    assert_eq!(found.len(), 2, "{found:#?}");

    let (_file, args) = config_file("[redis]\n\nurl = \"redis://:hunter2@host\nconnections = 2\n");
    let found = problems(load(&args, &[]));
    assert!(found[0].contains("line 3 is not TOML"), "{found:#?}");
    assert!(!found[0].contains("hunter2"), "{found:#?}");
}

#[test]
fn variables_of_the_test_servers_are_none_of_our_business() {
    load(
        &ConfigArgs::default(),
        &[
            ("TIDEGATE_LAB_KEEP", "1"),
            ("TIDEGATE_MATRIX_DIR", "x"),
            ("TIDEGATE_TEST_SEED", "7"),
            ("HOME", "/"),
        ],
    )
    .unwrap();
}

#[test]
fn variables_that_kubernetes_sets_for_a_service_are_none_of_our_business() {
    let variables = [
        ("TIDEGATE_SERVICE_HOST", "10.0.0.1"),
        ("TIDEGATE_SERVICE_PORT_METRICS", "80"),
        ("TIDEGATE_PORT", "tcp://10.0.0.1:80"),
        ("TIDEGATE_REDIS_PORT_6379_TCP_ADDR", "10.0.0.2"),
        ("TIDEGATE_REDIS_SERVICE_HOST", "10.0.0.2"),
    ];
    load(&ConfigArgs::default(), &variables).unwrap();
    let typo = problems(load(&ConfigArgs::default(), &[("TIDEGATE_WORKER_LANE", "1")]));
    assert!(typo[0].contains("TIDEGATE_WORKER_LANES"), "{typo:?}");
}

#[test]
fn a_password_that_is_not_escaped_is_refused_before_it_becomes_a_host() {
    for url in ["mysql.url=mysql://root:p@ss/w#rd@127.0.0.1/db", "redis.url=redis://:a/b@127.0.0.1"] {
        let problems = problems(load(&sets(&[url]), &[]));
        assert!(problems[0].contains("not escaped"), "{problems:?}");
    }
}

#[test]
fn urls_of_every_supported_kind_are_taken() {
    for url in [
        "redis://host",
        "rediss://app:secret@host:6380/1",
        "redis-sentinel://h:26379/0?sentinelServiceName=main&node=b:26379",
        "redis+unix:///run/redis.sock",
    ] {
        load(&ConfigArgs { redis_url: Some(url.into()), ..ConfigArgs::default() }, &[]).unwrap();
    }
    for url in [
        "mysql://a:b@h/db?ssl-mode=VERIFY_IDENTITY",
        "mariadb://a@h:3307/db",
        "mysql://a@h/db?socket=/s",
        "mysql://a@[::1]:3306/db",
    ] {
        load(&ConfigArgs { mysql_url: Some(url.into()), ..ConfigArgs::default() }, &[]).unwrap();
    }
}

#[test]
fn urls_that_cannot_work_are_refused_before_anything_connects() {
    for pair in [
        "redis.url=http://host",
        "redis.url=host:6379",
        "redis.url=redis-cluster://host:6379",
        "redis.url=redis://host:port",
        "redis.url=redis-sentinel://host:1/0",
        "mysql.url=postgres://host/db",
        "mysql.url=mysql://host",
        "mysql.url=mysql://host:port/db",
        "mysql.url=mysql://host/db?ssl-mode=MAYBE",
        "mysql.url=mysql://host/db?useSSL=false",
        "redis.url=redis://host:6379?db=5",
    ] {
        assert_eq!(problems(load(&sets(&[pair]), &[])).len(), 1, "{pair}");
    }
}

#[test]
fn a_password_is_never_shown_neither_where_it_is_right_nor_where_it_is_wrong() {
    let good = ["redis.url=redis://app:hunter2@host/0", "mysql.url=mysql://root:hunter2@host/db"];
    let config = load(&sets(&good), &[]).unwrap();
    let shown = [config.to_toml(), config.to_json().to_string(), format!("{config:?}")].concat();
    assert!(shown.contains("app:***@host"), "{shown}");
    assert!(!shown.contains("hunter2"), "{shown}");

    for bad in [
        "redis.url=redis://app:hunter2@host:hunter2/0",
        "redis.url=hunter2",
        "redis.url=redis-sentinel://h/0?sentinelPassword=hunter2",
        "mysql.url=mysql://root:hunter2@host",
        "mysql.url=mysql://root:hunter2@ho st/db",
        "mysql.url=mysql://host/db?ssl-mode=hunter2",
        "redis.ulr=redis://:hunter2@host",
        "hunter2",
    ] {
        let args = sets(&[bad]);
        assert!(!format!("{args:?}").contains("hunter2"));
        let error = load(&args, &[]).expect_err(bad);
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{bad}: {error}");
    }
}

/// The digest of the token `hunter2`.
const DIGEST: &str = "f52fbd32b2b3b86ff88ef6c490628285f482af15ddcb29541f94bcf526a3f6c7";

#[test]
fn a_token_has_a_name_scopes_and_a_digest_which_is_never_shown() {
    let text = format!("shop:order+event:{DIGEST}");
    for token in [text.clone(), format!("{text},page:read:{}", DIGEST.replace('f', "0"))] {
        let config = load(&sets(&[&format!("tokens={token}")]), &[]).unwrap();
        let tokens = &config.settings.tokens;
        assert_eq!(tokens.list[0].scopes, [TokenScope::Order, TokenScope::Event]);
        assert!(tokens.has(TokenScope::Event) && !tokens.has(TokenScope::Results));
        let shown = [config.to_toml(), config.to_json().to_string(), format!("{config:?}")].concat();
        assert!(shown.contains("\"shop:***\""), "{shown}");
        assert!(!shown.contains("f52fbd"), "{shown}");
    }
    for (wrong, why) in [
        ("shop", "NAME:SCOPE+SCOPE:SHA256"),
        ("shop:order:f52fbd", "64 hexadecimal digits"),
        (&format!("shop:buy:{DIGEST}"), "at least one of order, event, read, results, sell"),
        (&format!("Shop:order:{DIGEST}"), "1 to 32 lower-case letters"),
        (&format!("{text},{text}"), "is the digest of another token"),
        (&format!("{text},shop:read:{}", DIGEST.replace('f', "0")), "is already the name of another entry"),
    ] {
        let problem = problems(load(&sets(&[&format!("tokens={wrong}")]), &[])).concat();
        assert!(problem.contains(why) && !problem.contains("f52fbd"), "{wrong}: {problem}");
    }
}

#[test]
fn the_file_has_a_table_for_each_token_and_the_place_of_a_mistake_is_told() {
    let dir = TempDir::new().unwrap();
    let load = |text: &str| {
        let path = dir.path().join("tidegate.toml");
        fs::write(&path, text).unwrap();
        load(&ConfigArgs { config: Some(path), ..ConfigArgs::default() }, &[])
    };
    let first = format!("[[tokens]]\nname = \"shop\"\nsha256 = \"{DIGEST}\"\nscopes = [\"order\"]\n");
    let second =
        "[[tokens]]\nname = \"page\"\nsha256_file = \"page.sha256\"\nscopes = [\"read\", \"results\"]\n";
    let both = format!("worker.lanes = 2\n{first}{second}");
    let tokens = load(&both).unwrap().settings.tokens;
    assert_eq!(tokens.list[1].digest, DigestSource::File("page.sha256".into()));
    let reread = tokens.reread.unwrap();
    assert_eq!(reread().unwrap().len(), 2);
    fs::write(dir.path().join("tidegate.toml"), format!("worker.lanes = 0\n{first}")).unwrap();
    assert_eq!(reread().unwrap().len(), 1, "a mistake elsewhere does not keep a removed token");
    fs::write(dir.path().join("tidegate.toml"), "[[tokens]]\nname = ").unwrap();
    assert!(reread().is_err());
    for (text, why) in [
        (both.replace("sha256_file", "sha256_fil"), "entry 2 (\"page\") needs `sha256` or `sha256_file`"),
        (both.replace("\"page.sha256\"", "7"), "entry 2 (\"page\") `sha256_file` must be a text in quotes"),
        (both.replace("name = \"page\"\n", ""), "entry 2 needs `name`"),
        (first.replace("[[tokens]]", "[tokens]"), "tokens must be a list of tables"),
        (first.replace("[[tokens]]", "[[token]]"), "[token] is no section"),
    ] {
        let problem = problems(load(&text)).concat();
        assert!(problem.contains(why), "{text}: {problem}");
    }
}

#[test]
fn a_webhook_has_a_url_without_tls_only_on_loopback_and_gets_only_what_is_published() {
    let load = |members: &str| {
        let (_file, args) = config_file(&format!(
            "[[webhooks]]\nname = \"shop\"\nsecret_file = \"/run/secret\"\nurl = {members}\n"
        ));
        load(&args, &[])
    };
    let config =
        load("\"https://shop.example/hunter2/hooks?key=hunter2\"\nkinds = [\"fact\", \"expired\"]").unwrap();
    let webhook = &config.settings.system.common().results.webhooks[0];
    assert_eq!(webhook.kinds.words(), ["fact", "expired"]);
    let shown = [config.to_toml(), config.to_json().to_string(), format!("{config:?} {webhook:?}")].concat();
    assert!(shown.contains("\"shop:***\"") && !shown.contains("hunter2"), "{shown}");
    for right in ["\"http://127.0.0.1:8080/\"", "\"http://shop.internal/\"\nallow_http = true"] {
        load(right).expect(right);
    }
    for (wrong, why) in [
        ("\"http://shop.internal/\"", "set allow_http = true"),
        ("\"https://user:hunter2@shop.example/\"", "must not contain a user or a password"),
        ("\"https://169.254.169.254/\"", "link-local"),
        ("\"https://shop.example/\"\nkinds = [\"paid\"]", "set results.publish to \"all\""),
        ("\"https://shop.example/\"\nkinds = [\"payed\"]", "the unknown word"),
        ("\"https://shop.example/\"\nallow_http = 1", "must be true or false"),
        ("\"https://shop.example/\"\nsecret = \"hunter2\"", "has the unknown member \"secret\""),
    ] {
        let problem = problems(load(wrong)).concat();
        assert!(problem.contains(why) && !problem.contains("hunter2"), "{wrong}: {problem}");
    }
}

#[test]
fn an_empty_variable_does_not_remove_the_tokens_of_the_file() {
    let (_file, args) =
        config_file(&format!("[[tokens]]\nname = \"shop\"\nsha256 = \"{DIGEST}\"\nscopes = [\"order\"]\n"));
    let tokens = load(&args, &[("TIDEGATE_TOKENS", "")]).unwrap().settings.tokens;
    assert_eq!(tokens.list.len(), 1);
    assert!(tokens.reread.is_some(), "the file still has the list");
}

#[test]
fn a_token_in_plain_text_is_refused_and_never_shown() {
    for key in ["admin.token", "gate.token"] {
        let problem = problems(load(&sets(&[&format!("{key}=hunter2hunter2")]), &[])).concat();
        assert!(problem.contains("sha256sum") && !problem.contains("hunter2"), "{problem}");
    }
}

#[test]
fn only_on_loopback_a_worker_can_be_watched_without_a_token() {
    let listen = |address: &str, tokens: &str| {
        let pairs = [format!("admin.listen={address}"), format!("tokens={tokens}")];
        load(&sets(&[&pairs[0], &pairs[1]]), &[]).map(|config| config.settings.admin.listen)
    };
    for address in ["127.0.0.1:0", "127.8.9.10:1", "[::1]:8433", "[::ffff:127.0.0.1]:8433"] {
        assert_eq!(listen(address, "").unwrap(), Some(address.parse().unwrap()));
    }
    assert_eq!(listen("off", "").unwrap(), None);
    for address in ["0.0.0.0:8433", "[::]:8433", "10.0.0.1:8433"] {
        let problem = problems(listen(address, "").map(|_| unreachable!("{address}"))).concat();
        assert!(problem.contains("TIDEGATE_TOKENS") && problem.contains("openssl rand"), "{problem}");
        listen(address, &format!("shop:order:{DIGEST}")).unwrap_err();
        listen(address, &format!("prometheus:read:{DIGEST}")).unwrap();
    }
    for address in ["localhost:8433", "8433", "", "on"] {
        let problem = problems(listen(address, "").map(|_| unreachable!("{address}"))).concat();
        assert!(problem.contains("must be IP:PORT"), "{problem}");
    }
}

#[test]
fn the_gate_listens_beyond_loopback_only_to_callers_that_know_a_secret() {
    let listen = |address: &str, more: &[&str]| {
        let listen = format!("gate.listen={address}");
        load(&sets(&[&[listen.as_str()], more].concat()), &[])
    };
    let pair = ["gate.tls_cert=cert.pem", "gate.tls_key=key.pem"];
    let mutual = [&pair[..], &["gate.tls_client_ca=ca.pem"]].concat();
    for address in ["127.0.0.1:0", "[::1]:8434"] {
        assert!(listen(address, &[]).unwrap().settings.gate.tls.is_none());
    }
    for address in ["0.0.0.0:8434", "[::]:8434", "10.0.0.1:8434"] {
        for more in [&[][..], &pair] {
            let problem = problems(listen(address, more)).concat();
            assert!(
                problem.contains("TIDEGATE_TOKENS") && problem.contains("gate.tls_client_ca"),
                "{problem}"
            );
        }
        listen(address, &[&format!("tokens=shop:order:{DIGEST}")]).unwrap();
        assert!(listen(address, &mutual).unwrap().settings.gate.tls.unwrap().client_authorities.is_some());
    }
    for address in ["localhost:8434", "8434", "", "off"] {
        assert!(problems(listen(address, &[])).concat().contains("must be IP:PORT"), "{address}");
    }
}

#[test]
fn what_the_gate_is_told_of_callers_is_refused_where_it_cannot_be_meant() {
    let gate = |pairs: &[&str]| load(&sets(pairs), &[]).unwrap().settings.gate;
    let told = gate(&["gate.trusted_proxies=10.0.0.0/8, fd00::5", "gate.user_header=X-User-Id"]).callers;
    assert_eq!((told.proxies.len(), told.user_header.unwrap().name().as_str()), (2, "x-user-id"));
    let told = gate(&["gate.attempts_by_address=200/1s", "gate.attempts_by_subject=user=5/1s phone=3/10m"]);
    let minutes = std::time::Duration::from_secs(600);
    assert_eq!(told.attempts.by_address.unwrap().attempts.get(), 200);
    assert_eq!(told.attempts.by_subject.len(), 2);
    assert_eq!(told.attempts.by_subject[&"phone".parse().unwrap()].span, minutes);
    let by_default = gate(&[]).attempts;
    assert!(by_default.by_address.is_none() && by_default.by_subject.is_empty());
    let (_file, args) = config_file("[gate]\nattempts_by_subject = { device = \"1/1s\" }\n");
    assert_eq!(load(&args, &[]).unwrap().settings.gate.attempts.by_subject.len(), 1);
    for (pair, told) in [
        ("gate.tls_cert=cert.pem", "gate.tls_key = \"\" is needed for gate.tls_cert"),
        ("gate.tls_key=key.pem", "gate.tls_cert = \"\" is needed for gate.tls_key"),
        ("gate.tls_client_ca=ca.pem", "needs TLS: set gate.tls_cert and gate.tls_key"),
        ("gate.trusted_proxies=proxy.local", "names \"proxy.local\", which is neither an IP address"),
        ("gate.trusted_proxies=10.0.0.1,,10.0.0.2", "names \"\", which"),
        ("gate.trusted_proxies=0.0.0.0/0", "would trust every address"),
        ("gate.user_header=X-User-Id", "list your proxies; gate.trusted_proxies = []"),
        ("gate.attempts_by_address=on", "must be off, or ATTEMPTS/SPAN such as 20/1s"),
        ("gate.attempts_by_address=0/1s", "must be off, or"),
        ("gate.attempts_by_address=9999999/1s", "up to 1000000 in a second"),
        ("gate.attempts_by_address=1/25h", "a span of up to a day"),
        ("gate.attempts_by_subject=user", "has \"\" for user"),
        ("gate.attempts_by_subject=User=1/1s", "names an invalid subject: \"User\" is not a name"),
    ] {
        let found = problems(load(&sets(&[pair]), &[]));
        assert!(found.len() == 1 && found[0].contains(told), "{pair}: {found:#?}");
    }
    for header in ["X User", "Authorization", "x-forwarded-for"] {
        let pairs = ["gate.trusted_proxies=127.0.0.1".to_owned(), format!("gate.user_header={header}")];
        let found = problems(load(&sets(&[&pairs[0], &pairs[1]]), &[]));
        assert!(found.len() == 1 && found[0].contains("such as X-User-Id"), "{header}: {found:#?}");
    }
}

#[test]
fn names_that_may_stand_for_the_same_key_are_refused_whatever_their_placeholders_are_called() {
    for (pair, earlier) in [
        ("keys.lock=seckill:stock:<user>", "keys.stock"),
        ("keys.limited=seckill:voucher:<voucher>", "keys.voucher"),
        ("stream.results=stream.orders.dead", "stream.dead"),
    ] {
        let found = problems(load(&sets(&[pair]), &[]));
        let told = format!("names the same keys as {earlier}; choose another name");
        assert!(found.len() == 1 && found[0].contains(&told), "{pair}: {found:#?}");
    }
    for pair in [
        "keys.lock=tidegate:worker:<user>",
        "keys.stock=seckill:limits:campaign:<voucher>",
        "stream.dead=tidegate:pause",
        "stream.dead=tidegate:partitions:gate:a",
    ] {
        let found = problems(load(&sets(&[pair]), &[]));
        let told = "is the name of a key that only Tidegate uses; choose another name";
        assert!(found.len() == 1 && found[0].contains(told), "{pair}: {found:#?}");
    }
    let other =
        ["stream.name=tidegate:log", "stream.dead=dead", "stream.results=tidegate:log:tidegate:pause"];
    assert_eq!(problems(load(&sets(&other), &[])).len(), 2);
    load(&sets(&["keys.order_id=lock:order:<day>"]), &[]).expect("no user is called as a day is");
    load(&sets(&["stream.dead=tidegate:dead"]), &[]).expect("nothing of ours has this name");
}

#[test]
fn one_prefix_separates_every_name_from_those_of_another_fleet() {
    let usual = load(&ConfigArgs::default(), &[]).unwrap().settings;
    let settings = load(&sets(&["redis.prefix=shop2:"]), &[]).unwrap().settings;
    assert_eq!(settings.system.common().stream.name, "shop2:stream.orders");
    assert_eq!(settings.system.common().stream.dead, "shop2:stream.orders.dead");
    assert_eq!(settings.system.common().stream.results, "shop2:stream.orders.results");
    let names = |settings: &Settings| {
        let keys = tidegate_orders::Keys::new(settings.system.common().keys.clone());
        let (voucher, user) = (7.try_into().unwrap(), 42.try_into().unwrap());
        let owner = tidegate_orders::limits::LimitOwner::Voucher(voucher);
        let lock = keys.locks(&[user]).remove(0);
        let of_sales =
            [keys.stock(voucher), keys.buyers(voucher), keys.voucher(voucher), keys.journal(voucher)];
        let of_limits = [keys.limited(voucher), keys.limits(owner).rules(), keys.limits(owner).uses()];
        let of_callers = [keys.idempotency(voucher, user, "digest"), keys.order_id("2026:11:28"), lock];
        let (fleet, list) = (keys.fleet(), keys.partition_list());
        let of_workers =
            [fleet.heartbeat("w"), fleet.work_in_progress("w"), fleet.pause(), fleet.restore_counter()];
        let of_holders =
            [fleet.sweeper(), fleet.busy_marker(), fleet.sales_need_workers(), fleet.reconciler()];
        let of_operators = [fleet.reconciled(), fleet.log(), fleet.replay("1")];
        let of_list = [list.tags(), list.change(), list.retired(), list.gate("g")];
        let of_fleet = [&of_workers[..], &of_holders, &of_operators, &of_list].concat();
        let all = [&of_sales[..], &of_limits, &of_callers, &of_fleet].concat();
        all.iter().map(|key| key.as_str_lossy().into_owned()).collect::<Vec<_>>()
    };
    let prefixed: Vec<_> = names(&usual).iter().map(|name| format!("shop2:{name}")).collect();
    assert_eq!(names(&settings), prefixed);
    assert!(problems(load(&sets(&["redis.prefix=a<voucher>"]), &[]))[0].contains("redis.prefix"));
}

#[test]
fn a_fleet_on_another_stream_has_keys_of_its_own_and_is_refused_if_it_shares_dead_letters_or_results() {
    let own = ["stream.name=orders.b", "stream.dead=orders.b.dead", "stream.results=orders.b.results"];
    let found = problems(load(&sets(&own[..2]), &[]));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].contains("stream.results = \"stream.orders.results\""), "{found:#?}");
    assert!(
        found[0].contains("set redis.prefix") && found[0].contains("stream.name = \"orders.b\""),
        "{found:#?}"
    );
    assert_eq!(problems(load(&sets(&own[..1]), &[])).len(), 2);
    let settings = load(&sets(&[&own[..], &["redis.prefix=shop2:"]].concat()), &[]).unwrap().settings;
    let keys = tidegate_orders::Keys::new(settings.system.common().keys.clone());
    let fleet = keys.fleet();
    for (key, name) in [
        (fleet.heartbeat("w"), "orders.b:tidegate:worker:w"),
        (fleet.log(), "orders.b:tidegate:log"),
        (fleet.pause(), "orders.b:tidegate:pause"),
        (fleet.restore_counter(), "orders.b:tidegate:mark"),
        (fleet.sweeper(), "orders.b:tidegate:sweeper"),
        (fleet.reconciler(), "orders.b:tidegate:reconciler"),
        (fleet.reconciled(), "orders.b:tidegate:reconciled"),
        // A fleet with other partitions in the same Redis would sell from other keys.
        (keys.partition_list().tags(), "tidegate:partitions"),
        (keys.stock(7.try_into().unwrap()), "seckill:stock:7"),
    ] {
        assert_eq!(key.as_str_lossy(), format!("shop2:{name}"));
    }
}

#[test]
fn who_has_a_setting_that_is_gone_is_told_what_holds_now() {
    let (file, mut args) = config_file("[operator]\nlog_lines = 5\n[worker]\nbatch_bytes = 1\nlanes = 3\n");
    args.set = vec!["keys.pause=b:pause".into()];
    let found = problems(load(&args, &[("TIDEGATE_WORKER_TRIM_EVERY_MS", "1000")]));
    let file = format!("file {}", file.path().display());
    let gone = "is no setting any more: remove it. Its value is always";
    let expected = [
        format!("{file}: operator.log_lines {gone} 10000"),
        format!("{file}: worker.batch_bytes {gone} 3145728"),
        format!(
            "variable TIDEGATE_WORKER_TRIM_EVERY_MS: worker.trim_every_ms {gone} twelve times worker.claim_every_ms"
        ),
        format!(
            "flag --set: keys.pause {gone} tidegate:pause after redis.prefix and, if stream.name is not stream.orders, after \
             stream.name and a colon (docs/configuration.md)"
        ),
    ];
    assert_eq!(found, expected);
}

#[test]
fn names_of_fields_with_which_an_entry_could_be_read_in_two_ways_are_refused() {
    load(&sets(&["fields.id=orderId", "fields.user=user_id"]), &[]).unwrap();
    for (pair, told) in [
        ("fields.id=event", "makes an entry an event"),
        ("fields.user=id", "is also the value of fields.id"),
        ("fields.slot=quantity", "is also the value of fields.quantity"),
    ] {
        assert!(problems(load(&sets(&[pair]), &[])).concat().contains(told), "{pair}");
    }
    let found = problems(load(&sets(&["fields.user=id", "fields.id=orderId"]), &[])).concat();
    assert!(
        found.contains("fields.user = \"id\" is the name that lua/admit.lua gives to the field of fields.id"),
        "{found}"
    );
}

#[test]
fn what_is_printed_can_be_read_back() {
    let text = load(&sets(&["worker.lanes=7", "keys.lock=l:<user>"]), &[]).unwrap().to_toml();
    assert!(text.contains("lanes = 7 # flag --set"), "{text}");
    let (_file, args) = config_file(&text);
    let settings = load(&args, &[]).unwrap().settings;
    assert_eq!((settings.worker.lanes, settings.system.common().keys.lock.as_str()), (7, "l:<user>"));
}

#[test]
fn the_example_files_are_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config");
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    for file in files.filter(|path| path.extension().is_some_and(|extension| extension == "toml")) {
        let args = ConfigArgs { config: Some(file), ..ConfigArgs::default() };
        load(&args, &[]).unwrap();
    }
}

#[test]
fn a_list_of_partitions_with_a_gap_is_refused_and_an_empty_one_is_none() {
    for list in ["3,,1", ",3", "3,"] {
        let found = problems(load(&sets(&[&format!("stream.partitions={list}")]), &[]));
        assert!(found[0].contains("must hold tags of 1 to 32 characters"), "{list}: {found:#?}");
    }
    for none in ["", " "] {
        let settings = load(&sets(&[&format!("stream.partitions={none}")]), &[]).unwrap().settings;
        assert_eq!(settings.system.partitions().len(), 1);
        assert!(settings.system.common().partition().tags().is_empty());
    }
}

#[test]
fn partitions_may_have_a_mysql_of_their_own() {
    let second = "mysql://app:hunter2@a:3306,b:3306/hmdp";
    let shards = format!("mysql.shards=1={second} 0={second}");
    let config = load(&sets(&["stream.partitions=3,1,0", &shards]), &[]).unwrap();
    let system = &config.settings.system;
    let tags: Vec<_> = system.shards().iter().map(|shard| shard.mysql.shard_tags.join(",")).collect();
    assert_eq!(tags, ["3", "1,0"]);
    assert_eq!(system.partitions()[2].mysql.url.reveal(), second);
    for shown in [config.to_toml(), config.to_json().to_string()] {
        assert!(shown.contains("app:***@a:3306,b:3306") && !shown.contains("hunter2"), "{shown}");
    }
    let variable = [("TIDEGATE_MYSQL_SHARDS", "3=mysql://h/db"), ("TIDEGATE_STREAM_PARTITIONS", "3,1")];
    assert_eq!(load(&ConfigArgs::default(), &variable).unwrap().settings.system.shards().len(), 2);
    let usual = load(&sets(&["stream.partitions=3,1,0"]), &[]).unwrap().settings;
    assert!(usual.system.shards().len() == 1 && usual.system.common().mysql.shard_tags.is_empty());

    for (pairs, told) in [
        (vec!["mysql.shards=3=mysql://h:hunter2@h/db"], "set stream.partitions"),
        (vec!["stream.partitions=1", "mysql.shards=3=mysql://h/db"], "names the tag \"3\""),
        (vec!["stream.partitions=3", "mysql.shards=3=mysql://u:hunter2@h"], "must name the database"),
        (vec!["stream.partitions=3", "mysql.shards=3"], "must begin with mysql://"),
    ] {
        let problems = problems(load(&sets(&pairs), &[])).concat();
        assert!(problems.contains(told) && !problems.contains("hunter2"), "{problems}");
    }
}
