import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.Measurable;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Time;

/**
 * Many producers in one JVM, which send a record each, five times a second, until standard input ends.
 *
 * <p>{@code driver.producers} of them, with client ids {@code <client.id>-0} and on. Each pushes {@code driver.gauges}
 * metrics of its application (KIP-1076): gauge {@code n} has the value n. {@code started} and {@code closing} tell the
 * client instance ids.
 */
public final class ProducerFleet {
    public static void main(String[] arguments) throws Exception {
        Properties settings = TelemetryClient.settings(arguments[0]);
        String topic = settings.getProperty("driver.topic");
        int gauges = Integer.parseInt(settings.getProperty("driver.gauges"));
        List<KafkaProducer<byte[], byte[]>> producers = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(settings.getProperty("driver.producers")); i++) {
            Properties own = new Properties();
            own.putAll(settings);
            own.put("client.id", settings.getProperty("client.id") + "-" + i);
            producers.add(new KafkaProducer<>(own, new ByteArraySerializer(), new ByteArraySerializer()));
            for (int n = 0; n < gauges; n++) {
                producers.get(i).registerMetricForSubscription(gauge(n));
            }
        }
        TelemetryClient.print("started", "client_instance_ids", instanceIds(producers));
        AtomicLong records = new AtomicLong();
        AtomicLong failed = new AtomicLong();
        do {
            for (KafkaProducer<byte[], byte[]> producer : producers) {
                producer.send(new ProducerRecord<>(topic, new byte[100]),
                        (metadata, exception) -> (exception == null ? records : failed).incrementAndGet());
            }
        } while (!TelemetryClient.closing.await(200, TimeUnit.MILLISECONDS));
        producers.forEach(KafkaProducer::flush);
        TelemetryClient.print("closing", "records", records.get(), "failed", failed.get(),
                "client_instance_ids", instanceIds(producers));
        producers.forEach(KafkaProducer::close);
        TelemetryClient.print("closed");
    }

    private static KafkaMetric gauge(int n) {
        MetricName name = new MetricName("gauge-" + n, "application-metrics", "", Map.of("padding", "x".repeat(64)));
        return new KafkaMetric(new Object(), name, (Measurable) (config, now) -> n, new MetricConfig(), Time.SYSTEM);
    }

    private static List<String> instanceIds(List<KafkaProducer<byte[], byte[]>> producers) {
        return producers.stream().map(each -> each.clientInstanceId(Duration.ofMinutes(1)).toString()).toList();
    }
}
