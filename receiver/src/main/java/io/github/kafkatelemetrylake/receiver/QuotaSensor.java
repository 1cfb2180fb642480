package io.github.kafkatelemetrylake.receiver;

import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.Quota;

/** The rate and the throttle time of one entity and quota type in one broker; either may be missing. */
final class QuotaSensor {
    /** ClientQuotaManager's bound for no limit, as the double that the metric's config holds. */
    private static final double UNLIMITED = Long.MAX_VALUE;

    /** Produce, Fetch or Request. */
    final String group;
    /** As tagged by the broker: URL-encoded; empty when the user is not part of the entity. */
    final String user;
    /** Empty when the client id is not part of the entity. */
    final String clientId;
    private volatile KafkaMetric rate;
    private volatile KafkaMetric throttleTime;
    /** The sampler's thread only. */
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

    /** Forgets this metric; one of the same name that was registered since stays. */
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
     * <p>The average outlasts the throttling by up to a minute. As long as it stays the same and the rate is below the
     * bound nothing was added to it.
     */
    double newThrottleTimeMs() {
        double average = value(throttleTime);
        boolean same = average == lastThrottleTimeMs;
        lastThrottleTimeMs = average;
        return same && !(observedRate() >= limit()) ? Double.NaN : average;
    }

    /** The bound in force, in the rate's unit; NaN: none. */
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
