//! The scripts on a real Redis: races, lost replies, forgotten scripts, and errors that leave no trace.

use std::{collections::HashSet, sync::Arc, time::Duration};

use crate::fixture::{Fixture, STREAM, TRACE, admission, connect, connect_with_patience, release, voucher};
use anyhow::Result;
use fred::types::Value;
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use tidegate_lab::Proxy;
use tidegate_orders::{
    KeyTemplates, Partition, Quantity, RedisStore, VoucherId, sale,
    scripts::{
        Admission, AdmitReply, DelistReply, JournalUse, LoadReply, Pause, PauseScope, Release, ReleaseReply,
        RemovedKeys, SaleWindow, ScriptError, UserAfter,
    },
};
use tidegate_stream::Script;

/// A sale with a stock of ten. One order is admitted already, so all keys exist.
async fn with_a_sale() -> Result<Fixture> {
    let fixture = Fixture::new().await?;
    let window = SaleWindow { begin: Some(Timestamp::now() - SignedDuration::from_hours(1)), end: None };
    assert_eq!(fixture.store.sales().load(voucher(), 10, window).await?, LoadReply::Loaded);
    assert_eq!(fixture.store.admissions().admit(&admission(1, 1)).await?, AdmitReply::Admitted);
    Ok(fixture)
}

fn scripts() -> [Script; 5] {
    [
        Script::new("admit", include_str!("../../../../lua/admit.lua")),
        Script::new("admit_many", include_str!("../../../../lua/admit_many.lua")),
        Script::new("release", include_str!("../../../../lua/release.lua")),
        Script::new("release_many", include_str!("../../../../lua/release_many.lua")),
        Script::new("load", include_str!("../../../../lua/load.lua")),
    ]
}

/// Calls a script past the types of the gate. If the script returns several answers, they must be equal, and the first
/// one is returned.
async fn raw(fixture: &Fixture, script: &Script, keys: &[&str], args: &[&str]) -> Result<i64, String> {
    let keys = keys.iter().map(|key| (*key).into()).collect();
    let args = args.iter().map(|arg| Value::from(*arg)).collect();
    let mut reply = script.call(&fixture.pool, keys, args).await.map_err(|error| error.to_string())?;
    if let Value::Array(answers) = reply {
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{answers:?}");
        reply = answers.into_iter().next().ok_or("no answer")?;
    }
    reply.as_i64().ok_or_else(|| format!("{reply:?}"))
}

/// The errors of an order that comes alone, and of two orders in one call.
async fn errors(fixture: &Fixture) -> Vec<ScriptError> {
    let alone = fixture.store.admissions().admit(&admission(2, 2)).await;
    let together = fixture.store.admissions().admit_all(&[admission(2, 2), admission(3, 3)]).await;
    let errors = together.into_iter().chain([alone]).map(|reply| reply.expect_err("it cannot be admitted"));
    errors.collect()
}

const STOCK: &str = "seckill:stock:7";
const BUYERS: &str = "seckill:order:7";
const VOUCHER: &str = "seckill:voucher:7";
const JOURNAL: &str = "seckill:journal:7";
const ADMIT_KEYS: [&str; 5] = [STOCK, BUYERS, VOUCHER, JOURNAL, STREAM];
const RELEASE_KEYS: [&str; 3] = [STOCK, BUYERS, JOURNAL];
const LOAD_KEYS: [&str; 2] = [STOCK, VOUCHER];
const LOAD_KEYS_AND_JOURNAL: [&str; 3] = [STOCK, VOUCHER, JOURNAL];

#[tokio::test(flavor = "multi_thread")]
async fn fifty_tasks_race_for_a_hundred_units_and_a_hundred_different_users_get_one_each() -> Result<()> {
    let fixture = Arc::new(Fixture::new().await?);
    fixture.store.sales().load(voucher(), 100, SaleWindow::default()).await?;
    let tasks: Vec<_> = (0..50)
        .map(|task| {
            let fixture = Arc::clone(&fixture);
            // 150 users. Each of them tries twice, from two tasks.
            let attempts = (task * 6..task * 6 + 6).map(|at| admission(1000 + at, 1 + at % 150));
            tokio::spawn(async move {
                let mut admitted = Vec::new();
                for attempt in attempts {
                    match fixture.store.admissions().admit(&attempt).await? {
                        AdmitReply::Admitted => admitted.push(attempt.user),
                        reply => assert!(matches!(reply, AdmitReply::SoldOut | AdmitReply::UserHasOrder)),
                    }
                }
                Ok::<_, ScriptError>(admitted)
            })
        })
        .collect();
    let mut admitted = Vec::new();
    for task in tasks {
        admitted.extend(task.await??);
    }
    assert_eq!((admitted.len(), admitted.iter().collect::<HashSet<_>>().len()), (100, 100));
    let in_stream: HashSet<_> = fixture.orders().await?.into_iter().map(|order| order.user).collect();
    assert_eq!(in_stream, admitted.into_iter().collect());
    let state = fixture.store.sales().read_voucher(voucher()).await?;
    assert_eq!((state.stock, state.buyers, state.journaled), (Some(0), 100, 100));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_tasks_that_send_the_same_order_place_it_once() -> Result<()> {
    let fixture = Arc::new(with_a_sale().await?);
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let fixture = Arc::clone(&fixture);
            tokio::spawn(async move { fixture.store.admissions().admit(&admission(2, 2)).await })
        })
        .collect();
    let mut replies = Vec::new();
    for task in tasks {
        replies.push(task.await??);
    }
    assert_eq!(replies.iter().filter(|reply| **reply == AdmitReply::Admitted).count(), 1);
    assert!(replies.iter().all(AdmitReply::is_admitted));
    assert_eq!(fixture.orders().await?.len(), 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_whose_reply_was_lost_is_admitted_and_stands_in_the_stream_once() -> Result<()> {
    let fixture = with_a_sale().await?;
    let proxy = Proxy::start(fixture.redis.port()).await?;
    let store = RedisStore::with_default_names(
        connect(&proxy.url_for(&fixture.redis), 1).await?,
        KeyTemplates::default(),
    );
    let wanted = admission(693_106_606_080_001, 2);
    let lost = proxy.drop_next_reply("693106606080001");
    // The client sends the call again by itself. A repeated request gets the same answer.
    assert_eq!(store.admissions().admit(&wanted).await?, AdmitReply::AdmittedBefore);
    lost.reached().await?;
    assert!(store.admissions().admit(&wanted).await?.is_admitted());
    assert_eq!(fixture.orders().await?.len(), 2);
    assert_eq!(fixture.store.sales().read_voucher(voucher()).await?.stock, Some(8));
    Ok(())
}

/// On one thread, all callers are in the queue before the first call is sent.
#[tokio::test]
async fn callers_who_come_at_the_same_time_go_together_and_each_hears_of_its_own_order() -> Result<()> {
    let fixture = Fixture::new().await?;
    fixture.store.sales().load(voucher(), 100, SaleWindow::default()).await?;
    // These calls load the scripts.
    let first = fixture.store.admissions().admit_all(&[admission(1, 1), admission(2, 2)]).await;
    assert!(first.iter().all(|reply| matches!(reply, Ok(AdmitReply::Admitted))), "{first:?}");
    assert_eq!(fixture.store.admissions().admit(&admission(3, 3)).await?, AdmitReply::Admitted);
    fixture.typed("CONFIG RESETSTAT").await?;

    // Two orders of each user.
    let wanted: Vec<_> = (0..200).map(|at| admission(1000 + at, 1000 + at / 2)).collect();
    let replies = join_all(wanted.iter().map(|wanted| fixture.store.admissions().admit(wanted))).await;
    let mut admitted = HashSet::new();
    for (wanted, reply) in wanted.iter().zip(replies) {
        match reply? {
            AdmitReply::Admitted => assert!(admitted.insert(wanted.order)),
            reply => assert!(matches!(reply, AdmitReply::UserHasOrder | AdmitReply::SoldOut), "{reply:?}"),
        }
    }
    assert_eq!(admitted.len(), 97);
    let in_stream: HashSet<_> = fixture.orders().await?.iter().skip(3).map(|order| order.id).collect();
    assert_eq!(in_stream, admitted);

    // Two calls that found an empty queue, three full ones, and one with the rest.
    let stats: String = fixture.typed("INFO commandstats").await?.convert()?;
    assert!(stats.contains("cmdstat_evalsha:calls=6,"), "{stats}");
    Ok(())
}

#[tokio::test]
async fn a_caller_who_does_not_wait_any_more_holds_up_nobody_and_wants_nothing() -> Result<()> {
    let fixture = with_a_sale().await?;
    let wanted: Vec<_> = (2..=7).map(|at| admission(at, at)).collect();
    let mut callers: Vec<_> =
        wanted.iter().map(|wanted| Box::pin(fixture.store.admissions().admit(wanted))).collect();
    for caller in &mut callers {
        assert!(futures_util::poll!(caller).is_pending());
    }
    // The first call was sent, the last was not.
    drop((callers.pop(), callers.remove(0)));
    for reply in join_all(callers).await {
        assert_eq!(reply?, AdmitReply::Admitted);
    }
    assert!(fixture.store.admissions().admit(&wanted[0]).await?.is_admitted());
    assert_eq!(fixture.store.admissions().admit(&wanted[5]).await?, AdmitReply::Admitted);
    assert_eq!(fixture.orders().await?.len(), 7);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_whose_common_reply_was_lost_stand_in_the_stream_once() -> Result<()> {
    let fixture = with_a_sale().await?;
    let proxy = Proxy::start(fixture.redis.port()).await?;
    let store = RedisStore::with_default_names(
        connect(&proxy.url_for(&fixture.redis), 1).await?,
        KeyTemplates::default(),
    );
    // These calls load the script, so that the lost reply is not the one with NOSCRIPT.
    store.admissions().admit_all(&[admission(1, 1), admission(1, 1)]).await;
    let wanted = [admission(693_106_606_080_001, 2), admission(693_106_606_080_002, 3)];
    let lost = proxy.drop_next_reply("693106606080001");
    for reply in store.admissions().admit_all(&wanted).await {
        assert_eq!(reply?, AdmitReply::AdmittedBefore);
    }
    lost.reached().await?;
    assert_eq!(fixture.orders().await?.len(), 3);
    assert_eq!(fixture.store.sales().read_voucher(voucher()).await?.stock, Some(7));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_order_of_many_that_fails_leaves_its_neighbours_alone() -> Result<()> {
    let fixture = with_a_sale().await?;
    let mut other = admission(5, 5);
    other.voucher = VoucherId::try_from(8)?;
    let wanted = [admission(2, 2), admission(1, 3), other, admission(4, 4), admission(4, 4)];
    let replies = fixture.store.admissions().admit_all(&wanted).await;
    assert!(
        matches!(
            replies[..],
            [
                Ok(AdmitReply::Admitted),
                Err(ScriptError::IdTaken { .. }),
                Ok(AdmitReply::NoStock),
                Ok(AdmitReply::Admitted),
                Ok(AdmitReply::AdmittedBefore),
            ]
        ),
        "{replies:?}"
    );
    let state = fixture.store.sales().read_voucher(voucher()).await?;
    assert_eq!((state.stock, state.buyers, state.journaled), (Some(7), 3, 3));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_whose_release_lost_its_reply_is_released_once() -> Result<()> {
    let fixture = with_a_sale().await?;
    let order = 693_106_606_080_001;
    fixture.store.admissions().admit(&admission(order, 2)).await?;
    let proxy = Proxy::start(fixture.redis.port()).await?;
    let store = RedisStore::with_default_names(
        connect(&proxy.url_for(&fixture.redis), 1).await?,
        KeyTemplates::default(),
    );
    // This call loads the script, so that the lost reply is not the one with NOSCRIPT.
    assert_eq!(store.releases().release(&release(1, 1)).await?, ReleaseReply::Released);
    let lost = proxy.drop_next_reply("693106606080001");
    assert_eq!(store.releases().release(&release(order, 2)).await?, ReleaseReply::ReleasedBefore);
    lost.reached().await?;
    assert_eq!(fixture.store.sales().read_voucher(voucher()).await?.stock, Some(10));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_was_released_for_one_voucher_is_not_for_another() -> Result<()> {
    let fixture = with_a_sale().await?;
    fixture.store.releases().release(&release(1, 1)).await?;
    let (ours, other, order) = (voucher(), VoucherId::try_from(8)?, admission(1, 1).order);
    let found = fixture.store.journals().released(&[(ours, order), (other, order)]).await?;
    assert_eq!(found, HashSet::from([(ours, order)]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgot_its_scripts_is_taught_them_again_unseen() -> Result<()> {
    let fixture = with_a_sale().await?;
    fixture.typed("SCRIPT FLUSH").await?;
    assert_eq!(fixture.store.admissions().admit(&admission(2, 2)).await?, AdmitReply::Admitted);
    fixture.typed("SCRIPT FLUSH").await?;
    let replies = fixture.store.releases().release_all(&[release(1, 1), release(2, 2)]).await;
    assert!(replies.iter().all(|reply| matches!(reply, Ok(ReleaseReply::Released))), "{replies:?}");
    assert_eq!(fixture.store.sales().read_voucher(voucher()).await?.stock, Some(10));
    Ok(())
}

/// More releases than one call takes, for two vouchers and two reasons. Another user has one of the ids.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_that_are_released_each_has_its_own_answer_in_its_own_place() -> Result<()> {
    let fixture = Fixture::new().await?;
    let other = VoucherId::try_from(8)?;
    for voucher in [voucher(), other] {
        fixture.store.sales().load_with(voucher, 1_000, SaleWindow::default(), JournalUse::None).await?;
    }
    fixture.store.admissions().admit(&admission(79, 1)).await?;
    let many: Vec<Release> = (1..=1_200)
        .map(|order| Release {
            voucher: if order % 2 == 0 { other } else { voucher() },
            by: if order % 3 == 0 { "worker:out_of_stock" } else { "worker:user_has_order" }.into(),
            user_after: if order % 5 == 0 { UserAfter::Freed } else { UserAfter::StaysBuyer },
            units: (order % 7 > 0).then_some(Quantity::ONE),
            ..release(order, order)
        })
        .collect();
    let first = many[123].clone();
    assert_eq!(fixture.store.releases().release(&first).await?, ReleaseReply::Released);
    for (release, reply) in many.iter().zip(fixture.store.releases().release_all(&many).await) {
        match (release.order, reply) {
            (order, Err(ScriptError::IdTaken { order: named })) if order.get() == 79 => {
                assert_eq!(named, order)
            }
            (order, reply) if order == first.order => assert_eq!(reply?, ReleaseReply::ReleasedBefore),
            (_, reply) => assert_eq!(reply?, ReleaseReply::Released),
        }
    }
    let units = |voucher| {
        let of_voucher = many.iter().filter(move |release| release.voucher == voucher);
        of_voucher.filter(|release| release.units.is_some()).count() as i64
    };
    let stocks = (
        fixture.store.sales().read_voucher(voucher()).await?.stock,
        fixture.store.sales().read_voucher(other).await?.stock,
    );
    // Order 79 was admitted, and the release under its id was refused.
    assert_eq!(stocks, (Some(1_000 - 1 + units(voucher()) - 1), Some(1_000 + units(other))));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_beyond_2_to_the_53_and_the_callers_trace_pass_the_gate_exactly() -> Result<()> {
    let fixture = Fixture::new().await?;
    fixture.store.sales().load(voucher(), 10, SaleWindow::default()).await?;
    let mut wanted = admission(i64::MAX, 9_007_199_254_740_993);
    wanted.quantity = Quantity::try_from(3)?;
    wanted.traceparent = Some(TRACE.to_owned());
    assert_eq!(fixture.store.admissions().admit(&wanted).await?, AdmitReply::Admitted);
    let [(order, trace)] = &fixture.traced_orders().await?[..] else { panic!("one order") };
    assert_eq!((order.id, order.user, order.quantity), (wanted.order, wanted.user, wanted.quantity));
    assert_eq!(trace.as_deref(), Some(TRACE.as_bytes()));
    // An id that is the same number as a double.
    let neighbour = admission(i64::MAX - 1, 9_007_199_254_740_992);
    assert_eq!(fixture.store.admissions().admit(&neighbour).await?, AdmitReply::Admitted);
    assert_eq!(fixture.store.sales().read_voucher(voucher()).await?.buyers, 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_traceparent_does_not_cost_the_order() -> Result<()> {
    let fixture = with_a_sale().await?;
    let mut wanted = admission(2, 2);
    wanted.traceparent = Some("x".repeat(1 << 20));
    assert_eq!(fixture.store.admissions().admit(&wanted).await?, AdmitReply::Admitted);
    assert_eq!(fixture.traced_orders().await?[1].1, None);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_order_with_another_quantity_is_an_error_also_when_all_is_sold() -> Result<()> {
    let fixture = with_a_sale().await?;
    let mut more = admission(1, 1);
    // The digits of 12 begin with those of 1, and the other way round.
    more.quantity = Quantity::try_from(12)?;
    let mut other = admission(2, 2);
    other.quantity = Quantity::try_from(2)?;
    for sold_out in [false, true] {
        if sold_out {
            fixture.typed("SET seckill:stock:7 0").await?;
        }
        let before = fixture.everything().await?;
        let alone = fixture.store.admissions().admit(&more).await;
        assert!(matches!(&alone, Err(ScriptError::OtherQuantity { order }) if order.get() == 1), "{alone:?}");
        let together = fixture.store.admissions().admit_all(&[more.clone(), admission(1, 1)]).await;
        let is_told_apart =
            matches!(together[..], [Err(ScriptError::OtherQuantity { .. }), Ok(AdmitReply::AdmittedBefore)]);
        assert!(is_told_apart, "{together:?}");
        assert_eq!(fixture.everything().await?, before);
        if !sold_out {
            assert_eq!(fixture.store.admissions().admit(&other).await?, AdmitReply::Admitted);
        }
        assert_eq!(fixture.store.admissions().admit(&other).await?, AdmitReply::AdmittedBefore);
        let one = fixture.store.admissions().admit(&admission(2, 2)).await;
        assert!(matches!(one, Err(ScriptError::OtherQuantity { .. })), "{one:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_id_of_another_user_is_refused_and_changes_nothing() -> Result<()> {
    let fixture = with_a_sale().await?;
    let before = fixture.everything().await?;
    let error = fixture.store.admissions().admit(&admission(1, 2)).await.expect_err("the order is user 1's");
    assert!(matches!(error, ScriptError::IdTaken { order } if order.get() == 1), "{error}");
    let error = fixture.store.releases().release(&release(1, 2)).await.expect_err("the order is user 1's");
    assert!(matches!(error, ScriptError::IdTaken { .. }), "{error}");
    assert_eq!(fixture.everything().await?, before);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_leaves_no_trace() -> Result<()> {
    let fixture = with_a_sale().await?;
    fixture.store.admissions().admit(&admission(2, 2)).await?;
    fixture.store.releases().release(&release(2, 2)).await?;
    let hours = |hours| Some(Timestamp::now() + SignedDuration::from_hours(hours));
    let future_ms = hours(1).map(|at| at.as_millisecond().to_string()).unwrap_or_default();
    let past_ms = hours(-1).map(|at| at.as_millisecond().to_string()).unwrap_or_default();
    let (busy_until_ms, served_until_ms) = (format!("until {future_ms}"), format!("from {past_ms}"));
    let cases = [
        (AdmitReply::AdmittedBefore, admission(1, 1), vec![]),
        (AdmitReply::UserHasOrder, admission(3, 1), vec![]),
        (AdmitReply::Released, admission(2, 2), vec![]),
        (AdmitReply::Paused, admission(3, 3), vec!["HSET", VOUCHER, "state", "paused"]),
        (AdmitReply::NotBegun, admission(3, 3), vec!["HSET", VOUCHER, "state", "", "begin_ms", &future_ms]),
        (AdmitReply::Over, admission(3, 3), vec!["HSET", VOUCHER, "begin_ms", "0", "end_ms", &past_ms]),
        (
            AdmitReply::Busy,
            admission(3, 3),
            vec!["HSET", VOUCHER, "end_ms", &future_ms, "brake", &busy_until_ms],
        ),
        (AdmitReply::Busy, admission(3, 3), vec!["HSET", VOUCHER, "brake", &served_until_ms]),
        (AdmitReply::SoldOut, admission(3, 3), vec!["SET", STOCK, "0"]),
        (AdmitReply::SoldOut, admission(3, 3), vec!["SET", STOCK, "-3"]),
        (AdmitReply::NoStock, admission(3, 3), vec!["DEL", STOCK]),
        (AdmitReply::AdmittedBefore, admission(1, 1), vec![]),
    ];
    for (reply, wanted, change) in cases {
        if !change.is_empty() {
            fixture.words(&change).await?;
        }
        let before = fixture.everything().await?;
        assert_eq!(fixture.store.admissions().admit(&wanted).await?, reply, "{change:?}");
        assert_eq!(fixture.everything().await?, before, "{reply:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_a_wrong_type_is_an_error_that_leaves_no_trace_whichever_key_it_is() -> Result<()> {
    let fixture = Fixture::new().await?;
    let [admit, admit_many, release, release_many, load] = scripts();
    let calls: [(&Script, &[&str], &[&str]); 6] = [
        (&admit, &ADMIT_KEYS, &["2", "2", "7", "1", ""]),
        (&admit, &ADMIT_KEYS, &["3", "3", "7", "2", TRACE]),
        (&admit_many, &ADMIT_KEYS, &["7", "2", "2", "1", "", "3", "3", "2", TRACE]),
        (&release, &RELEASE_KEYS, &["1", "1", "1", "1", "worker:test"]),
        (&release_many, &RELEASE_KEYS, &["1", "worker:test", "1", "1", "1", "2", "2", "1"]),
        (&load, &LOAD_KEYS, &["5", "", ""]),
    ];
    for (script, keys, args) in calls {
        for (wrong, sale_is_on) in keys.iter().flat_map(|key| [(key, true), (key, false)]) {
            fixture.typed("FLUSHALL").await?;
            fixture.words(&["SET", STOCK, "10"]).await?;
            if sale_is_on {
                fixture.store.admissions().admit(&admission(1, 1)).await?;
            }
            fixture.words(&["DEL", wrong]).await?;
            fixture.words(&["RPUSH", wrong, "of another type"]).await?;
            let before = fixture.everything().await?;
            let reply = raw(&fixture, script, keys, args).await;
            assert!(reply.as_ref().is_err_and(|error| error.contains("WRONGTYPE")), "{wrong}: {reply:?}");
            assert_eq!(fixture.everything().await?, before, "{wrong} of a wrong type left a trace");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stock_that_is_no_number_is_an_error_that_leaves_no_trace() -> Result<()> {
    let fixture = with_a_sale().await?;
    let [admit, admit_many, release, release_many, _] = scripts();
    for stock in ["5.5", "abc", "1e3", "", "007", "-0", "+5", "0x10", " 5", "5 5", "inf", "11111111111111"] {
        fixture.words(&["SET", STOCK, stock]).await?;
        let before = fixture.everything().await?;
        let reply = raw(&fixture, &admit, &ADMIT_KEYS, &["2", "2", "7", "1", ""]).await;
        assert!(reply.as_ref().is_err_and(|error| error.contains("BADARG")), "{stock}: {reply:?}");
        let many = ["7", "2", "2", "1", "", "3", "3", "1", ""];
        let reply = raw(&fixture, &admit_many, &ADMIT_KEYS, &many).await;
        assert!(reply.as_ref().is_err_and(|error| error.contains("BADARG")), "{stock}: {reply:?}");
        let reply = raw(&fixture, &release, &RELEASE_KEYS, &["1", "1", "1", "1", "worker:test"]).await;
        assert!(reply.as_ref().is_err_and(|error| error.contains("BADARG")), "{stock}: {reply:?}");
        let many = ["1", "worker:test", "1", "1", "1", "2", "2", "1"];
        let reply = raw(&fixture, &release_many, &RELEASE_KEYS, &many).await;
        assert!(reply.as_ref().is_err_and(|error| error.contains("BADARG")), "{stock}: {reply:?}");
        assert_eq!(fixture.everything().await?, before, "{stock}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_stock_is_made_once_and_every_refusal_and_error_leaves_no_trace() -> Result<()> {
    let fixture = with_a_sale().await?;
    let adjust = Script::new("adjust_stock", include_str!("../../../../lua/adjust_stock.lua"));
    let call = async |args: &[&str]| raw(&fixture, &adjust, &LOAD_KEYS, args).await;
    for (args, reply, left) in [
        (["", "a open", "-4"], 0, "5"),
        (["", "a open", "-4"], 1, "5"),
        (["", "b open", "3"], 2, "5"),
        (["a open", "a done", "0"], 0, "5"),
        (["a done", "b open", "-6"], 4, "5"),
        (["a done", "b open", "3"], 0, "8"),
        (["a done", "b open", "3"], 1, "8"),
        (["a done", "c open", "3"], 2, "8"),
    ] {
        assert_eq!(call(&args).await, Ok(reply), "{args:?}");
        assert_eq!(fixture.words(&["GET", STOCK]).await?.as_string().as_deref(), Some(left), "{args:?}");
    }
    let is_bad =
        |reply: &Result<i64, String>, error: &str| reply.as_ref().is_err_and(|told| told.contains(error));
    let before = fixture.everything().await?;
    for units in ["", "1.5", "x", "+1", "01", "-0", "1e3", "99999999999999", "9999999999999"] {
        let reply = call(&["b open", "b done", units]).await;
        assert!(is_bad(&reply, "BADARG"), "{units}: {reply:?}");
    }
    assert!(is_bad(&call(&["b open", "", "1"]).await, "BADARG"), "a note is wanted");
    assert_eq!(fixture.everything().await?, before);
    fixture.words(&["SET", STOCK, "abc"]).await?;
    assert!(is_bad(&call(&["b open", "b done", "1"]).await, "BADARG"), "the stock is not a number");
    fixture.words(&["DEL", STOCK]).await?;
    assert_eq!(call(&["b open", "b done", "-1"]).await, Ok(3), "nothing can be taken of a lost stock");
    assert_eq!(call(&["b open", "b done", "1"]).await, Ok(0), "and what is added makes none");
    assert!(fixture.words(&["GET", STOCK]).await?.is_null());
    fixture.words(&["HSET", VOUCHER, "change", "b open"]).await?;
    for wrong in LOAD_KEYS {
        fixture.words(&["DEL", wrong]).await?;
        fixture.words(&["RPUSH", wrong, "of another type"]).await?;
        let before = fixture.everything().await?;
        assert!(is_bad(&call(&["b open", "b done", "1"]).await, "WRONGTYPE"), "{wrong}");
        assert_eq!(fixture.everything().await?, before, "{wrong}");
        fixture.words(&["DEL", wrong]).await?;
        fixture.words(&["SET", STOCK, "8"]).await?;
    }
    fixture.typed("CONFIG SET maxmemory 1").await?;
    assert!(is_bad(&call(&["", "b open", "1"]).await, "OOM"));
    assert_eq!(fixture.words(&["GET", STOCK]).await?.as_string().as_deref(), Some("8"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_is_no_number_is_an_error_that_leaves_no_trace() -> Result<()> {
    let fixture = with_a_sale().await?;
    for field in ["begin_ms", "end_ms"] {
        fixture.words(&["HSET", VOUCHER, field, "soon"]).await?;
        let before = fixture.everything().await?;
        for error in errors(&fixture).await {
            assert!(matches!(error, ScriptError::Refused(_)), "{error}");
        }
        assert!(matches!(
            fixture.store.sales().read_voucher(voucher()).await,
            Err(ScriptError::Unexpected { .. })
        ));
        assert_eq!(fixture.everything().await?, before);
        fixture.words(&["HDEL", VOUCHER, field]).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_takes_no_more_entries_is_an_error_that_leaves_no_trace() -> Result<()> {
    let fixture = with_a_sale().await?;
    let last = format!("{}-{}", u64::MAX, u64::MAX);
    fixture.words(&["XADD", STREAM, &last, "the", "last"]).await?;
    let before = fixture.everything().await?;
    for error in errors(&fixture).await {
        assert!(matches!(error, ScriptError::Refused(_)), "{error}");
    }
    assert_eq!(fixture.everything().await?, before);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_limit_leaves_no_trace_and_still_lets_refusals_through() -> Result<()> {
    let fixture = with_a_sale().await?;
    let past_ms = (Timestamp::now() - SignedDuration::from_hours(1)).as_millisecond().to_string();
    fixture.words(&["CONFIG", "SET", "maxmemory", "1"]).await?;
    let before = fixture.everything().await?;
    let not_released = fixture.store.releases().release(&release(1, 1)).await.expect_err("no memory");
    let none_released = fixture.store.releases().release_all(&[release(1, 1), release(2, 2)]).await;
    let none_released = none_released.into_iter().map(|reply| reply.expect_err("no memory"));
    for error in errors(&fixture).await.into_iter().chain([not_released]).chain(none_released) {
        assert!(matches!(&error, ScriptError::Refused(why) if why.details().contains("OOM")), "{error}");
    }
    assert_eq!(fixture.store.admissions().admit(&admission(1, 1)).await?, AdmitReply::AdmittedBefore);
    let replies = fixture.store.admissions().admit_all(&[admission(1, 1), admission(1, 1)]).await;
    assert!(replies.iter().all(|reply| matches!(reply, Ok(AdmitReply::AdmittedBefore))), "{replies:?}");
    assert_eq!(fixture.store.sales().load(voucher(), 5, SaleWindow::default()).await?, LoadReply::OnSale);
    assert_eq!(fixture.everything().await?, before);

    fixture.words(&["CONFIG", "SET", "maxmemory", "0"]).await?;
    fixture.words(&["HSET", VOUCHER, "begin_ms", "0", "end_ms", &past_ms]).await?;
    fixture.words(&["CONFIG", "SET", "maxmemory", "1"]).await?;
    let before = fixture.everything().await?;
    let error = fixture.store.sales().load(voucher(), 5, SaleWindow::default()).await.expect_err("no memory");
    assert!(matches!(&error, ScriptError::Refused(why) if why.details().contains("OOM")), "{error}");
    assert_eq!(fixture.everything().await?, before);

    fixture.words(&["CONFIG", "SET", "maxmemory", "0"]).await?;
    fixture.store.sales().load(voucher(), 5, SaleWindow::default()).await?;
    assert_eq!(fixture.store.admissions().admit(&admission(2, 2)).await?, AdmitReply::Admitted);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_bad_argument_is_an_error_that_leaves_no_trace() -> Result<()> {
    let fixture = with_a_sale().await?;
    let before = fixture.everything().await?;
    let [admit, admit_many, release, release_many, load] = scripts();
    let long = "x".repeat(129);
    let numbers = [
        "",
        "00",
        "007",
        "-1",
        "+1",
        "1.5",
        "1e3",
        "0x10",
        " 1",
        "1 ",
        "1 2",
        "x",
        "9223372036854775808",
        "10000000000000000000",
        "99999999999999999999999",
    ];
    let mut calls: Vec<(&Script, &[&str], Vec<&str>)> = Vec::new();
    for number in numbers {
        for place in 0..4 {
            let mut args = vec!["2", "2", "7", "1", ""];
            args[place] = number;
            let [order, user, voucher, quantity, trace] = args[..] else { unreachable!("five") };
            calls.push((&admit_many, &ADMIT_KEYS, vec![voucher, order, user, quantity, trace]));
            calls.push((&admit, &ADMIT_KEYS, args));
        }
        for place in 0..3 {
            let mut args = vec!["1", "1", "1", "1", "worker:test"];
            args[place] = number;
            let [order, user, units, frees, by] = args[..] else { unreachable!("five") };
            calls.push((&release_many, &RELEASE_KEYS, vec![frees, by, order, user, units]));
            calls.push((&release, &RELEASE_KEYS, args));
        }
        calls.push((&load, &LOAD_KEYS, vec![number, "", ""]));
        if !["", "00", "007"].contains(&number) {
            calls.push((&load, &LOAD_KEYS, vec!["5", number, ""]));
            calls.push((&load, &LOAD_KEYS, vec!["5", "", number]));
        }
    }
    for zero in 0..4 {
        let mut args = vec!["2", "2", "7", "1", ""];
        args[zero] = "0";
        calls.push((&admit, &ADMIT_KEYS, args));
    }
    calls.push((&admit_many, &ADMIT_KEYS, vec!["7", "2", "2", "10001", ""]));
    calls.push((&admit_many, &ADMIT_KEYS, vec!["7", "2", "2", "1", &long]));
    for present in 0..9 {
        let args = ["7", "2", "2", "1", "", "3", "3", "1", ""];
        if present != 5 {
            calls.push((&admit_many, &ADMIT_KEYS, args[..present].to_vec()));
        }
        calls.push((&admit_many, &ADMIT_KEYS[..present.min(4)], args.to_vec()));
    }
    calls.push((&admit, &ADMIT_KEYS, vec!["2", "2", "7", "10001", ""]));
    calls.push((&admit, &ADMIT_KEYS, vec!["2", "2", "7", "1", &long]));
    for (place, bad) in [(2, "10001"), (3, ""), (3, "2"), (4, ""), (4, "a\"b"), (4, "a b"), (4, &long)] {
        let mut args = vec!["1", "1", "1", "1", "worker:test"];
        args[place] = bad;
        let [order, user, units, frees, by] = args[..] else { unreachable!("five") };
        calls.push((&release_many, &RELEASE_KEYS, vec![frees, by, order, user, units]));
        calls.push((&release, &RELEASE_KEYS, args));
    }
    calls.push((&load, &LOAD_KEYS, vec!["5", "2000", "1000"]));
    calls.push((&load, &LOAD_KEYS, vec!["5", "2000", "2000"]));
    for present in 0..5 {
        calls.push((&admit, &ADMIT_KEYS, vec!["2", "2", "7", "1", ""][..present].to_vec()));
        calls.push((&release, &RELEASE_KEYS, vec!["1", "1", "1", "1", "worker:test"][..present].to_vec()));
        calls.push((&admit, &ADMIT_KEYS[..present], vec!["2", "2", "7", "1", ""]));
    }
    for by in ["a b", "a\"b", &long] {
        calls.push((&load, &LOAD_KEYS_AND_JOURNAL, vec!["5", "", "", by]));
    }
    calls.push((&load, &LOAD_KEYS, vec!["5", "", "", "x"]));
    calls.push((&load, &LOAD_KEYS_AND_JOURNAL, vec!["5", "", ""]));
    for present in 0..3 {
        calls.push((&load, &LOAD_KEYS, vec!["5", "", ""][..present].to_vec()));
        calls.push((&release, &RELEASE_KEYS[..present], vec!["1", "1", "1", "1", "worker:test"]));
    }
    for present in 0..8 {
        let args = ["1", "worker:test", "1", "1", "1", "2", "2", "1"];
        if present != 5 {
            calls.push((&release_many, &RELEASE_KEYS, args[..present].to_vec()));
        }
        calls.push((&release_many, &RELEASE_KEYS[..present.min(2)], args.to_vec()));
    }
    calls.push((&load, &LOAD_KEYS[..1], vec!["5", "", ""]));
    for (script, keys, args) in calls {
        let reply = raw(&fixture, script, keys, &args).await;
        // `admit.lua` reads the stock before all other checks, because most requests of a rush end there.
        let begins_with_the_stock = std::ptr::eq(script, &admit) && keys.is_empty();
        let is_error = |error: &String| begins_with_the_stock || error.contains("BADARG");
        assert!(reply.as_ref().is_err_and(is_error), "{keys:?} {args:?}: {reply:?}");
        assert_eq!(fixture.everything().await?, before, "{keys:?} {args:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_the_tutorials_script_admitted_is_released_once() -> Result<()> {
    let fixture = Fixture::new().await?;
    fixture.words(&["SET", STOCK, "9"]).await?;
    fixture.words(&["SADD", BUYERS, "1"]).await?;
    assert_eq!(fixture.store.releases().release(&release(1, 1)).await?, ReleaseReply::Released);
    assert_eq!(fixture.store.releases().release(&release(1, 1)).await?, ReleaseReply::ReleasedBefore);
    let state = fixture.store.sales().read_voucher(voucher()).await?;
    assert_eq!((state.stock, state.buyers, state.journaled), (Some(10), 0, 1));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_never_makes_a_stock_where_none_is_loaded() -> Result<()> {
    let fixture = with_a_sale().await?;
    fixture.words(&["DEL", STOCK]).await?;
    assert_eq!(fixture.store.releases().release(&release(1, 1)).await?, ReleaseReply::ReleasedWithoutStock);
    let mut without_units = release(2, 2);
    without_units.units = None;
    without_units.user_after = UserAfter::StaysBuyer;
    assert_eq!(fixture.store.releases().release(&without_units).await?, ReleaseReply::NotAdmitted);
    fixture.words(&["HDEL", JOURNAL, "#complete"]).await?;
    assert_eq!(fixture.store.releases().release(&without_units).await?, ReleaseReply::Released);
    let state = fixture.store.sales().read_voucher(voucher()).await?;
    assert_eq!((state.stock, state.buyers, state.journaled), (None, 0, 2));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_makes_no_key_where_none_of_the_sale_is_there() -> Result<()> {
    let fixture = Fixture::new().await?;
    assert_eq!(fixture.store.releases().release(&release(1, 1)).await?, ReleaseReply::NoSale);
    let many = fixture.store.releases().release_all(&[release(1, 1), release(2, 2)]).await;
    assert!(matches!(many[..], [Ok(ReleaseReply::NoSale), Ok(ReleaseReply::NoSale)]), "{many:?}");
    let state = fixture.store.sales().read_voucher(voucher()).await?;
    assert_eq!((state.stock, state.buyers, state.journaled), (None, 0, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delisted_sale_is_over_and_its_keys_go_only_as_of_the_moment_it_was_delisted() -> Result<()> {
    let fixture = with_a_sale().await?;
    assert_eq!(fixture.store.sales().delist(voucher()).await?, DelistReply::Delisted);
    let since = fixture.store.sales().read_voucher(voucher()).await?.delisted_ms;
    assert_eq!(fixture.store.sales().delist(voucher()).await?, DelistReply::DelistedBefore);
    assert_eq!(fixture.store.sales().read_voucher(voucher()).await?.delisted_ms, since);
    assert_eq!(fixture.store.admissions().admit(&admission(2, 2)).await?, AdmitReply::Over);
    let since = since.expect("it is delisted");
    let before = fixture.everything().await?;
    assert_eq!(fixture.store.sales().remove_delisted(voucher(), since - 1).await?, RemovedKeys::NotDelisted);
    assert_eq!(fixture.everything().await?, before);
    let weight = fixture.store.sales().weigh(voucher()).await?;
    assert!(weight.keys == 4 && weight.bytes > 200, "{weight:?}");
    assert_eq!(fixture.store.sales().remove_delisted(voucher(), since).await?, RemovedKeys::Removed);
    assert_eq!(fixture.store.sales().remove_delisted(voucher(), since).await?, RemovedKeys::NoKeys);
    assert_eq!(fixture.store.admissions().admit(&admission(2, 2)).await?, AdmitReply::NoStock);
    assert_eq!(fixture.store.sales().delist(voucher()).await?, DelistReply::NoSale);
    assert_eq!(fixture.store.sales().weigh(voucher()).await?.keys, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_release_that_fails_leaves_its_neighbours_alone() -> Result<()> {
    let fixture = with_a_sale().await?;
    fixture.store.admissions().admit(&admission(2, 2)).await?;
    let [first, second, third] =
        &fixture.store.releases().release_all(&[release(1, 1), release(2, 9), release(3, 3)]).await[..]
    else {
        panic!("three answers to three releases")
    };
    assert!(matches!(first, Ok(ReleaseReply::Released)), "{first:?}");
    assert!(matches!(second, Err(ScriptError::IdTaken { .. })), "{second:?}");
    assert!(matches!(third, Ok(ReleaseReply::NotAdmitted)), "{third:?}");
    assert!(fixture.store.releases().release_all(&[]).await.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voucher_that_is_on_sale_is_not_loaded_again_and_one_whose_sale_ended_is() -> Result<()> {
    let fixture = with_a_sale().await?;
    let before = fixture.everything().await?;
    assert_eq!(fixture.store.sales().load(voucher(), 50, SaleWindow::default()).await?, LoadReply::OnSale);
    assert_eq!(fixture.everything().await?, before);
    let ended = (Timestamp::now() - SignedDuration::from_hours(1)).as_millisecond().to_string();
    fixture.words(&["HSET", VOUCHER, "end_ms", &ended]).await?;
    assert!(fixture.store.sales().pause(voucher(), PauseScope::Own).await?);
    assert_eq!(
        fixture.store.sales().load(voucher(), 50, SaleWindow::default()).await?,
        LoadReply::LoadedPaused
    );
    let state = fixture.store.sales().read_voucher(voucher()).await?;
    let paused = Pause::Paused(PauseScope::Own);
    assert_eq!((state.stock, state.window, state.pause), (Some(50), SaleWindow::default(), paused));
    // A buyer of the first sale still has an order.
    assert!(fixture.store.sales().resume(voucher(), PauseScope::Own).await?);
    assert_eq!(fixture.store.admissions().admit(&admission(2, 1)).await?, AdmitReply::UserHasOrder);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn all_vouchers_are_found_among_many_other_keys() -> Result<()> {
    let fixture = Fixture::new().await?;
    let script = "for at = 1, 5000 do redis.call('SET', 'lock:order:' .. at, '') end \
                  for at = 1, 49 do redis.call('SET', 'seckill:stock:' .. at * 10, at) end \
                  redis.call('SET', 'seckill:limited:500', 5) \
                  for _, name in ipairs({'x', '', '0', '7:x'}) do redis.call('SET', 'seckill:stock:' .. name, 1) end \
                  return 1";
    fixture.words(&["EVAL", script, "0"]).await?;
    let of = |id: i64| VoucherId::try_from(id).expect("an id");
    assert!(
        fixture.store.sales().pause(of(20), PauseScope::Own).await?
            && fixture.store.sales().pause(of(7000), PauseScope::All).await?
    );

    let mut looked = 0;
    let loaded = sale::find_loaded(&fixture.store, |keys| looked += keys).await?;
    assert_eq!(loaded, (1..=50).map(|at| of(at * 10)).collect::<Vec<_>>());
    assert!(looked >= sale::count_keys(&fixture.store).await?, "{looked}");
    let known = sale::find_known(&fixture.store, |_| {}).await?;
    assert_eq!(known, [of(20), of(7000)]);
    fixture.words(&["SET", "seckill:voucher:30", "x"]).await?;
    let pauses = fixture.store.sales().read_pauses(&[of(7000), of(10), of(30), of(20)]).await;
    let [
        Ok(Pause::Paused(PauseScope::All)),
        Ok(Pause::Running),
        Err(ScriptError::Refused(_)),
        Ok(Pause::Paused(PauseScope::Own)),
    ] = pauses.as_slice()
    else {
        panic!("{pauses:?}")
    };
    assert!(fixture.store.sales().read_pauses(&[]).await.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_redis_is_unreachable_and_not_a_refusal() -> Result<()> {
    let fixture = with_a_sale().await?;
    let pool = connect_with_patience(&fixture.redis.url(), 1, Duration::from_secs(1)).await?;
    let store = RedisStore::with_default_names(pool, KeyTemplates::default());
    fixture.redis.kill9()?;
    let error = store.admissions().admit(&admission(2, 2)).await.expect_err("nobody is there");
    assert!(matches!(error, ScriptError::Unreachable(_)), "{error:?}");
    Ok(())
}

#[tokio::test]
async fn a_store_of_a_partition_admits_no_order_of_another() -> Result<()> {
    let fixture = Fixture::new().await?;
    let partitions = Partition::all(&["3", "1", "0"].map(str::to_owned));
    let keys = KeyTemplates::default().of_partition(&partitions[0]);
    let store = RedisStore::with_default_names(fixture.pool.clone(), keys);
    // Voucher 4 belongs to {1}.
    let wanted = |order: i64, voucher: i64| -> Result<Admission> {
        Ok(Admission { voucher: voucher.try_into()?, ..admission(order, order) })
    };
    let before = fixture.everything().await?;
    let alone = store.admissions().admit(&wanted(1, 4)?).await;
    let said = alone.expect_err("it is refused").to_string();
    assert_eq!(
        said,
        "voucher 4 belongs to partition {1}, but this partition is {3}: send the request to the partition of the voucher"
    );
    let together = store.admissions().admit_all(&[wanted(2, 4)?, wanted(3, 4)?, wanted(4, 6)?]).await;
    assert!(
        matches!(
            together[..],
            [
                Err(ScriptError::WrongPartition(_)),
                Err(ScriptError::WrongPartition(_)),
                Ok(AdmitReply::NoStock)
            ]
        ),
        "{together:?}"
    );
    assert_eq!(fixture.everything().await?, before);
    Ok(())
}
