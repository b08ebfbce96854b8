//! The catalog of all metrics of a worker and of the gate: name, type, labels, help. It uses no other module, so that
//! tests can compare dashboards and alerts with it.

/// The Prometheus type of a metric: counter, gauge or histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A count that only grows, from 0 at the start of the process.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// A distribution, as counts in buckets.
    Histogram,
}

/// A Prometheus metric: its name, type, labels and description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// The name of the metric in Prometheus.
    pub name: &'static str,
    /// The Prometheus type of the metric.
    pub kind: MetricKind,
    /// The names of the labels of the metric.
    pub labels: &'static [&'static str],
    /// The description of the metric for the `# HELP` line.
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
        "Always 1. The labels have the version of Tidegate and the name of the worker."
    ORDERS_CREATED: Counter "tidegate_orders_created_total" []
        "Orders that this process wrote to MySQL."
    ORDERS_ALREADY_THERE: Counter "tidegate_orders_already_there_total" []
        "Orders whose stream entry was delivered again although the order already had a row in MySQL."
    ORDERS_REFUSED: Counter "tidegate_orders_refused_total" ["reason"]
        "Orders that this process did not write, but released: a constraint of MySQL refused the order, or the order was already cancelled."
    LIMIT_USES: Counter "tidegate_limit_uses_written_total" []
        "Limit uses that this process wrote to MySQL with orders. An order adds one use for each limit that counts the order."
    EVENTS: Counter "tidegate_events_total" ["event" "outcome"]
        "Order events that this process recorded: applied, unchanged (the order already had the state), refund_due (the payment has to be refunded) or rejected."
    RESULTS_PUBLISHED: Counter "tidegate_results_published_total" ["state"]
        "Results of orders and events that this process appended to the results stream."
    RESULTS_REMEMBERED: Counter "tidegate_results_remembered_total" []
        "Results that this process stored in MySQL, because Redis did not accept the results."
    RESULTS_UNPUBLISHED: Gauge "tidegate_results_unpublished" []
        "Results of all workers that MySQL keeps until Redis accepts the results, counted up to 10000. Use max() over workers, never sum(). With partitions, add up the max() of each partition."
    WEBHOOK_ATTEMPTS: Counter "tidegate_webhook_attempts_total" ["webhook" "result"]
        "Attempts to send a result to a webhook, by the result: delivered, failed (tried again later), gone (answer 410), or unreadable (the entry is no result)."
    WEBHOOK_RETRIES: Counter "tidegate_webhook_retries_total" ["webhook"]
        "Attempts to send a result that the receiver had not accepted before."
    WEBHOOK_SENDER: Gauge "tidegate_webhook_sender" ["webhook"]
        "1 if this worker sends the results of the webhook. In a fleet, one worker sends for each partition."
    WEBHOOK_PENDING: Gauge "tidegate_webhook_pending" ["webhook"]
        "Results that the webhook has read from Redis and not sent. No more are read at 1000."
    WEBHOOK_OLDEST: Gauge "tidegate_webhook_oldest_unsent_seconds" ["webhook"]
        "Age of the oldest result that the webhook has not sent. 0 if all results were sent."
    WEBHOOK_LOST: Counter "tidegate_webhook_lost_total" ["webhook"]
        "Results of all kinds that were deleted before the webhook had sent or read them. All workers show the same number: use max(), not sum()."
    WEBHOOK_PAUSED: Gauge "tidegate_webhook_paused" ["webhook"]
        "1 while the webhook is paused, by an operator or because its receiver answered 410."
    ENTRIES_ACKNOWLEDGED: Counter "tidegate_entries_acknowledged_total" []
        "Stream entries that this process acknowledged after a final outcome: the order was written, was already written or was refused, or the event was recorded."
    ENTRIES_BURIED: Counter "tidegate_entries_buried_total" ["reason"]
        "Stream entries that this process moved to the dead letters."
    ENTRIES_RETRIED: Counter "tidegate_entries_retried_total" []
        "Times that this process set aside an entry: the entry stays pending, and a worker tries it again later."
    ENTRIES_SET_ASIDE: Gauge "tidegate_entries_set_aside" ["cause"]
        "Entries that this process has set aside (left pending for a later attempt), by cause: for example, another session locks a row, or MySQL has lost an order."
    ENTRIES_CLAIMED: Counter "tidegate_entries_claimed_total" []
        "Pending entries that this process claimed from other consumers."
    ENTRIES_GONE: Counter "tidegate_entries_gone_total" []
        "Pending entries that this process acknowledged without an order, because another program had deleted the content of the entry."
    LOCK_WAITS: Counter "tidegate_lock_waits_total" ["lock"]
        "Times that an order had to wait for the lock of its user (user), or for MySQL rows of its voucher (row)."
    CONTENTIONS: Counter "tidegate_mysql_contentions_total" ["kind"]
        "MySQL transactions that conflicted with another transaction, by kind: deadlock (rolled back), lock_wait (waited too long for a row) or duplicate (another transaction had just written the same row)."
    BATCH_ENTRIES: Histogram "tidegate_batch_entries" []
        "Number of stream entries that one read or claim returned."
    STAGE_SECONDS: Histogram "tidegate_stage_duration_seconds" ["stage"]
        "Seconds that a batch spent in each stage: read (including the wait for the first entry), lock (users), write (MySQL) and settle (acknowledge the entries in Redis)."
    LANES: Gauge "tidegate_lanes" ["activity"]
        "Lanes (consumers) of this process, by their present activity."
    LANES_STUCK: Gauge "tidegate_lanes_stuck" []
        "Lanes (consumers) of this process that have stayed in one activity for longer than the setting admin.stuck_after_ms allows."
    BREAKER_OPEN: Gauge "tidegate_breaker_open" ["store"]
        "1 while this process reads no entries because the store is unavailable."
    PAUSED: Gauge "tidegate_paused" ["reason"]
        "1 while this process reads no entries because of a pause: of all workers (fleet) or of this process alone (signal)."
    BUSY: Gauge "tidegate_busy" []
        "1 while buyers get the reply 11 (busy), because this process marks sales as busy or cannot renew the marks of sales that need live workers."
    SALES_NOT_LOADED: Gauge "tidegate_sales_not_loaded" []
        "Vouchers without a stock in Redis whose sales began in the last day, or begin soon and already have orders. Only the worker that loads vouchers (calendar.warm_up) counts them."
    OUTAGES: Counter "tidegate_outages_total" ["store"]
        "Outages of a store that this process has noticed."
    EXPIRATIONS: Counter "tidegate_expirations_appended_total" []
        "Expiry events that this process appended to the stream for orders that were not paid in time."
    REDIS_RECONNECTS: Counter "tidegate_redis_reconnects_total" []
        "Times that this process opened a connection to Redis again."
    MYSQL_CONNECTIONS: Counter "tidegate_mysql_connections_opened_total" []
        "Connections to MySQL that this process opened, including the first connections."

    // These metrics describe the stores, so all workers of a fleet report the same values: use max() over workers,
    // never sum(). With partitions, use sum(max by (partition) (...)) for counts.
    GATHER_SUCCESS: Gauge "tidegate_gather_success" ["store"]
        "1 if the store answered the last query for its metrics, at most 2 s ago. If 0, the metrics of this store are missing."
    GATHER_FAILURES: Counter "tidegate_gather_failures_total" ["store"]
        "Failed queries for the metrics of a store."
    STREAM_ADDED: Counter "tidegate_stream_entries_added_total" []
        "Entries ever added to the stream: admitted orders, order events and manually added entries. This metric needs Redis 7 or later."
    STREAM_ENTRIES: Gauge "tidegate_stream_entries" []
        "Entries in the stream, including acknowledged entries that are not trimmed yet."
    STREAM_GROUP: Gauge "tidegate_stream_group_exists" []
        "1 if the consumer group of the stream exists."
    STREAM_UNDELIVERED: Gauge "tidegate_stream_undelivered_entries" []
        "Stream entries that no consumer has read yet. If Redis does not know this number, the entries are counted up to 10000."
    STREAM_UNDELIVERED_AGE: Gauge "tidegate_stream_oldest_undelivered_age_seconds" []
        "Age of the oldest stream entry that no consumer has read yet. 0 if all entries have been read."
    STREAM_PENDING: Gauge "tidegate_stream_pending_entries" []
        "Pending entries of the stream: entries that were read, but not acknowledged yet."
    STREAM_PENDING_AGE: Gauge "tidegate_stream_oldest_pending_age_seconds" []
        "Age of the oldest pending entry of the stream. 0 if no entry is pending."
    STREAM_CONSUMERS: Gauge "tidegate_stream_consumers" ["process"]
        "Consumers of the consumer group, by whether the process of the consumer is alive or gone."
    DEAD_LETTERS: Gauge "tidegate_dead_letters" []
        "Dead letters: entries that must not be written, in the stream of dead letters."
    VOUCHER_STOCK: Gauge "tidegate_voucher_stock_units" ["voucher" "store"]
        "Units that a voucher has left in each store (Redis and MySQL), for the 50 vouchers with the highest ids."
    VOUCHER_TO_DEDUCT: Gauge "tidegate_voucher_units_to_deduct" ["voucher"]
        "Units of a voucher that Redis has sold and that no order in MySQL contains yet: in flight, in dead letters or lost. Below 0 if Redis offers more units than MySQL has."
    LIMIT_COUNTERS: Gauge "tidegate_limit_counters" ["owner"]
        "Counters that Redis holds for the limits of a voucher or a campaign (label owner, such as voucher:7): one for each subject (such as a device) of a limit, and one for each user who may have several orders. This metric shows the vouchers in tidegate_voucher_stock_units and the campaigns of these vouchers."
    VOUCHERS_CUT: Gauge "tidegate_vouchers_cut" []
        "1 if the system has more vouchers than tidegate_voucher_stock_units shows."
    UNPAID: Gauge "tidegate_unpaid_orders" []
        "Unpaid orders that expire if they are not paid in time, counted up to 100000."
    UNPAID_OVERDUE: Gauge "tidegate_unpaid_overdue_orders" []
        "Overdue unpaid orders: the time to pay is over, but the order has not expired yet."
    UNPAID_OVERDUE_AGE: Gauge "tidegate_unpaid_overdue_age_seconds" []
        "Seconds since the payment of the oldest overdue order became due. 0 if no payment is overdue."
    STORE_WENT_BACK: Gauge "tidegate_store_went_back" ["store"]
        "1 while no order expires because this store has older data than the other store (after a restore or a failover)."
    RECONCILE_DIFFERENCES: Gauge "tidegate_reconcile_differences" ["kind"]
        "Differences between Redis and MySQL that the last comparison found, by kind (docs/reconcile.md)."
    RECONCILE_STANDING: Gauge "tidegate_reconcile_standing_differences" ["kind"]
        "Differences that both of the last two comparisons found, for the kinds that count as failures. The value is the lower of the two numbers."
    RECONCILE_LAST: Gauge "tidegate_reconcile_last_seconds" []
        "Unix time in seconds when the last comparison of Redis and MySQL ended. 0 if no comparison has ended yet."
    RECONCILE_LAST_CLEAN: Gauge "tidegate_reconcile_last_clean_seconds" []
        "Unix time in seconds of the end of the last comparison that found no difference. 0 if there was no such comparison."
    RECONCILE_EVERY: Gauge "tidegate_reconcile_every_seconds" []
        "Seconds between two comparisons of Redis and MySQL (setting reconcile.every_s). 0 means that workers do not compare."
    RECONCILE_UNREAD: Gauge "tidegate_reconcile_unread_vouchers" []
        "Vouchers that the last comparison could not read, because a key of the voucher in Redis has a wrong type or content."
    VOUCHER_MEMORY: Gauge "tidegate_voucher_memory_bytes" ["voucher"]
        "Approximate bytes that a voucher takes in Redis, by the last comparison: stock, buyers, sale times and journal (the record of its orders). This metric shows the 50 vouchers with the highest ids."
    UNITS_TO_DEDUCT: Gauge "tidegate_units_to_deduct" []
        "Units of orders in flight and in dead letters that the stocks in MySQL still include, by the last comparison."

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
    "All metrics of the gate over HTTP. The gate also shows the metrics of its process, but only a worker shows `tidegate_build_info`." GATE:

    GATE_BUILD_INFO: Gauge "tidegate_gate_build_info" ["version" "gate"]
        "Always 1. The labels have the version of Tidegate and the name of the gate."
    GATE_REQUESTS: Counter "tidegate_gate_requests_total" ["outcome"]
        "Answered requests for an order, by outcome: admitted, admitted_before, or the name of the problem in the answer (such as sold-out)."
    GATE_EVENTS: Counter "tidegate_gate_events_total" ["outcome"]
        "Events of orders that clients reported, by outcome: accepted, or the name of the problem in the answer."
    GATE_LIMIT_REFUSALS: Counter "tidegate_gate_limit_refusals_total" ["limit"]
        "Requests that a limit or a rate limit refused, by the name of the limit. After 100 names, the label limit is other."
    GATE_CONNECTIONS: Gauge "tidegate_gate_connections" []
        "Open connections of clients to the gate."
    GATE_CONNECTIONS_LIMIT: Gauge "tidegate_gate_connections_limit" []
        "The most connections that the gate serves at the same time: gate.connections, or fewer if the limit of open files is too low."
    GATE_CERTIFICATE: Gauge "tidegate_gate_certificate_not_after_timestamp_seconds" []
        "The Unix time when the certificate of the gate, or one of its intermediate certificates, expires: the earliest of these times. A gate without TLS has no such metric."
    GATE_DURATION: Histogram "tidegate_gate_request_duration_seconds" []
        "Seconds from the head of a request for an order to the answer of the gate, including the time to receive the body."
    GATE_RESULT_FOLLOWERS: Gauge "tidegate_gate_result_followers" []
        "Requests for results that this gate answers now: long polls and streams of server-sent events."
    GATE_RESULTS_SERVED: Counter "tidegate_gate_results_served_total" []
        "Results that this gate sent to followers. A result counts once for each follower."
    GATE_RESULTS_LOST: Counter "tidegate_gate_results_lost_total" []
        "Answers which told a follower that results were deleted before the follower read them."
    GATE_RESULT_READS: Counter "tidegate_gate_result_reads_total" ["kind"]
        "Reads of results from Redis, by kind: wait (the reads that all followers of a partition share) or page (reads for a follower that is behind)."
}
