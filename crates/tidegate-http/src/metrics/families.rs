//! The metric families of the library, made from entries of the catalog.

use std::slice;

use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric as Sample, MetricFamily, MetricType,
};
use tidegate_stream::HistogramSnapshot;

use super::catalog::{self, Metric, MetricKind};

/// The metric samples that one scrape returns.
#[derive(Debug, Default)]
pub struct Families {
    families: Vec<MetricFamily>,
    partition: Option<LabelPair>,
}

/// The label with the partition of a sample.
const PARTITION: &str = "partition";

impl Families {
    /// Adds the metrics of the Prometheus library whose names are in the catalog.
    pub fn known(&mut self, families: Vec<MetricFamily>) {
        let is_known = |family: &MetricFamily| catalog::ALL.iter().any(|metric| metric.name == family.name());
        self.families.extend(families.into_iter().filter(is_known));
    }

    /// Sets the partition label for all samples that are added later. None: later samples belong to the whole process.
    pub fn begin_partition(&mut self, tag: Option<&str>) {
        self.partition = tag.map(|tag| pair(PARTITION, tag));
    }

    /// Adds a sample of a metric without labels.
    pub fn one(&mut self, metric: &Metric, value: f64) {
        self.each(metric, [([], value)]);
    }

    /// Adds one sample of a metric for each set of label values. If `values` is empty, this function adds nothing.
    pub fn each<'a, const N: usize>(
        &mut self,
        metric: &Metric,
        values: impl IntoIterator<Item = ([&'a str; N], f64)>,
    ) {
        let samples = values.into_iter().map(|(labels, value)| {
            let mut sample = Sample::from_label(pairs(metric, labels));
            match metric.kind {
                MetricKind::Counter => {
                    let mut counter = Counter::default();
                    counter.set_value(value);
                    sample.set_counter(counter);
                }
                MetricKind::Gauge => {
                    let mut gauge = Gauge::default();
                    gauge.set_value(value);
                    sample.set_gauge(gauge);
                }
                MetricKind::Histogram => unreachable!("{} has no single number", metric.name),
            }
            sample
        });
        self.add(metric, samples.collect());
    }

    /// Adds a histogram that has one distribution for each set of label values. Values of a distribution are divided by
    /// `per_unit` to get the unit of the metric.
    pub fn histograms<'a, const N: usize>(
        &mut self,
        metric: &Metric,
        per_unit: f64,
        spreads: impl IntoIterator<Item = ([&'a str; N], HistogramSnapshot)>,
    ) {
        let samples = spreads.into_iter().map(|(labels, spread)| {
            let mut sample = Sample::from_label(pairs(metric, labels));
            sample.set_histogram(histogram(&spread, per_unit));
            sample
        });
        self.add(metric, samples.collect());
    }

    fn add(&mut self, metric: &Metric, mut samples: Vec<Sample>) {
        if samples.is_empty() {
            return;
        }
        if let Some(partition) = &self.partition {
            for sample in &mut samples {
                let labels = [slice::from_ref(partition), sample.get_label()].concat();
                sample.set_label(labels);
            }
        }
        if let Some(family) = self.families.iter_mut().find(|family| family.name() == metric.name) {
            family.mut_metric().extend(samples);
            return;
        }
        let mut family = MetricFamily::default();
        family.set_name(metric.name.to_owned());
        family.set_help(metric.help.to_owned());
        family.set_field_type(match metric.kind {
            MetricKind::Counter => MetricType::COUNTER,
            MetricKind::Gauge => MetricType::GAUGE,
            MetricKind::Histogram => MetricType::HISTOGRAM,
        });
        family.set_metric(samples);
        self.families.push(family);
    }

    /// Returns the metric families in the order in which they were added.
    pub fn into_inner(self) -> Vec<MetricFamily> {
        self.families
    }
}

fn pairs<const N: usize>(metric: &Metric, values: [&str; N]) -> Vec<LabelPair> {
    assert_eq!(metric.labels.len(), N, "labels of {}", metric.name);
    metric.labels.iter().zip(values).map(|(name, value)| pair(name, value)).collect()
}

fn pair(name: &str, value: &str) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

fn histogram(spread: &HistogramSnapshot, per_unit: f64) -> Histogram {
    let buckets = spread.buckets.iter().map(|(bound, count)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(number(*bound) / per_unit);
        bucket.set_cumulative_count(*count);
        bucket
    });
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(spread.count);
    histogram.set_sample_sum(number(spread.sum) / per_unit);
    histogram
}

/// Converts a count to a floating-point number for the metrics page, exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "every number of the text format is a float")]
pub fn number(count: u64) -> f64 {
    count as f64
}
