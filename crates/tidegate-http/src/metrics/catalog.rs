//! The catalog of all metrics of a worker and of the gate: name, type, labels, help. It uses no other module, so that
//! tests can compare dashboards and alerts with it.

/// The meaning of a metric's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A count that only grows, from 0 at the start of the process.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// A distribution, as counts in buckets.
    Histogram,
}

/// A metric of the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// The name of the metric.
    pub name: &'static str,
    /// The meaning of the metric's numbers.
    pub kind: MetricKind,
    /// The names of the metric's labels.
    pub labels: &'static [&'static str],
    /// The description of the metric, in a sentence.
    pub help: &'static str,
}

macro_rules! catalog {
    ($of:literal $list:ident: $($metric:ident: $kind:ident $name:literal [$($label:literal)*] $help:literal)*) => {
        $(
            #[doc = $help]
            pub const $metric: Metric = Metric {
                name: $name,
                kind: MetricKind::$kind,
                labels: &[$($label),*],
                help: $help,
            };
        )*

        #[doc = $of]
        pub const $list: &[Metric] = &[$($metric),*];
    };
}

catalog! {
    "All metrics of a worker." ALL:

    // These metrics describe this process since its start.
    BUILD_INFO: Gauge "tidegate_build_info" ["version" "worker"]
        "Always 1; the labels have the version and the name of the worker."
    ORDERS_CREATED: Counter "tidegate_orders_created_total" []
        "Orders that this process wrote to MySQL."
    ORDERS_ALREADY_THERE: Counter "tidegate_orders_already_there_total" []
        "Orders that were delivered again and already had their row."
    ORDERS_REFUSED: Counter "tidegate_orders_refused_total" ["reason"]
        "Orders that were not written but released: MySQL's constraints refused them, or they had been cancelled."
    LIMIT_USES: Counter "tidegate_limit_uses_written_total" []
        "Uses of limits that this process wrote with orders: one for each order and limit that counts it."
    EVENTS: Counter "tidegate_events_total" ["event" "outcome"]
        "Events of orders that this process recorded: applied, unchanged (the order was there already), refund_due (a payment that pays for nothing), rejected."
    RESULTS_PUBLISHED: Counter "tidegate_results_published_total" ["state"]
        "Results of orders and events that this process appended to the results stream."
    RESULTS_REMEMBERED: Counter "tidegate_results_remembered_total" []
        "Results that Redis did not accept from this process, so that MySQL keeps them."
    RESULTS_UNPUBLISHED: Gauge "tidegate_results_unpublished" []
        "Results that MySQL keeps for all workers until Redis accepts them, at most 10000: take max() over workers, never sum(); with partitions, the sum of each partition's max()."
    ENTRIES_ACKNOWLEDGED: Counter "tidegate_entries_acknowledged_total" []
        "Entries acknowledged with a durable outcome: order written, already written, or refused; event recorded."
    ENTRIES_BURIED: Counter "tidegate_entries_buried_total" ["reason"]
        "Entries copied to the stream of dead letters and acknowledged."
    ENTRIES_RETRIED: Counter "tidegate_entries_retried_total" []
        "Times that an entry was set aside, to be retried later."
    ENTRIES_SET_ASIDE: Gauge "tidegate_entries_set_aside" ["cause"]
        "Entries that this process has set aside, because another process or session holds something that they need."
    ENTRIES_CLAIMED: Counter "tidegate_entries_claimed_total" []
        "Entries taken over from other consumers."
    ENTRIES_GONE: Counter "tidegate_entries_gone_total" []
        "Pending entries whose payload another program deleted, acknowledged without an order."
    LOCK_WAITS: Counter "tidegate_lock_waits_total" ["lock"]
        "Times that an order had to wait: for its user's lock (user), or for rows of its voucher in MySQL (row)."
    CONTENTIONS: Counter "tidegate_mysql_contentions_total" ["kind"]
        "Transactions that conflicted with others: rolled back (deadlock), waited for a row for too long (lock_wait), or tried to write a row that another one had just written (duplicate)."
    BATCH_ENTRIES: Histogram "tidegate_batch_entries" []
        "Entries that came with one read or claim."
    STAGE_SECONDS: Histogram "tidegate_stage_duration_seconds" ["stage"]
        "Time of a batch's stages: read (with the wait for its first entry), lock, write, settle."
    LANES: Gauge "tidegate_lanes" ["activity"]
        "Lanes of this process, by their present activity."
    LANES_STUCK: Gauge "tidegate_lanes_stuck" []
        "Lanes that have stayed in one activity for longer than admin.stuck_after_ms."
    BREAKER_OPEN: Gauge "tidegate_breaker_open" ["store"]
        "1 while this process reads nothing because the store is away."
    PAUSED: Gauge "tidegate_paused" ["reason"]
        "1 while this process reads nothing because all workers are paused (fleet), or it alone is (signal)."
    BUSY: Gauge "tidegate_busy" []
        "1 while buyers get the reply 11 because this process marks sales as busy, or cannot renew the marks of sales that need workers."
    OUTAGES: Counter "tidegate_outages_total" ["store"]
        "Outages of a store that this process has noticed."
    EXPIRATIONS: Counter "tidegate_expirations_appended_total" []
        "Events that this process appended for orders that were not paid in time."
    REDIS_RECONNECTS: Counter "tidegate_redis_reconnects_total" []
        "Connections to Redis that were opened again."
    MYSQL_CONNECTIONS: Counter "tidegate_mysql_connections_opened_total" []
        "Connections to MySQL that were opened, the first ones included."

    // These metrics describe the stores, so all workers of a fleet report the same values: use max() over workers,
    // never sum(). With partitions, use sum(max by (partition) (...)) for counts.
    GATHER_SUCCESS: Gauge "tidegate_gather_success" ["store"]
        "1 if the store answered when its values were gathered, at most 2 s ago; if 0, they are missing here."
    GATHER_FAILURES: Counter "tidegate_gather_failures_total" ["store"]
        "Times that the values of a store could not be gathered."
    STREAM_ADDED: Counter "tidegate_stream_entries_added_total" []
        "Entries ever added to the stream: the admitted orders, and manually added entries. From Redis 7 on."
    STREAM_ENTRIES: Gauge "tidegate_stream_entries" []
        "Entries in the stream, including acknowledged ones that are not trimmed yet."
    STREAM_GROUP: Gauge "tidegate_stream_group_exists" []
        "1 if the consumer group exists."
    STREAM_UNDELIVERED: Gauge "tidegate_stream_undelivered_entries" []
        "Entries that no consumer has read yet; if Redis does not know their number, counted up to 10000."
    STREAM_UNDELIVERED_AGE: Gauge "tidegate_stream_oldest_undelivered_age_seconds" []
        "Age of the oldest entry that no consumer has read yet; 0 if there is none."
    STREAM_PENDING: Gauge "tidegate_stream_pending_entries" []
        "Entries that were read and are not acknowledged."
    STREAM_PENDING_AGE: Gauge "tidegate_stream_oldest_pending_age_seconds" []
        "Age of the oldest entry that is not acknowledged; 0 if there is none."
    STREAM_CONSUMERS: Gauge "tidegate_stream_consumers" ["process"]
        "Consumers of the group, by whether their process is alive or gone."
    DEAD_LETTERS: Gauge "tidegate_dead_letters" []
        "Entries in the stream of dead letters."
    VOUCHER_STOCK: Gauge "tidegate_voucher_stock_units" ["voucher" "store"]
        "Units left of a voucher on each side, for the 50 vouchers with the highest ids."
    VOUCHER_TO_DEDUCT: Gauge "tidegate_voucher_units_to_deduct" ["voucher"]
        "Units of a voucher that were taken in Redis and are in no order in MySQL yet: in flight, dead or lost; below 0 if Redis offers more than MySQL has."
    LIMIT_COUNTERS: Gauge "tidegate_limit_counters" ["owner"]
        "Counters that Redis holds for the limits of a voucher or a campaign, such as voucher:7: one for each subject of a limit, and one for each user with slots. For the vouchers of tidegate_voucher_stock_units and their campaigns."
    VOUCHERS_CUT: Gauge "tidegate_vouchers_cut" []
        "1 if there are more vouchers than tidegate_voucher_stock_units shows."
    UNPAID: Gauge "tidegate_unpaid_orders" []
        "Orders that have to be paid in time and are not paid yet, counted up to 100000."
    UNPAID_OVERDUE: Gauge "tidegate_unpaid_overdue_orders" []
        "Unpaid orders whose time to pay is over."
    UNPAID_OVERDUE_AGE: Gauge "tidegate_unpaid_overdue_age_seconds" []
        "Seconds since the time to pay of the oldest overdue order ended; 0 if there is none."
    STORE_WENT_BACK: Gauge "tidegate_store_went_back" ["store"]
        "1 while no order expires because the store is older than the other one."
    RECONCILE_DIFFERENCES: Gauge "tidegate_reconcile_differences" ["kind"]
        "Differences that the last comparison of both stores found, by kind (docs/reconcile.md)."
    RECONCILE_STANDING: Gauge "tidegate_reconcile_standing_differences" ["kind"]
        "Standing differences of the kinds that are failures: the lower number of the last two comparisons."
    RECONCILE_LAST: Gauge "tidegate_reconcile_last_seconds" []
        "When the last comparison of both stores ended, in seconds since 1970; 0 if there was none."
    RECONCILE_LAST_CLEAN: Gauge "tidegate_reconcile_last_clean_seconds" []
        "When the last comparison that found both stores to agree ended, in seconds since 1970; 0 if there was none."
    RECONCILE_EVERY: Gauge "tidegate_reconcile_every_seconds" []
        "Configured seconds between two comparisons (reconcile.every_s); 0: workers do not compare."
    RECONCILE_UNREAD: Gauge "tidegate_reconcile_unread_vouchers" []
        "Vouchers that the last comparison could not read, because their keys in Redis have a wrong type or content."
    VOUCHER_MEMORY: Gauge "tidegate_voucher_memory_bytes" ["voucher"]
        "Approximate memory that Redis uses for a voucher, by the last comparison: stock, buyers, window and journal. For the 50 highest ids."
    UNITS_TO_DEDUCT: Gauge "tidegate_units_to_deduct" []
        "Units of in-flight and dead orders that MySQL's stocks still include, by the last comparison."

    // These metrics describe the process, by the names that all programs use.
    PROCESS_CPU: Counter "process_cpu_seconds_total" [] "Total user and system CPU time spent in seconds."
    PROCESS_MAX_FDS: Gauge "process_max_fds" [] "Maximum number of open file descriptors."
    PROCESS_OPEN_FDS: Gauge "process_open_fds" [] "Number of open file descriptors."
    PROCESS_RESIDENT: Gauge "process_resident_memory_bytes" [] "Resident memory size in bytes."
    PROCESS_START: Gauge "process_start_time_seconds" [] "Start time of the process since unix epoch in seconds."
    PROCESS_THREADS: Gauge "process_threads" [] "Number of OS threads in the process."
    PROCESS_VIRTUAL: Gauge "process_virtual_memory_bytes" [] "Virtual memory size in bytes."
}

catalog! {
    "All metrics of the gate over HTTP. Its page also has those of the process, but only a worker has `tidegate_build_info`." GATE:

    GATE_BUILD_INFO: Gauge "tidegate_gate_build_info" ["version" "gate"]
        "Always 1; the labels have the version and the name of the gate."
    GATE_REQUESTS: Counter "tidegate_gate_requests_total" ["outcome"]
        "Requests for an order that were answered: admitted, admitted_before, or the slug of the problem that was answered."
    GATE_LIMIT_REFUSALS: Counter "tidegate_gate_limit_refusals_total" ["limit"]
        "Requests that were refused by a limit or a rate, by its name; beyond 100 names: other."
    GATE_CONNECTIONS: Gauge "tidegate_gate_connections" []
        "Connections of clients that are open now."
    GATE_DURATION: Histogram "tidegate_gate_request_duration_seconds" []
        "Time from the head of a request for an order to its answer, including the time for its body."
}
