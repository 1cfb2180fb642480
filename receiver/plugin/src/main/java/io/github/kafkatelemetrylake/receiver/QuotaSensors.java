package io.github.kafkatelemetrylake.receiver;

import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.KafkaMetric;

/**
 * The broker's present client quota sensors.
 *
 * <p>Kafka's ClientQuotaManager registers two metrics for each entity (user, client id, or both) that used a broker with
 * quotas: the observed rate, whose config has the effective limit, and the average throttle time.
 */
final class QuotaSensors {
    private static final Map<String, String> RATES =
            Map.of("Produce", "byte-rate", "Fetch", "byte-rate", "Request", "request-time");
    private static final String THROTTLE_TIME = "throttle-time";
    private static final String USER = "user";
    private static final String CLIENT_ID = "client-id";

    /** By group and tags. */
    private final Map<List<Object>, QuotaSensor> sensors = new ConcurrentHashMap<>();

    /** Called on request threads, under a lock of the broker's metrics. */
    void add(KafkaMetric metric) {
        MetricName name = metric.metricName();
        if (isQuota(name)) {
            sensors.compute(key(name), (key, sensor) -> {
                QuotaSensor entity = sensor != null ? sensor
                        : new QuotaSensor(name.group(), tag(name, USER), tag(name, CLIENT_ID));
                entity.set(metric, isThrottleTime(name));
                return entity;
            });
        }
    }

    void remove(KafkaMetric metric) {
        MetricName name = metric.metricName();
        if (isQuota(name)) {
            sensors.computeIfPresent(key(name), (key, sensor) -> {
                sensor.unset(metric, isThrottleTime(name));
                return sensor.isEmpty() ? null : sensor;
            });
        }
    }

    /** A live view. */
    Collection<QuotaSensor> all() {
        return Collections.unmodifiableCollection(sensors.values());
    }

    /** The groups also contain other metrics, such as queue-size, which have no entity in their tags. */
    private static boolean isQuota(MetricName name) {
        String rate = RATES.get(name.group());
        return rate != null
                && (name.name().equals(rate) || isThrottleTime(name))
                && (name.tags().containsKey(USER) || name.tags().containsKey(CLIENT_ID));
    }

    private static boolean isThrottleTime(MetricName name) {
        return name.name().equals(THROTTLE_TIME);
    }

    private static List<Object> key(MetricName name) {
        return List.of(name.group(), name.tags());
    }

    private static String tag(MetricName name, String tag) {
        return name.tags().getOrDefault(tag, "");
    }
}
