package io.github.kafkatelemetrylake.receiver;

import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.Quota;

/** The rate and the throttle time of one entity and quota type in one broker; either may be missing. */
final class QuotaSensor {
    /** ClientQuotaManager's value for no limit, as the double in the metric's config. */
    private static final double UNLIMITED = Long.MAX_VALUE;

    /** Produce, Fetch or Request. */
    final String group;
    /** As tagged by the broker: URL-encoded; empty if the user is not part of the entity. */
    final String user;
    /** Empty if the client id is not part of the entity. */
    final String clientId;
    private volatile KafkaMetric rate;
    private volatile KafkaMetric throttleTime;
    /** Used only by the sampler's thread. */
    private double lastThrottleTimeMs = Double.NaN;

    QuotaSensor(String group, String user, String clientId) {
        this.group = group;
        this.user = user;
        this.clientId = clientId;
    }

    void set(KafkaMetric metric, boolean isThrottleTime) {
        if (isThrottleTime) {
            throttleTime = metric;
        } else {
            rate = metric;
        }
    }

    /** Removes this metric, but not one of the same name that was registered later. */
    void unset(KafkaMetric metric, boolean isThrottleTime) {
        if (isThrottleTime && throttleTime == metric) {
            throttleTime = null;
        } else if (!isThrottleTime && rate == metric) {
            rate = null;
        }
    }

    boolean isEmpty() {
        return rate == null && throttleTime == null;
    }

    /** Bytes/s, or percent of one thread's time for requests; NaN: no sample. */
    double observedRate() {
        return value(rate);
    }

    /**
     * The broker's average over its last 30 to 60 s, in milliseconds; NaN: no throttling since the last call.
     *
     * <p>The average outlasts the throttling by up to a minute. While it stays the same and the rate is below the limit,
     * there is no new throttling.
     */
    double newThrottleTimeMs() {
        double average = value(throttleTime);
        boolean same = average == lastThrottleTimeMs;
        lastThrottleTimeMs = average;
        return same && !(observedRate() >= limit()) ? Double.NaN : average;
    }

    /** The effective limit, in the rate's unit; NaN: none. */
    double limit() {
        KafkaMetric metric = rate;
        Quota quota = metric == null ? null : metric.config().quota();
        return quota == null || !quota.isUpperBound() || quota.bound() >= UNLIMITED ? Double.NaN : quota.bound();
    }

    private static double value(KafkaMetric metric) {
        Object value = metric == null ? null : metric.metricValue();
        return value instanceof Number ? ((Number) value).doubleValue() : Double.NaN;
    }
}
