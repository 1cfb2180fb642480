import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Many clients in one JVM, until standard input ends: {@code driver.producers} producers and {@code driver.consumers}
 * consumers, with client ids {@code <client.id>-producer-0}, {@code <client.id>-consumer-0} and so on.
 *
 * <p>Each producer sends five records a second, but every third producer only one in two seconds. Each consumer is alone
 * in its group. The first {@code driver.none} of each kind never rebootstrap; their client ids contain {@code none}.
 */
public final class ManyClients {
    public static void main(String[] arguments) throws Exception {
        Properties settings = TelemetryClient.settings(arguments[0]);
        String topic = settings.getProperty("driver.topic");
        List<KafkaProducer<byte[], byte[]>> producers = new ArrayList<>();
        List<Thread> consumers = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(settings.getProperty("driver.producers")); i++) {
            producers.add(new KafkaProducer<>(
                    named(settings, "producer", i), new ByteArraySerializer(), new ByteArraySerializer()));
        }
        for (int i = 0; i < Integer.parseInt(settings.getProperty("driver.consumers")); i++) {
            Properties own = named(settings, "consumer", i);
            own.put("group.id", own.getProperty("client.id"));
            consumers.add(new Thread(() -> consume(own, topic)));
        }
        consumers.forEach(Thread::start);
        TelemetryClient.print("started");
        for (int round = 0; !TelemetryClient.closing.await(200, TimeUnit.MILLISECONDS); round++) {
            for (int i = 0; i < producers.size(); i++) {
                if (i % 3 != 2 || round % 10 == 0) {
                    producers.get(i).send(new ProducerRecord<>(topic, new byte[100]));
                }
            }
        }
        TelemetryClient.print("closing");
        producers.forEach(each -> each.close(Duration.ZERO));
        for (Thread each : consumers) {
            each.join();
        }
        TelemetryClient.print("closed");
    }

    private static Properties named(Properties settings, String kind, int number) {
        Properties own = new Properties();
        own.putAll(settings);
        boolean none = number < Integer.parseInt(settings.getProperty("driver.none"));
        own.put("client.id", settings.getProperty("client.id") + (none ? "-none-" : "-") + kind + "-" + number);
        if (none) {
            own.put("metadata.recovery.strategy", "none");
        }
        return own;
    }

    private static void consume(Properties settings, String topic) {
        KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(topic));
        while (TelemetryClient.closing.getCount() > 0) {
            consumer.poll(Duration.ofMillis(100));
        }
        consumer.close(Duration.ofSeconds(1));
    }
}
