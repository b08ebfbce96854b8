//! Tests of settings whose values are in files of their own.

use super::*;

const REDIS: &str = "redis://app:hunter2@cache:6379/0";

/// A file in a folder of its own, with this text.
struct SecretFile(TempDir);

impl SecretFile {
    fn with(text: impl AsRef<[u8]>) -> Self {
        let file = Self(TempDir::new().unwrap());
        file.write(text);
        file
    }

    fn write(&self, text: impl AsRef<[u8]>) {
        fs::write(self.0.path().join("secret"), text).unwrap();
    }

    fn path(&self) -> String {
        self.0.path().join("secret").display().to_string()
    }
}

fn redis_url(config: &Config) -> &str {
    config.settings.system.common().redis.url.reveal()
}

#[test]
fn each_layer_can_name_a_file_with_the_value_of_a_secret() {
    for text in [REDIS.to_owned(), format!("{REDIS}\n"), format!(" {REDIS}\r\n\n")] {
        let secret = SecretFile::with(&text);
        let path = secret.path();
        let (file, of_file) = config_file(&format!("redis.url_file = {path:?}\n"));
        let (section, of_section) = config_file(&format!("[redis]\nurl_file = {path:?}\n"));
        for (args, variables, named_by) in [
            (of_file, vec![], format!("file {}", file.path().display())),
            (of_section, vec![], format!("file {}", section.path().display())),
            (
                ConfigArgs::default(),
                vec![("TIDEGATE_REDIS_URL_FILE", &*path)],
                "variable TIDEGATE_REDIS_URL_FILE".to_owned(),
            ),
            (sets(&[&format!("redis.url_file={path}")]), vec![], "flag --set".to_owned()),
        ] {
            let config = load(&args, &variables).expect(&named_by);
            assert_eq!(redis_url(&config), REDIS, "{text:?} {named_by}");
            let toml = config.to_toml();
            let line = format!("redis.url = \"redis://app:***@cache:6379/0\" # {named_by} ({path})\n");
            assert!(toml.contains(&line), "{line}\nis missing in {toml}");
            assert_eq!(config.to_json()["redis"]["url"]["source"], format!("{named_by} ({path})"));
            assert!(!format!("{toml}{}{config:?}", config.to_json()).contains("hunter2"));
        }
    }
}

#[test]
fn every_setting_that_may_hold_a_secret_takes_a_file_with_the_text_of_its_variable() {
    let mysql = "mysql://app:hunter2@db/hmdp";
    let files = [
        ("MYSQL_URL", mysql.to_owned()),
        ("MYSQL_SHARDS", format!("1={mysql}1\n2={mysql}2\n")),
        ("TOKENS", format!("shop:order:{DIGEST},\npage:read:{}\n", DIGEST.replace('f', "0"))),
        ("WEBHOOKS", "shop:/run/secrets/shop:https://shop.example/?key=hunter2\n".to_owned()),
    ]
    .map(|(name, text)| (format!("TIDEGATE_{name}_FILE"), SecretFile::with(text)));
    let paths = files.each_ref().map(|(name, file)| (name, file.path()));
    let mut variables: Vec<(&str, &str)> =
        paths.iter().map(|(name, path)| (name.as_str(), &**path)).collect();
    variables.push(("TIDEGATE_STREAM_PARTITIONS", "1,2"));
    let config = load(&ConfigArgs::default(), &variables).unwrap();
    let system = &config.settings.system;
    let urls = system.partitions().iter().map(|partition| partition.mysql.url.reveal().to_owned());
    assert_eq!(urls.collect::<Vec<_>>(), [format!("{mysql}1"), format!("{mysql}2")]);
    assert_eq!(config.settings.tokens.list.len(), 2);
    assert_eq!(system.common().results.webhooks[0].secret_file, Path::new("/run/secrets/shop"));
    let toml = config.to_toml();
    for line in [
        format!(
            "mysql.url = \"mysql://app:***@db/hmdp\" # variable TIDEGATE_MYSQL_URL_FILE ({})",
            paths[0].1
        ),
        format!("tokens = [\"shop:***\", \"page:***\"] # variable TIDEGATE_TOKENS_FILE ({})", paths[2].1),
        format!("webhooks = [\"shop:***\"] # variable TIDEGATE_WEBHOOKS_FILE ({})", paths[3].1),
    ] {
        assert!(toml.contains(&line), "{line}\nis missing in {toml}");
    }
    assert!(!toml.contains("hunter2") && !toml.contains("f52fbd"), "{toml}");

    let (_file, args) = config_file(&format!("tokens_file = {:?}\n[worker]\nlanes = 2\n", paths[2].1));
    assert_eq!(load(&args, &[]).unwrap().settings.tokens.list.len(), 2);
}

#[test]
fn a_later_layer_wins_and_a_file_that_an_earlier_one_names_need_not_exist() {
    let secret = SecretFile::with(REDIS);
    let (_file, args) = config_file("redis.url_file = \"/does/not/exist\"\n");
    let plain = [("TIDEGATE_REDIS_URL", "redis://plain")];
    assert_eq!(redis_url(&load(&args, &plain).unwrap()), "redis://plain");
    let by_file = sets(&[&format!("redis.url_file={}", secret.path())]);
    assert_eq!(redis_url(&load(&by_file, &plain).unwrap()), REDIS);
    let empty = [("TIDEGATE_REDIS_URL_FILE", ""), plain[0]];
    assert_eq!(redis_url(&load(&ConfigArgs::default(), &empty).unwrap()), "redis://plain", "as if unset");
    // The URL in the configuration file is wrong, but not in effect.
    let (_file, args) = config_file("redis.url = \"http://host\"\n");
    let found = problems(load(&args, &[("TIDEGATE_REDIS_URL_FILE", "/does/not/exist")]));
    assert_eq!(found.len(), 1, "{found:#?}");
}

#[test]
fn a_value_and_a_file_with_the_value_in_one_layer_are_refused() {
    let secret = SecretFile::with(REDIS);
    let path = secret.path();
    let (file, of_file) = config_file(&format!("[redis]\nurl = \"redis://host\"\nurl_file = {path:?}\n"));
    let by_flags = [format!("redis.url_file={path}"), "redis.url=redis://host".to_owned()];
    let two_flags =
        ConfigArgs { redis_url: Some("redis://host".into()), ..sets(&[&format!("redis.url_file={path}")]) };
    let names = ["TIDEGATE_REDIS_URL", "TIDEGATE_REDIS_URL_FILE"];
    let variables = vec![(names[0], "redis://host"), (names[1], &*path)];
    let reverse: Vec<_> = variables.iter().rev().copied().collect();
    let none = ConfigArgs::default;
    for (args, variables, place) in [
        (of_file, vec![], format!("file {}", file.path().display())),
        (none(), variables, format!("variable {}", names[1])),
        (none(), reverse, format!("variable {}", names[0])),
        (sets(&[&by_flags[0], &by_flags[1]]), vec![], "flag --set".to_owned()),
        (two_flags, vec![], "flag --set".to_owned()),
    ] {
        let found = problems(load(&args, &variables));
        let expected = format!("{place}: redis.url and redis.url_file are both set: remove one of them");
        assert_eq!(found, [expected], "{place}");
    }
}

#[test]
fn a_file_that_gives_no_value_is_reported_with_its_key_and_path_and_never_with_its_text() {
    let secret = SecretFile::with("");
    let path = secret.path();
    let folder = secret.0.path().display().to_string();
    let variable = |key: &str| format!("TIDEGATE_{}", key.to_uppercase().replace('.', "_"));
    for (key, path, text, why) in [
        ("redis.url_file", &*path, &b""[..], " is empty: write the value of the setting into the file"),
        ("tokens_file", &*path, b" \n\n", " is empty: write the value of the setting into the file"),
        ("mysql.url_file", &*path, b"mysql://hunter2\xff", " cannot be read: it is not UTF-8"),
        ("mysql.url_file", &*folder, b"", " cannot be read: it is no regular file"),
        ("redis.url_file", "/does/not/exist", b"", " cannot be read: No such file or directory (os error 2)"),
    ] {
        secret.write(text);
        let found = problems(load(&ConfigArgs::default(), &[(&variable(key), path)]));
        assert_eq!(found, [format!("variable {}: {key} = {path:?}{why}", variable(key))]);
    }
    let is_value = "must be the path of a file, and not the value itself";
    for (pair, why) in [
        ("redis.url_file=", "is empty: give the path of a file"),
        ("redis.url_file=redis://:hunter2@host", is_value),
        ("mysql.shards_file=1=mysql://:hunter2@host/db", is_value),
        (&format!("tokens_file=shop:order:{DIGEST}"), is_value),
    ] {
        let key = pair.split('=').next().unwrap();
        assert_eq!(problems(load(&sets(&[pair]), &[])), [format!("flag --set: {key} {why}")]);
    }
    let (file, args) = config_file("tokens_file = [\"hunter2\"]\n");
    let expected = "tokens_file must be the path of a file, in quotes";
    assert_eq!(problems(load(&args, &[])), [format!("file {}: {expected}", file.path().display())]);
    // A wrong value is reported with the file that has it.
    secret.write("http://:hunter2@host");
    let found = problems(load(&sets(&[&format!("redis.url_file={path}")]), &[])).concat();
    assert!(
        found.starts_with(&format!("flag --set ({path}): redis.url must begin with redis://")),
        "{found}"
    );
    assert!(!found.contains("hunter2"), "{found}");
}

#[test]
fn a_file_of_a_setting_without_a_secret_and_a_mistyped_name_are_refused_with_a_hint() {
    let (file, mut args) =
        config_file("tokens_fil = \"/t\"\n[redis]\nurl_fil = \"/r\"\n[worker]\nbatch_file = \"/b\"\n");
    args.set = vec!["redis.ulr_file=/r".into()];
    let variables = [("TIDEGATE_LOG_LEVEL_FILE", "/l"), ("TIDEGATE_MYSQL_URL_FIL", "/m")];
    let mut found = problems(load(&args, &variables));
    found.sort();
    let file = format!("file {}", file.path().display());
    let no_secret = "holds no secret, so write its value, and not the path of a file";
    let expected = [
        format!("{file}: [tokens_fil] is no section; did you mean tokens_file?"),
        format!("{file}: redis.url_fil is no setting; did you mean redis.url_file?"),
        format!("{file}: worker.batch_file is no setting; worker.batch {no_secret}"),
        "flag --set: redis.ulr_file is no setting; did you mean redis.url_file?".to_owned(),
        format!("variable TIDEGATE_LOG_LEVEL_FILE: is no setting; TIDEGATE_LOG_LEVEL {no_secret}"),
        "variable TIDEGATE_MYSQL_URL_FIL: is no setting; did you mean TIDEGATE_MYSQL_URL_FILE?".to_owned(),
    ];
    assert_eq!(found, expected);
}

#[test]
fn tokens_in_a_file_are_read_again_and_a_mistake_there_takes_no_token_away() {
    let (shop, page) = (format!("shop:order:{DIGEST}"), format!("page:read:{}", DIGEST.replace('f', "0")));
    let secret = SecretFile::with(&shop);
    let (file, of_file) = config_file(&format!("tokens_file = {:?}\n", secret.path()));
    let path = secret.path();
    let variable = [("TIDEGATE_TOKENS_FILE", &*path)];
    for tokens in [load(&of_file, &[]), load(&ConfigArgs::default(), &variable)] {
        secret.write(&shop);
        let reread = tokens.unwrap().settings.tokens.reread.expect("it can be read again");
        let names = || reread().map(|list| list.into_iter().map(|token| token.name).collect::<Vec<_>>());
        assert_eq!(names().unwrap(), ["shop"]);
        secret.write(format!("{shop},{page}"));
        assert_eq!(names().unwrap(), ["shop", "page"]);
        for mistake in ["", "shop"] {
            secret.write(mistake);
            assert!(names().is_err(), "{mistake:?}");
        }
    }
    secret.write(&shop);
    let reread = load(&of_file, &[]).unwrap().settings.tokens.reread.expect("it can be read again");
    fs::write(file.path(), "tokens = 7").unwrap();
    assert!(reread().is_err(), "a list of another type is no empty list");
    fs::write(file.path(), "").unwrap();
    assert!(reread().unwrap().is_empty());
    let by_value = load(&ConfigArgs::default(), &[("TIDEGATE_TOKENS", &shop)]).unwrap();
    assert!(by_value.settings.tokens.reread.is_none(), "a variable does not change");
}
