use super::*;

const BATCH: usize = 800;
const RETRY: Duration = Duration::from_millis(100);

/// Sets a batch aside for `cause`. Returns the number of entries of the first try, and of the second one after a first
/// try in which all went well.
fn tries(cause: Cause) -> (usize, usize) {
    let mut aside = SetAside::new(BATCH, RetryWait { first: RETRY, longest: RETRY_MAX }, Arc::default());
    let now = Instant::now();
    (0..BATCH as u64).for_each(|ms| aside.put(EntryId { ms, seq: 0 }, cause, now));
    let now = aside.next_due(now).unwrap();
    let first = aside.take_due(now).ids.len();
    aside.end_try(&[], Duration::ZERO, now);
    (first, aside.take_due(now).ids.len())
}

#[test]
fn a_batch_that_is_set_aside_for_nothing_of_its_own_is_done_at_full_speed_with_its_second_try() {
    assert_eq!(tries(Cause::new("lock", 7)), (TRIAL_ENTRIES, 2 * TRIAL_ENTRIES));
    assert_eq!(tries(Cause::UNKNOWN), (BATCH / 8, BATCH - BATCH / 8));
}

#[test]
fn a_try_in_vain_of_what_nobody_knows_the_cause_of_is_followed_by_a_few_as_any_other() {
    let mut aside = SetAside::new(BATCH, RetryWait { first: RETRY, longest: RETRY_MAX }, Arc::default());
    let now = Instant::now();
    (0..BATCH as u64).for_each(|ms| aside.put(EntryId { ms, seq: 0 }, Cause::UNKNOWN, now));
    let now = aside.next_due(now).unwrap();
    for id in aside.take_due(now).ids {
        aside.put(id, Cause::UNKNOWN, now);
    }
    aside.end_try(&[], Duration::ZERO, now);
    let due = aside.next_due(now).unwrap();
    assert!(due > now, "not at once");
    assert_eq!(aside.take_due(due).ids.len(), TRIAL_ENTRIES);
}

#[test]
fn what_comes_back_is_counted_once_at_every_moment() {
    let causes = Arc::new(Causes::default());
    let mut aside = SetAside::new(BATCH, RetryWait { first: RETRY, longest: RETRY_MAX }, Arc::clone(&causes));
    let now = Instant::now();
    let (before, after) = (Cause::new("lock", 7), Cause::new("row", 1));
    (0..4).for_each(|ms| aside.put(EntryId { ms, seq: 0 }, before, now));
    let now = aside.next_due(now).unwrap();
    let tried = aside.take_due(now).ids;
    let counted = |aside: &SetAside| {
        let by_kind = causes.by_kind();
        let of = |kind: &str| by_kind.get(kind).map_or(0, |of_kind| of_kind.entries);
        (aside.len(), aside.ids().len(), causes.entries(), of("lock"), of("row"))
    };
    assert_eq!(counted(&aside), (4, 4, 4, 4, 0));
    aside.put(tried[2], before, now);
    assert_eq!(counted(&aside), (4, 4, 4, 4, 0));
    aside.put(tried[0], after, now);
    assert_eq!(counted(&aside), (4, 4, 4, 3, 1));
    assert!(aside.is_tried(tried[1]) && !aside.is_tried(tried[0]) && !aside.is_tried(tried[2]));
    aside.end_try(&tried[3..], Duration::ZERO, now);
    assert_eq!(counted(&aside), (3, 3, 3, 2, 1));
}

#[test]
fn what_has_come_back_before_a_store_failed_is_set_aside_once() {
    let causes = Arc::new(Causes::default());
    let mut aside = SetAside::new(BATCH, RetryWait { first: RETRY, longest: RETRY_MAX }, Arc::clone(&causes));
    let now = Instant::now();
    let (before, after) = (Cause::new("lock", 7), Cause::new("row", 1));
    (0..4).for_each(|ms| aside.put(EntryId { ms, seq: 0 }, before, now));
    let all = aside.ids();
    let now = aside.next_due(now).unwrap();
    let tried = aside.take_due(now).ids;
    assert_eq!(tried, all);
    aside.put(tried[0], before, now);
    aside.put(tried[1], after, now);
    aside.undo_try(now);
    assert_eq!((aside.ids(), aside.len(), causes.entries()), (all, 4, 4));
    assert_eq!(causes.top(2).iter().map(|awaited| awaited.entries).collect::<Vec<_>>(), [3, 1]);
}

#[test]
fn of_what_waits_in_order_the_oldest_is_tried_first_also_after_tries_in_vain_and_what_is_woken_at_once() {
    let causes = Arc::new(Causes::default());
    let mut aside = SetAside::new(BATCH, RetryWait { first: RETRY, longest: RETRY_MAX }, Arc::clone(&causes));
    let ids = |range: std::ops::Range<u64>| range.map(|ms| EntryId { ms, seq: 0 }).collect::<Vec<_>>();
    let (cause, other) = (Cause::in_order("account", 7), Cause::in_order("account", 8));
    let mut now = Instant::now();
    // The entries do not come in the order of the stream: some were claimed.
    ids(20..40).into_iter().chain(ids(0..20)).for_each(|id| aside.put(id, cause, now));
    for _ in 0..3 {
        now = aside.next_due(now).unwrap();
        let tried = aside.take_due(now).ids;
        assert_eq!(tried, ids(0..TRIAL_ENTRIES as u64));
        tried.iter().for_each(|id| aside.put(*id, cause, now));
        aside.end_try(&[], Duration::from_millis(50), now);
    }
    assert!(aside.next_due(now).unwrap() > now);
    causes.wake([other]);
    assert!(aside.next_due(now).unwrap() > now, "nothing waits for that");
    causes.wake([cause, other]);
    assert_eq!(aside.next_due(now), Some(now), "no rest keeps it from being tried");
    let mut done = Vec::new();
    while aside.len() > 0 {
        assert_eq!(aside.next_due(now), Some(now), "at full speed");
        done.extend(aside.take_due(now).ids);
        aside.end_try(&[], Duration::ZERO, now);
    }
    assert_eq!(done, ids(0..40));
    assert_eq!((causes.entries(), aside.next_due(now)), (0, None));
    causes.wake([cause]);
    assert_eq!(aside.next_due(now), None, "what is forgotten is not woken");
}

#[test]
fn what_is_settled_in_one_lane_wakes_the_lane_with_the_next_entry_and_no_other() {
    let causes = Arc::new(Causes::default());
    let cause = Cause::in_order("account", 7);
    let mut now = Instant::now();
    let mut lanes = [(); 3]
        .map(|()| SetAside::new(BATCH, RetryWait { first: RETRY, longest: RETRY_MAX }, Arc::clone(&causes)));
    for (lane, first) in lanes.iter_mut().zip([10, 20, 30]) {
        (first..first + 10).for_each(|ms| lane.put(EntryId { ms, seq: 0 }, cause, now));
    }
    let later = lanes.iter_mut().filter_map(|lane| lane.next_due(now)).min().unwrap();
    causes.wake([cause]);
    for at in 0..3 {
        let due: Vec<bool> =
            lanes.iter_mut().map(|lane| lane.next_due(now).is_some_and(|due| due <= now)).collect();
        assert_eq!(due, [0, 1, 2].map(|lane| lane == at), "before {later:?}");
        assert_eq!(lanes[at].take_due(now).ids.len(), 10);
        // The settled cause wakes the next lane, not this one.
        causes.wake([cause]);
        lanes[at].end_try(&[], Duration::ZERO, now);
        now += Duration::from_millis(1);
    }
    assert_eq!(causes.entries(), 0);
}

#[test]
fn what_is_woken_while_it_is_tried_is_tried_once_more() {
    let causes = Arc::new(Causes::default());
    let mut aside = SetAside::new(BATCH, RetryWait { first: RETRY, longest: RETRY_MAX }, Arc::clone(&causes));
    let cause = Cause::in_order("account", 7);
    let now = Instant::now();
    aside.put(EntryId { ms: 1, seq: 0 }, cause, now);
    let now = aside.next_due(now).unwrap();
    let tried = aside.take_due(now).ids;
    aside.wakes().begin_batch();
    causes.wake([cause]);
    aside.put(tried[0], cause, now);
    aside.end_try(&[], Duration::from_secs(1), now);
    assert_eq!(aside.next_due(now), Some(now));
    assert_eq!(aside.take_due(now).ids, tried);
}

/// Creates a lane in which one entry waits for each of `count` causes in order.
fn lane_behind(count: u64, causes: &Arc<Causes>, now: Instant) -> SetAside {
    let mut aside = SetAside::new(BATCH, RetryWait { first: RETRY, longest: RETRY_MAX }, Arc::clone(causes));
    (1..=count).for_each(|key| aside.put(EntryId { ms: key, seq: 0 }, Cause::in_order("behind", key), now));
    aside
}

/// Lets all tries fail for the time `lasting`: each entry comes back for the same cause. Returns the tries of each
/// entry of at least `from`, in their order.
fn in_vain(aside: &mut SetAside, from: u64, now: &mut Instant, lasting: Duration) -> Vec<Vec<u64>> {
    let (mut tries, end) = (Vec::new(), *now + lasting);
    while *now < end {
        *now = aside.next_due(*now).unwrap().max(*now);
        let tried = aside.take_due(*now).ids;
        for id in &tried {
            let lock = Cause::new("lock", id.ms);
            let is_lock = id.seq == 1;
            aside.put(*id, if is_lock { lock } else { Cause::in_order("behind", id.ms) }, *now);
        }
        *now += Duration::from_millis(5);
        aside.end_try(&[], Duration::from_millis(5), *now);
        tries.push(tried.iter().map(|id| id.ms).filter(|ms| *ms >= from).collect());
    }
    tries
}

const MOST: u64 = MOST_CAUSES as u64;

#[test]
fn beside_thousands_of_causes_in_order_each_lock_has_its_own_queue_and_its_tries() {
    let (causes, mut now) = (Arc::new(Causes::default()), Instant::now());
    let mut aside = lane_behind(MOST + 1000, &causes, now);
    let locks = 9001..9011;
    for ms in locks.clone() {
        aside.put(EntryId { ms, seq: 1 }, Cause::new("lock", ms), now);
    }
    assert!(locks.clone().all(|key| aside.waiting.contains_key(&Cause::new("lock", key))));
    let kinds = causes.by_kind();
    assert_eq!((kinds["behind"].causes, kinds["lock"].causes), (MOST_CAUSES + 1, 10));
    let tries = in_vain(&mut aside, locks.start, &mut now, Duration::from_secs(60)).concat();
    for lock in locks {
        let count = tries.iter().filter(|ms| **ms == lock).count();
        assert!(count >= 60 / 2 - 6, "a lock is tried every two seconds as ever, and this one {count} times");
    }
    assert_eq!(aside.len(), MOST_CAUSES + 1010);
}

#[test]
fn the_more_causes_in_order_the_more_slowly_each_is_tried_unless_it_is_woken() {
    let tries_of_each = |count: u64| {
        let mut now = Instant::now();
        let mut aside = lane_behind(count, &Arc::default(), now);
        in_vain(&mut aside, 0, &mut now, Duration::from_secs(20));
        let tries = in_vain(&mut aside, 0, &mut now, Duration::from_secs(60)).concat();
        tries.len() as u64 / count
    };
    let (few, many) = (tries_of_each(10), tries_of_each(1000));
    assert!(few >= 60 / 2 && many <= 60 / 15, "{few} and {many} tries each in a minute");
}

#[test]
fn events_beyond_the_limit_are_tried_oldest_first_and_all_of_them_and_are_woken() {
    let (causes, mut now) = (Arc::new(Causes::default()), Instant::now());
    let mut aside = lane_behind(MOST, &causes, now);
    let shared = Cause::in_order("behind", 0);
    let beyond = MOST + 1..=MOST + 300;
    // The entries do not come in the order of the stream.
    for key in beyond.clone().rev() {
        aside.put(EntryId { ms: key, seq: 0 }, Cause::in_order("behind", key), now);
    }
    assert_eq!(aside.waiting[&shared].ids.len(), 300);
    let mut tried = Vec::new();
    while tried.len() < 600 {
        tried.extend(in_vain(&mut aside, MOST + 1, &mut now, Duration::from_millis(1)).concat());
        assert!(tried.len() < 600 || aside.len() == MOST_CAUSES + 300, "none is lost");
    }
    let twice: Vec<u64> = beyond.clone().chain(beyond.clone()).collect();
    assert_eq!(
        tried[..600],
        twice[..],
        "in turns, so that what has to wait longest delays no other for ever"
    );

    in_vain(&mut aside, 0, &mut now, Duration::from_secs(60));
    // All rests are over, and no entry is due.
    let begun = now;
    causes.wake([Cause::in_order("behind", MOST + 200)]);
    let due = aside.next_due(now).unwrap();
    assert!(
        due < begun + Duration::from_millis(50),
        "it is woken: no more than a rest keeps it from being tried"
    );
    let tried = aside.take_due(due).ids;
    assert!(tried.iter().any(|id| beyond.contains(&id.ms)), "{tried:?}");
}

const TRY: Duration = Duration::from_secs(1);

#[test]
fn at_most_a_few_entries_handled_alone_are_tried_at_once_and_one_while_some_come_back() {
    let mut aside = SetAside::new(1000, RetryWait { first: RETRY, longest: RETRY_MAX }, Arc::default());
    let mut now = Instant::now();
    (0..1000).for_each(|ms| aside.put_alone(EntryId { ms, seq: 0 }, now));
    let mut sizes = Vec::new();
    for _ in 0..8 {
        now = aside.next_due(now).unwrap();
        sizes.push(aside.take_due(now).ids.len());
        aside.end_try(&[], Duration::ZERO, now);
        assert!(aside.waiting[&ALONE].share <= TRIAL_ENTRIES, "{}", aside.waiting[&ALONE].share);
    }
    assert_eq!(sizes, [1, 2, 4, 4, 4, 4, 4, 4]);

    let tried = aside.take_due(now).ids;
    assert_eq!(tried.len(), 4);
    tried[1..].iter().for_each(|id| aside.put_alone(*id, now));
    aside.end_try(&[], TRY, now);
    let mut sizes = Vec::new();
    while sizes.len() < 3 {
        now = aside.next_due(now).unwrap();
        let tried = aside.take_due(now).ids;
        tried.iter().for_each(|id| aside.put_alone(*id, now));
        aside.end_try(&[], TRY, now);
        sizes.extend(Some(tried.len()).filter(|size| *size > 0));
    }
    assert_eq!(sizes, [1, 1, 1]);
}

/// The lanes of a process, each with entries that are handled alone; a try takes a second and stalls all lanes.
struct World {
    lanes: Vec<SetAside>,
    /// The lane that comes first, if several are due.
    first: usize,
    /// The number of tries of each lane.
    tries: Vec<usize>,
    begun: Instant,
    now: Instant,
    stalled: Duration,
    done: usize,
}

impl World {
    fn new(lanes: usize, entries: u64) -> Self {
        let (causes, now) = (Arc::new(Causes::default()), Instant::now());
        let lane = |_| {
            let mut lane = SetAside::new(
                100,
                RetryWait { first: Duration::from_millis(100), longest: RETRY_MAX },
                Arc::clone(&causes),
            );
            (1..=entries).for_each(|ms| lane.put_alone(EntryId { ms, seq: 0 }, now));
            lane
        };
        let (begun, stalled, tries) = (now, Duration::ZERO, vec![0; lanes]);
        let lanes = (0..lanes).map(lane).collect();
        Self { lanes, first: 0, tries, begun, now, stalled, done: 0 }
    }

    /// Lets each lane take what is due; then one lane after the other is alone.
    fn turn(&mut self, is_free: bool) {
        let taken: Vec<Due> = self.lanes.iter_mut().map(|lane| lane.take_due(self.now)).collect();
        for at in 0..self.lanes.len() {
            let at = (self.first + at) % self.lanes.len();
            let (lane, due) = (&mut self.lanes[at], &taken[at]);
            if due.ids.is_empty() || lane.is_exclusive_forbidden(self.now) {
                lane.end_try(&due.ids, Duration::ZERO, self.now);
                continue;
            }
            assert!(due.alone);
            self.tries[at] += 1;
            let time = TRY * u32::try_from(due.ids.len()).unwrap();
            self.now += time;
            self.stalled += time;
            if is_free {
                self.done += due.ids.len();
            } else {
                due.ids.iter().for_each(|id| lane.put_alone(*id, self.now));
            }
            lane.end_try(&[], time, self.now);
        }
        let next = self.lanes.iter_mut().filter_map(|lane| lane.next_due(self.now)).min();
        self.now = next.unwrap_or(self.now).max(self.now + Duration::from_millis(1));
    }
}

#[test]
fn entries_alone_that_wait_for_something_else_stall_a_process_of_many_lanes_for_a_sixteenth_of_its_time() {
    // The lanes come in turns, or one lane is always ahead of the others.
    for step in [1, 0] {
        let mut world = World::new(8, 20);
        let mut turns = 0;
        while world.now < world.begun + Duration::from_secs(3600) {
            world.turn(false);
            world.first += step;
            turns += 1;
        }
        let share = world.stalled.as_secs_f64() / (world.now - world.begun).as_secs_f64();
        assert!((1.0 / 32.0..=1.0 / 15.0).contains(&share), "a share of {share}");
        assert!(turns < 20_000, "no hot loop: {turns} turns in an hour");
        let set_aside: usize = world.lanes.iter().map(SetAside::len).sum();
        assert_eq!(set_aside, 160, "none is lost");
        let (fewest, most) = (world.tries.iter().min().unwrap(), world.tries.iter().max().unwrap());
        assert!(most - fewest <= 3, "each lane has its tries: {:?}", world.tries);
    }
}

#[test]
fn entries_alone_that_can_be_done_are_done_without_a_rest() {
    let mut world = World::new(8, 20);
    world.turn(false);
    while world.now < world.begun + 2 * TRY {
        world.turn(false);
    }
    let freed = world.now;
    while world.done < 160 {
        world.turn(true);
        assert!(world.now < freed + Duration::from_secs(160 + 60), "{} are done", world.done);
    }
}

#[test]
fn an_entry_alone_that_can_be_done_waits_for_one_quick_try_of_each_that_cannot() {
    let mut aside = SetAside::new(1000, RetryWait { first: RETRY, longest: RETRY_MAX }, Arc::default());
    let begun = Instant::now();
    let mut now = begun;
    (1..=50).for_each(|ms| aside.put_alone(EntryId { ms, seq: 0 }, now));
    let mut is_done = false;
    while !is_done {
        now = aside.next_due(now).unwrap();
        let tried = aside.take_due(now).ids;
        let is_last = |id: &EntryId| id.ms == 50;
        is_done = tried.iter().any(is_last);
        tried.iter().filter(|id| !is_last(id)).for_each(|id| aside.put_alone(*id, now));
        aside.end_try(&[], Duration::from_millis(2), now);
        assert!(now < begun + 50 * (RETRY + Duration::from_millis(100)), "{} wait", aside.len());
    }
}

#[test]
fn the_waits_of_a_cause_grow_up_to_the_longest_wait_of_the_settings() {
    let most = Duration::from_secs(60);
    let mut aside = SetAside::new(BATCH, RetryWait { first: RETRY, longest: most }, Arc::default());
    let mut now = Instant::now();
    aside.put(EntryId { ms: 1, seq: 0 }, Cause::new("away", 0), now);
    let mut longest = Duration::ZERO;
    for _ in 0..20 {
        let due = aside.next_due(now).expect("an entry waits");
        longest = longest.max(due - now);
        now = due;
        let tried = aside.take_due(now);
        tried.ids.iter().for_each(|id| aside.put(*id, Cause::new("away", 0), now));
        aside.end_try(&[], Duration::ZERO, now);
    }
    assert!(longest > RETRY_MAX && longest <= most, "{longest:?}");
}
