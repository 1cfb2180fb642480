package io.github.kafkatelemetrylake.receiver;

import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsContext;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The common base of both entry classes: the life cycle of a {@link MetricsReporter} in the broker, and the lander.
 *
 * <p>Refers only to classes that all supported Kafka versions have.
 */
public abstract class LanderReporter implements MetricsReporter {
    private static final Logger LOG = LoggerFactory.getLogger(LanderReporter.class);

    private final BrokerIdentity broker = new BrokerIdentity();
    private final ClientConnections connections = new ClientConnections();
    private LanderSettings settings;
    private QuotaSampler quotas;
    private LandingService service;

    @Override
    public void configure(Map<String, ?> configs) {
        broker.brokerId(first(configs, "node.id", "broker.id"));
        settings = new LanderSettings(configs, (problem, effect) -> LOG.error("{}; {}", problem, effect));
        quotas = new QuotaSampler(settings, broker,
                () -> settings.producer.create("client-telemetry-quotas-" + broker.brokerId(), QuotaSampler.MAX_BLOCK_MS));
    }

    @Override
    public void contextChange(MetricsContext context) {
        Map<String, String> labels = context.contextLabels();
        broker.clusterId(labels.get("kafka.cluster.id"));
        String id = first(labels, "kafka.node.id", "kafka.broker.id");
        if (id != null) {
            broker.brokerId(id);
        }
    }

    /**
     * The lander, which is started at the first call.
     *
     * <p>Only a broker calls this. The controller in the same process also has a reporter of this class, which stays idle.
     */
    final synchronized Lander lander() {
        if (service == null) {
            service = LandingService.start(
                    settings, broker, quotas, connections::json, String.valueOf(broker.brokerId()), LanderMetrics.NAME);
            quotas.start();
        }
        return service.lander();
    }

    /** Drains the queue and reports losses. Takes at most the close timeout plus about eight seconds. */
    @Override
    public final synchronized void close() {
        if (service != null) {
            service.close();
        }
    }

    @Override
    public void init(List<KafkaMetric> registered) {
        registered.forEach(this::metricChange);
    }

    @Override
    public void metricChange(KafkaMetric metric) {
        quotas.metricChanged(metric);
        connections.add(metric);
    }

    @Override
    public void metricRemoval(KafkaMetric metric) {
        quotas.metricRemoved(metric);
        connections.remove(metric);
    }

    private static String first(Map<String, ?> values, String... keys) {
        return Stream.of(keys).map(values::get).filter(value -> value != null).map(Object::toString).findFirst().orElse(null);
    }
}
